"""Mistakes as projects organize them: blocks from registries, helpers with options, data in objects; and right twins."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

#: By a name: the rule, a script that it finds, and texts in it whose replacement makes it right.
SCRIPTS = {
    "norm options of a registered block": (
        "CKPT106",
        """
import torch.nn as nn
import torch.utils.checkpoint as cp

BLOCKS = {}

def register(name):
    def wrap(cls):
        BLOCKS[name] = cls
        return cls
    return wrap

@register("basic")
class Basic(nn.Module):
    def __init__(self, cin, cout, **kwargs):
        super().__init__()
        self.body = nn.ModuleList([nn.Conv2d(cin, cout, 1), nn.BatchNorm2d(cout, **kwargs), nn.SiLU()])

    def forward(self, x):
        for layer in self.body:
            x = layer(x)
        return x

@register("plain")
class Plain(nn.Module):
    def __init__(self, cin, cout, **kwargs):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1)

    def forward(self, x):
        return self.conv(x)

class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        options = dict(eps=1e-3, momentum=0.03)
        self.layers = nn.ModuleList(BLOCKS[kind](8, 8, **options) for kind in ("plain", "basic"))

    def forward(self, x):
        for layer in self.layers:
            x = cp.checkpoint(layer, x, use_reentrant=False)
        return x
""",
        (("momentum=0.03", "momentum=None"), ("nn.BatchNorm2d(cout, **kwargs)", "nn.GroupNorm(1, cout)")),
    ),
    "an optional norm with a default": (
        "CKPT106",
        """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

def conv_norm_act(cin, cout, norm=nn.BatchNorm1d):
    parts = [nn.Conv1d(cin, cout, 3)]
    if norm is not None:
        parts.append(norm(cout))
    return nn.Sequential(*parts, nn.GELU())

class Wave(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = conv_norm_act(16, 16)

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
""",
        (("norm=nn.BatchNorm1d", "norm=None"), ("norm=nn.BatchNorm1d", "norm=nn.InstanceNorm1d")),
    ),
    "batch_norm with buffers of its own": (
        "CKPT106",
        """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

class Whiten(nn.Module):
    def __init__(self, width):
        super().__init__()
        for name, value in (("mean", torch.zeros(width)), ("var", torch.ones(width))):
            self.register_buffer(f"running_{name}", value)

    def forward(self, x):
        kwargs = dict(training=self.training, momentum=0.1)
        return F.batch_norm(x, self.running_mean, self.running_var, **kwargs)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), Whiten(8), nn.ReLU())

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
""",
        (
            ("training=self.training", "training=False"),
            ("momentum=0.1", "momentum=0.0"),
            ("self.running_mean, self.running_var", "None, None"),
            ("nn.ReLU())\n", "nn.ReLU())\n        self.block[1].eval()\n"),
        ),
    ),
    "a child wrapped by its name": (
        "CKPT106",
        """
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

class Twins(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(784, 8), nn.GELU(), nn.Linear(8, 8))
        self.projector = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())

    def forward(self, a, b):
        return [self.projector(self.encoder(x)) for x in (a, b)]

def build():
    model = Twins()
    for name, child in model.named_children():
        if name == "projector":
            setattr(model, name, checkpoint_wrapper(child))
    return model
""",
        (('name == "projector"', 'name == "encoder"'), ('name == "projector"', 'name != "projector"')),
    ),
    "freezing with exceptions that nobody gives": (
        "CKPT104",
        """
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

def freeze(module, *, eval_mode=False, except_for=()):
    for name, parameter in module.named_parameters():
        if not any(part in name for part in except_for):
            parameter.requires_grad = False
    if eval_mode:
        module.eval()
    return module

class Vit(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.patches = nn.Conv2d(3, dim, 16, 16)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(dim, dim), nn.GELU()) for _ in range(4)])
        self.head = nn.Linear(dim, 10)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return self.head(x.mean(1))

def main(loader):
    model = Vit()
    freeze(model.patches, eval_mode=True)
    for images, labels in loader:
        nn.functional.cross_entropy(model(images), labels).backward()
""",
        (
            ("eval_mode=True", 'except_for=("bias",)'),
            ("except_for=()", 'except_for=("bias",)'),
            ("except_for=()", "except_for"),
            ("model.patches, eval_mode=True", "model.head"),
        ),
    ),
    "data in an object": (
        "CKPT104",
        """
from dataclasses import dataclass
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

@dataclass
class Graph:
    nodes: Tensor
    target: Tensor

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32))
        self.out = nn.Linear(32, 1)

    def forward(self, graph):
        return self.out(checkpoint(self.first, graph.nodes, use_reentrant=True))

def train(count=100):
    model = Model()
    for _ in range(count):
        graph = Graph(torch.randn(10, 16), torch.randn(10, 1))
        loss = (model(graph) - graph.target).abs().mean()
        loss.backward()
""",
        (
            ("        loss =", "        graph.nodes.requires_grad_()\n        loss ="),
            ("        loss =", "        graph.nodes = model.out(graph.nodes)\n        loss ="),
            (
                "        loss =",
                "        for held in vars(graph).values():\n            held.requires_grad_()\n        loss =",
            ),
            ("torch.randn(10, 16)", "torch.randn(10, 16).requires_grad_()"),
            ("use_reentrant=True", "use_reentrant=False"),
        ),
    ),
    "low-rank parameters that a loop leaves": (
        "CKPT104",
        """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class LowRank(nn.Module):
    def __init__(self, linear, rank=4):
        super().__init__()
        self.linear = linear
        self.lora_a = nn.Parameter(torch.randn(rank, linear.in_features) * 0.01)
        self.lora_b = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x):
        return self.linear(x) + x @ self.lora_a.T @ self.lora_b.T

class Decoder(nn.Module):
    def __init__(self, vocab=500, dim=32):
        super().__init__()
        self.tokens = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), LowRank(nn.Linear(dim, dim))) for _ in range(4))
        self.lm_head = nn.Linear(dim, vocab)

    def forward(self, ids):
        h = self.tokens(ids)
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=True)
        return self.lm_head(h)

def main(loader):
    model = Decoder()
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "lora_" in name or name.startswith("lm_head")
    for ids in loader:
        logits = model(ids[:, :-1])
        nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).backward()
""",
        (
            ('"lora_" in name', '"tokens" in name'),
            ('"lora_" in name or', ""),
            ('or name.startswith("lm_head")', 'or name.startswith("tokens")'),
            ("h = self.tokens(ids)", "h = self.tokens(ids).requires_grad_()"),
        ),
    ),
    "a list that the checkpoint hands in": (
        "CKPT113",
        """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class GatedLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.value, self.gate = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x, aux):
        gate = self.gate(x).sigmoid()
        aux.append(gate.mean())
        return self.value(x) * gate

class Network(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.first = nn.Linear(8, dim)
        self.layers = nn.ModuleList([GatedLayer(dim) for _ in range(3)])

    def forward(self, x):
        aux = []
        x = self.first(x)
        for layer in self.layers:
            x = checkpoint(layer, x, aux, use_reentrant=True)
        return x, aux

def train(loader):
    net = Network()
    for x, y in loader:
        out, penalties = net(x)
        loss = (out - y).square().mean() + 0.1 * sum(penalties)
        loss.backward()
""",
        (
            ("gate.mean()", "gate.mean().detach()"),
            ("gate.mean()", "gate.mean().item()"),
            ("+ 0.1 * sum(penalties)\n", "\n        print(sum(penalties))\n"),
            ("use_reentrant=True", "use_reentrant=False"),
            ("0.1 * sum(penalties)", "0.1 * len(penalties)"),
        ),
    ),
    "an object that the checkpoint hands in": (
        "CKPT113",
        """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Context:
    def __init__(self):
        self.penalty = 0.0

class GatedLayer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.value, self.gate = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x, context):
        gate = self.gate(x).sigmoid()
        context.penalty += gate.mean()
        return self.value(x) * gate

class Network(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.first = nn.Linear(8, dim)
        self.layers = nn.ModuleList([GatedLayer(dim) for _ in range(3)])
        self.last = nn.Linear(dim, 1)

    def forward(self, x):
        context = Context()
        x = self.first(x)
        for layer in self.layers:
            x = checkpoint(layer, x, context, use_reentrant=True)
        return self.last(x), context.penalty

def train(loader):
    net = Network()
    for x, y in loader:
        out, penalty = net(x)
        loss = (out - y).square().mean() + 0.1 * penalty
        loss.backward()
""",
        (
            ("+= gate.mean()", "+= gate.mean().item()"),
            ("+ 0.1 * penalty\n", "\n        print(penalty)\n"),
            ("use_reentrant=True", "use_reentrant=False"),
        ),
    ),
    "a dict that the checkpoint hands in": (
        "CKPT113",
        """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Router(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.value, self.gate = nn.Linear(dim, dim), nn.Linear(dim, 4)

    def forward(self, x, aux):
        aux["balance"] = aux["balance"] + self.gate(x).softmax(-1).mean(0).square().sum()
        return self.value(x)

class Network(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.first = nn.Linear(8, dim)
        self.layers = nn.ModuleList([Router(dim) for _ in range(3)])

    def forward(self, x, y):
        aux = {"balance": 0.0}
        x = self.first(x)
        for layer in self.layers:
            x = checkpoint(layer, x, aux, use_reentrant=True)
        return (x - y).square().mean() + 0.01 * aux["balance"]
""",
        (
            ('+ 0.01 * aux["balance"]', ""),
            ("use_reentrant=True", "use_reentrant=False"),
            ("checkpoint(layer, x, aux, use_reentrant=True)", "layer(x, aux)"),
        ),
    ),
    "a method that gathers what the parts hold": (
        "CKPT113",
        """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Stage(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.ReLU())
        self.side = nn.Conv2d(cout, 10, 1)
        self.side_logits = None

    def forward(self, x):
        x = self.conv(x)
        self.side_logits = self.side(x)
        return x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.stages = nn.ModuleDict({"low": Stage(8, 16), "mid": Stage(16, 32)})
        self.head = nn.Conv2d(32, 10, 1)

    def forward(self, x):
        x = self.stem(x)
        for stage in self.stages.values():
            x = checkpoint(stage, x, use_reentrant=True)
        return self.head(x)

    def side_outputs(self):
        return {name: stage.side_logits for name, stage in self.stages.items()}

def criterion(model, images, target):
    loss = nn.functional.cross_entropy(model(images), target)
    for logits in model.side_outputs().values():
        loss = loss + 0.4 * nn.functional.cross_entropy(logits, target)
    return loss

def train(loader):
    model = Net()
    for images, target in loader:
        criterion(model, images, target).backward()
""",
        (
            ("use_reentrant=True", "use_reentrant=False"),
            ("self.side(x)", "self.side(x).detach()"),
            ("        loss = loss + 0.4 * nn.functional.cross_entropy(logits, target)", "        print(logits.shape)"),
        ),
    ),
    "every block of a base class runs in a checkpoint": (
        "CKPT113",
        """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Checkpointed(nn.Module):
    def __call__(self, x):
        return checkpoint(super().__call__, x, use_reentrant=True)

class Plain(Checkpointed):
    def __init__(self, dim=16):
        super().__init__()
        self.up, self.down = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x):
        return self.down(self.up(x))

class Quantizer(Checkpointed):
    def __init__(self, dim=16):
        super().__init__()
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        x = self.proj(x)
        self.penalty = x.square().mean()
        return x

class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.plain, self.quantizer = nn.Linear(64, 16), Plain(), Quantizer()

    def forward(self, x):
        return self.quantizer(self.plain(self.encoder(x))).square().mean() + self.quantizer.penalty
""",
        (
            ("use_reentrant=True", "use_reentrant=False"),
            ("x.square().mean()\n", "x.detach().square().mean()\n"),
            ("class Quantizer(Checkpointed)", "class Quantizer(nn.Module)"),
        ),
    ),
    "generation in the loss of a Trainer": (
        "CKPT112",
        """
import torch
from transformers import AutoModelForSeq2SeqLM, Seq2SeqTrainer, Seq2SeqTrainingArguments

class RewardTrainer(Seq2SeqTrainer):
    def __init__(self, *args, scorer=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.scorer = scorer

    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        with torch.no_grad():
            texts = model.generate(inputs["input_ids"], max_new_tokens=32)
        outputs = model(**inputs)
        loss = outputs.loss * self.scorer(texts)
        return (loss, outputs) if return_outputs else loss

def main(data, scorer):
    model = AutoModelForSeq2SeqLM.from_pretrained("facebook/bart-base")
    args = Seq2SeqTrainingArguments("out", gradient_checkpointing=True)
    RewardTrainer(model, args, train_dataset=data, scorer=scorer).train()
""",
        (
            ("with torch.no_grad():", "if return_outputs:"),
            ("with torch.no_grad():", "if not model.training:"),
            ("        with torch", "        model.eval()\n        with torch"),
            ("max_new_tokens=32", "max_new_tokens=32, use_cache=False"),
            ("gradient_checkpointing=True", "gradient_checkpointing=False"),
            ("compute_loss", "prediction_step"),
        ),
    ),
    "generation in a step of Lightning": (
        "CKPT112",
        """
import pytorch_lightning as pl
from transformers import T5ForConditionalGeneration

class SelfCritical(pl.LightningModule):
    def __init__(self, name="t5-small", checkpointing=True):
        super().__init__()
        self.model = T5ForConditionalGeneration.from_pretrained(name)
        if checkpointing:
            self.model.gradient_checkpointing_enable()
        self.model.train()

    def training_step(self, batch, index):
        baseline = self.model.generate(batch["input_ids"], max_new_tokens=20)
        out = self.model(input_ids=batch["input_ids"], labels=batch["labels"])
        return out.loss * baseline.shape[1]

def main(loader, quick):
    module = SelfCritical(checkpointing=True)
    pl.Trainer(max_steps=100).fit(module, loader)
""",
        (
            ("checkpointing=True)\n", "checkpointing=False)\n"),
            ("checkpointing=True)\n", "checkpointing=quick)\n"),
            ("checkpointing=True)\n", "checkpointing=True)\n    module.model.eval()\n"),
            ("        self.model.train()\n", ""),
            ("def training_step", "def validation_step"),
        ),
    ),
    "layers wrapped wherever they are": (
        "CKPT108",
        """
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper

def wrap_all(model, kinds, **options):
    for name, module in list(model.named_modules()):
        for child_name, child in list(module.named_children()):
            if isinstance(child, kinds):
                setattr(module, child_name, checkpoint_wrapper(child, **options))
    return model

class Speech(nn.Module):
    def __init__(self, dim=80):
        super().__init__()
        self.proj = nn.Sequential(nn.Linear(dim, 256), nn.GELU(), nn.Linear(256, 256))
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(256, 4, batch_first=True) for _ in range(6)])

    def forward(self, x):
        x = self.proj(x)
        for layer in self.layers:
            x = layer(x)
        return x

def build():
    options = {"checkpoint_impl": CheckpointImpl.NO_REENTRANT, "preserve_rng_state": False}
    return wrap_all(Speech(), (nn.TransformerEncoderLayer,), **options)
""",
        (
            (", (nn.TransformerEncoderLayer,)", ", (nn.Sequential,)"),
            ("isinstance(child, kinds)", 'child_name == "proj"'),
            ("isinstance(child, kinds)", 'name == "proj"'),
            ('"preserve_rng_state": False', '"preserve_rng_state": True'),
            ("batch_first=True)", "dropout=0.0, batch_first=True)"),
        ),
    ),
    "layers wrapped by their path": (
        "CKPT108",
        """
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

class Speech(nn.Module):
    def __init__(self, dim=80):
        super().__init__()
        self.proj = nn.Sequential(nn.Linear(dim, 256), nn.GELU(), nn.Linear(256, 256))
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(256, 4, batch_first=True) for _ in range(6)])

    def forward(self, x):
        x = self.proj(x)
        for layer in self.layers:
            x = layer(x)
        return x

def build():
    model = Speech()
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.TransformerEncoderLayer):
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], checkpoint_wrapper(module, preserve_rng_state=False))
    return model
""",
        (
            ("isinstance(module, nn.TransformerEncoderLayer)", "isinstance(module, nn.Sequential)"),
            ("preserve_rng_state=False", "preserve_rng_state=True"),
        ),
    ),
    "a list that a partial hands in": (
        "CKPT113",
        """
from functools import partial
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.fc = nn.Linear(dim, dim)

    def forward(self, x, sink=None):
        x = self.fc(x)
        if sink is not None:
            sink.extend([x.pow(2).mean()])
        return x

class Net(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.stem = nn.Linear(4, dim)
        self.layers = nn.ModuleList(Layer(dim) for _ in range(3))

    def forward(self, x):
        sink = []
        x = self.stem(x)
        for layer in self.layers:
            x = checkpoint(partial(layer, sink=sink), x, use_reentrant=True)
        return x.mean() + torch.stack(sink).sum()
""",
        (
            ("if sink is not None", "if sink"),
            ("if sink is not None", "if sink is not None and not self.training"),
            ("x.pow(2).mean()", "x.detach().pow(2).mean()"),
            ("partial(layer, sink=sink)", "layer"),
        ),
    ),
    "a penalty that blocks sum up": (
        "CKPT113",
        """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.first, self.value, self.gate = nn.Linear(8, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def body(self, x):
        gate = self.gate(x).sigmoid()
        self.penalty += 0.1 * gate.mean()
        return self.value(x) * gate

    def forward(self, x):
        self.penalty = 0.0
        x = checkpoint(self.body, self.first(x), use_reentrant=True)
        return x.mean() + self.penalty
""",
        (
            ("0.1 * gate.mean()", "(x > 0).sum()"),
            ("0.1 * gate.mean()", "x.shape[0]"),
            ("0.1 * gate.mean()", "gate.mean().item()"),
            ("use_reentrant=True", "use_reentrant=False"),
            (" + self.penalty", ""),
        ),
    ),
    "norms in blocks that a loop wraps": (
        "CKPT106",
        """
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

class Block(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.norm, self.up, self.down = nn.BatchNorm1d(d), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(8, 16), nn.Linear(16, 2)
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

def wrap(model, wanted):
    for module in model.modules():
        for key, child in list(module.named_children()):
            if not isinstance(child, Block):
                continue
            setattr(module, key, checkpoint_wrapper(child))
    return model

def train(loader, wanted):
    net = wrap(Net(), wanted)
    for x, y in loader:
        nn.functional.cross_entropy(net(x), y).backward()
""",
        (
            ("not isinstance(child, Block)", "key not in wanted"),
            ("not isinstance(child, Block)", "not isinstance(child, nn.Linear)"),
            (
                "checkpoint_wrapper(child))\n",
                "checkpoint_wrapper(child))\n            setattr(child, 'norm', nn.Identity())\n",
            ),
            (
                "    net = wrap(Net(), wanted)\n",
                "    net = wrap(Net(), wanted)\n    for part in net.modules():\n"
                "        for name, inner in part.named_children():\n"
                "            if isinstance(inner, nn.BatchNorm1d):\n"
                "                setattr(part, name, nn.GroupNorm(1, 16))\n",
            ),
        ),
    ),
}


def codes(script):
    return [finding.code for finding in check_source(script)]


@pytest.mark.parametrize("name", SCRIPTS)
def test_found(name):
    code, script, _ = SCRIPTS[name]
    assert code in codes(script)


@pytest.mark.parametrize(
    ("name", "was", "becomes"), [(name, *change) for name, (_, _, changes) in SCRIPTS.items() for change in changes]
)
def test_right_twins_are_silent(name, was, becomes):
    code, script, _ = SCRIPTS[name]
    assert was in script
    assert code not in codes(script.replace(was, becomes))
