"""Mistakes in classes that hold the model they train: engines, runners, loops, with helpers that hand things on."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

WRAPPING = "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing"
ATTENTION = """
import contextlib
import functools
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.q = nn.Linear(d, d)

    def forward(self, x):
        q = self.q(x).unsqueeze(1)
        return nn.functional.scaled_dot_product_attention(q, q, q).squeeze(1)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(32) for _ in range(4)])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x
"""
#: By what is particular: the rule, a script, and what makes it right, each by itself.
CASES = {
    "kwargs written to the arguments of trl": (
        "CKPT206",
        """
from trl import RLOOConfig, RLOOTrainer

class Run:
    def __init__(self):
        self.config = RLOOConfig("out")
        self.config.gradient_checkpointing = True
        self.config.gradient_checkpointing_kwargs = {"use_reentrant": False, "every_n_layers": 2}

    def train(self, rows, reward):
        RLOOTrainer("base", reward_funcs=reward, args=self.config, train_dataset=rows).train()
""",
        (
            (', "every_n_layers": 2}', "}"),
            ("gradient_checkpointing = True", "gradient_checkpointing = False"),
            ("import RLOOConfig,", "import SFTConfig as RLOOConfig,"),
            (
                "\n    def train",
                '\n        self.config.gradient_checkpointing_kwargs.pop("every_n_layers")\n\n    def train',
            ),
            ("\n    def train", "\n        self.config.gradient_checkpointing_kwargs = None\n\n    def train"),
        ),
    ),
    "a type compared with a list": (
        "CKPT208",
        f"""
from torch import nn
{WRAPPING}

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.l = nn.Linear(d, d)

class Fit:
    def __init__(self, model, layers):
        self.model = model
        self.layers = layers

        def should(module):
            return type(module) == self.layers

        apply_activation_checkpointing(self.model, check_fn=should)

def main():
    return Fit(nn.Sequential(Block(4), Block(4)), [Block])
""",
        ((" == self.layers", " in self.layers"), ("[Block])", "Block)"), ("[Block])", "given)")),
    ),
    "a name that no layer of the family has": (
        "CKPT208",
        f"""
{WRAPPING}
from transformers import GPT2LMHeadModel, GPT2Config

def policy(module, names=("GPT2Layer",)):
    return any(type(module).__name__ == name for name in names)

WRAP = {{"check_fn": policy}}

class Engine:
    def __init__(self):
        self.model = GPT2LMHeadModel(GPT2Config())
        apply_activation_checkpointing(self.model, **WRAP)
""",
        (("GPT2Layer", "GPT2Block"), ("GPT2Layer", "GPT2MLP"), ('("GPT2Layer",)', '("GPT2Layer", "GPT2Block")')),
    ),
    "layers of another encoder and decoder": (
        "CKPT208",
        f"""
from functools import partial
{WRAPPING}
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import T5ForConditionalGeneration
from transformers.models.bart.modeling_bart import BartDecoderLayer, BartEncoderLayer
from transformers.models.t5.modeling_t5 import T5Block

def make_policy(*classes):
    return partial(transformer_auto_wrap_policy, transformer_layer_cls=set(classes))

class Seq2Seq:
    def __init__(self, name="t5-base"):
        self.net = T5ForConditionalGeneration.from_pretrained(name)
        self.policy = make_policy(BartEncoderLayer, BartDecoderLayer)

    def checkpoint(self):
        apply_activation_checkpointing(self.net, auto_wrap_policy=self.policy)

def main():
    Seq2Seq().checkpoint()
""",
        (
            ("(BartEncoderLayer, BartDecoderLayer)", "(BartEncoderLayer, T5Block)"),
            ("T5ForConditionalGeneration", "BartForConditionalGeneration"),
        ),
    ),
    "an error caught by the name of a tuple": (
        "CKPT214",
        """
from transformers import AutoModelForSeq2SeqLM

ERRORS = (TypeError, ValueError)

class Module:
    def __init__(self, name, reentrant=False):
        self.t5 = AutoModelForSeq2SeqLM.from_pretrained(name)
        self.reentrant = reentrant

    def configure_model(self):
        enable = self.t5.gradient_checkpointing_enable
        try:
            enable(use_reentrant=self.reentrant)
        except ERRORS:
            enable()
""",
        (
            ("(TypeError, ValueError)", "(AttributeError, ValueError)"),
            ("def configure_model(self)", "def configure_model(self, ERRORS)"),
            ("enable(use_reentrant=self.reentrant)", 'enable({"use_reentrant": self.reentrant})'),
        ),
    ),
    "a partial of the method of each": (
        "CKPT214",
        """
from functools import partial
from transformers import LlamaForCausalLM

class Loop:
    def __init__(self, config):
        self.policy, self.value = LlamaForCausalLM(config), LlamaForCausalLM(config)
        for net in (self.policy, self.value):
            turn_on = partial(net.gradient_checkpointing_enable, preserve_rng_state=False)
            try:
                turn_on()
            except:
                print("checkpointing is not supported")
""",
        (
            ("preserve_rng_state=False", 'gradient_checkpointing_kwargs={"preserve_rng_state": False}'),
            ("except:", "except AttributeError:"),
        ),
    ),
    "wrappers that a loop makes in a model that Fabric shards": (
        "CKPT302",
        """
import lightning as L
import torch
from lightning.fabric.strategies import FSDPStrategy
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, CheckpointImpl

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.f = nn.Linear(d, d)

    def forward(self, x):
        return x + self.f(x).tanh()

class Model(nn.Module):
    def __init__(self, d=32, n=8):
        super().__init__()
        layers = []
        for _ in range(n):
            layers.append(checkpoint_wrapper(Block(d), checkpoint_impl=CheckpointImpl.REENTRANT))
        self.layers = nn.Sequential(*layers)
        self.inp = nn.Linear(d, d)

    def forward(self, x):
        return self.layers(self.inp(x))

def main(loader):
    fabric = L.Fabric(devices=2, strategy=FSDPStrategy())
    fabric.launch()
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = fabric.setup(model, optimizer)
    for x in loader:
        fabric.backward(model(x).sum())
        optimizer.step()
""",
        (
            ("CheckpointImpl.REENTRANT", "CheckpointImpl.NO_REENTRANT"),
            ("FSDPStrategy()", "FSDPStrategy(auto_wrap_policy={Block})"),
            ("strategy=FSDPStrategy()", 'strategy="ddp"'),
            ("        for _ in range(n):\n            layers", "        if n:\n            layers"),
        ),
    ),
    "wrappers put into a model that is one unit": (
        "CKPT302",
        f"""
from functools import partial
from torch import nn
{WRAPPING}, checkpoint_wrapper, CheckpointImpl
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.f = nn.Linear(d, d)

    def forward(self, x):
        return x + self.f(x).tanh()

class Head(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.f = nn.Linear(d, 1)

    def forward(self, x):
        return self.f(x)

class Model(nn.Module):
    def __init__(self, d=32, n=8):
        super().__init__()
        self.layers = nn.ModuleList([Block(d) for _ in range(n)])
        self.head = Head(d)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

class Engine:
    def __init__(self, policy):
        self.wrapper = partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT)
        self.model = FSDP(Model())
        apply_activation_checkpointing(
            self.model, checkpoint_wrapper_fn=self.wrapper, check_fn=lambda m: isinstance(m, Block)
        )

    def train_step(self, x):
        self.model(x).sum().backward()
""",
        (
            ("CheckpointImpl.REENTRANT", "CheckpointImpl.NO_REENTRANT"),
            ("FSDP(Model())", "FSDP(Model(), auto_wrap_policy=policy)"),
            ("isinstance(m, Block)", "isinstance(m, Head)"),
            ("FSDP(Model())", "Model()"),
        ),
    ),
    "a loss that Lightning goes back from": (
        "CKPT311",
        """
import lightning as L
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoModelForCausalLM

class Finetuner(L.LightningModule):
    def __init__(self, name):
        super().__init__()
        self.lm = AutoModelForCausalLM.from_pretrained(name, attn_implementation="sdpa")
        self.lm.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.lm.train()

    def training_step(self, batch, i):
        with sdpa_kernel(backends=[SDPBackend.MATH]):
            out = self.lm(**batch)
        self.log("loss", out.loss)
        return out.loss

def main(loader):
    trainer = L.Trainer(max_epochs=1)
    trainer.fit(Finetuner("base"), loader)
""",
        (
            ("    trainer.fit(", "    with sdpa_kernel(SDPBackend.MATH):\n        trainer.fit("),
            ("[SDPBackend.MATH]", "[SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]"),
            ("return out.loss", "return None"),
            ('"use_reentrant": False', '"use_reentrant": True'),
            ("training_step", "validation_step"),
        ),
    ),
    "a decorator that enters the block": (
        "CKPT311",
        f"""{ATTENTION}
def with_math(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        with sdpa_kernel(SDPBackend.MATH):
            return function(*args, **kwargs)
    return inner

class Engine:
    def __init__(self):
        self.model = Model().cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    @with_math
    def compute_loss(self, x):
        return self.model(x).sum()

    def step(self, x):
        self.compute_loss(x).backward()
        self.optimizer.step()
""",
        (
            ("    def step", "    @with_math\n    def step"),
            ("SDPBackend.MATH)", "SDPBackend.FLASH_ATTENTION)"),
            ("    @with_math\n", ""),
        ),
    ),
    "a decorated forward": (
        "CKPT311",
        f"""{ATTENTION}
def with_kernel(kernel):
    def decorate(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            with sdpa_kernel(kernel):
                return function(*args, **kwargs)
        return inner
    return decorate

class Other(Model):
    @with_kernel(SDPBackend.MATH)
    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x

def fit(loader):
    model = Other().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for x in loader:
        model(x).sum().backward()
        optimizer.step()
""",
        (
            ("(SDPBackend.MATH)", "(SDPBackend.FLASH_ATTENTION)"),
            ("def fit", "@with_kernel(SDPBackend.MATH)\ndef fit"),
            ("(x).sum().backward()", "(x).sum()"),
        ),
    ),
    "a stack of contexts": (
        "CKPT311",
        f"""{ATTENTION}
class Runner:
    def __init__(self, math):
        self.math = math
        self.net = Model().cuda()
        self.opt = torch.optim.Adam(self.net.parameters())

    def forward_pass(self, x, y):
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.autocast("cuda", torch.bfloat16))
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            loss = nn.functional.mse_loss(self.net(x), y)
        return loss

    def train(self, loader):
        for x, y in loader:
            loss = self.forward_pass(x, y)
            loss.backward()
            self.opt.step()
""",
        (
            (
                "            stack.enter_context(sdpa",
                "            if self.math:\n                stack.enter_context(sdpa",
            ),
            ("            loss = nn", "        loss = nn"),
            ("loss.backward()", "with sdpa_kernel(SDPBackend.MATH):\n                loss.backward()"),
            (
                "            stack.enter_context(sdpa",
                "        with contextlib.ExitStack() as stack:\n            (sdpa",
            ),
        ),
    ),
    "parts frozen by their paths": (
        "CKPT405",
        """
from dataclasses import dataclass
import torch
from transformers import AutoModelForSequenceClassification

@dataclass
class Options:
    name: str = "base"
    freeze: tuple = ("bert.embeddings", "bert.encoder")

class Engine:
    def __init__(self, options):
        self.model = AutoModelForSequenceClassification.from_pretrained(options.name)
        for path in options.freeze:
            self.model.get_submodule(path).requires_grad_(False)
        self.model.gradient_checkpointing_enable()
        self.model.train()

def main():
    Engine(Options())
""",
        (
            ('("bert.embeddings", "bert.encoder")', '("bert.encoder", "bert.pooler")'),
            ('("bert.embeddings", "bert.encoder")', '("bert.embeddings", "bert.pooler")'),
            (
                "        self.model.train()",
                "        self.model.bert.encoder.layer[0].requires_grad_(True)\n        self.model.train()",
            ),
            (
                "            self.model.get_submodule",
                "            if options.name:\n                break\n            self.model.get_submodule",
            ),
            ("gradient_checkpointing_enable()", 'gradient_checkpointing_enable({"use_reentrant": True})'),
        ),
    ),
    "every layer of a list": (
        "CKPT405",
        """
from transformers import AutoModelForSequenceClassification

def probe(name, count):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    model.bert.embeddings.requires_grad_(False)
    for layer in model.bert.encoder.layer:
        for parameter in layer.parameters():
            parameter.requires_grad = False
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()
""",
        (
            ("encoder.layer:", "encoder.layer[count:]:"),
            ("encoder.layer:", "encoder.layer[-2:]:"),
            (
                "    for layer in",
                "    for layer in reversed(model.bert.encoder.layer[6:]):\n        layer.eval()\n    for layer in [*model.bert.encoder.layer][2:] or",
            ),
            ("        for parameter", "        if count:\n            break\n        for parameter"),
            ("        for parameter", "        if layer.training:\n            continue\n        for parameter"),
            ("model.bert.embeddings.req", "model.bert.pooler.req"),
            ("    model.gradient", "    model.bert.encoder.layer[3].requires_grad_(True)\n    model.gradient"),
        ),
    ),
    "a frozen encoder that Lightning trains a head on": (
        "CKPT405",
        """
import lightning as L
import torch
from torch import nn
from transformers import BertModel

class Tagger(L.LightningModule):
    def __init__(self, name="base", labels=9):
        super().__init__()
        self.encoder = BertModel.from_pretrained(name)
        self.encoder.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self.head = nn.Linear(768, labels)
        self._freeze()

    def _freeze(self):
        for name, parameter in self.encoder.named_parameters():
            parameter.requires_grad = False

    def training_step(self, batch, i):
        h = self.encoder(batch["ids"], batch["mask"]).last_hidden_state
        return nn.functional.cross_entropy(self.head(h).flatten(0, 1), batch["labels"].flatten())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.head.parameters(), lr=1e-3)

def main(loader):
    trainer = L.Trainer(max_epochs=3)
    trainer.fit(Tagger(), loader)
""",
        (
            (".last_hidden_state", ".last_hidden_state.detach()"),
            (
                "        self._freeze()\n",
                "        self.encoder.disable_input_require_grads()\n        self._freeze()\n",
            ),
            ("    trainer.fit(", "    trainer.validate("),
            ("parameter.requires_grad = False", 'parameter.requires_grad = "layer.0" in name'),
            ("        self._freeze()\n", ""),
        ),
    ),
    "a frozen encoder in a module in a module": (
        "CKPT405",
        """
import torch
from torch import nn
from transformers import RobertaModel

class Frozen(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.lm = RobertaModel.from_pretrained(name)
        list(map(lambda parameter: parameter.requires_grad_(False), self.lm.parameters()))
        self.lm.gradient_checkpointing_enable()

    def forward(self, batch):
        return self.lm(**batch)[0]

class Model(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.features, self.head = Frozen(name), nn.Linear(768, 2)

    def forward(self, batch):
        return self.head(self.features(batch)[:, 0])

class Fit:
    def __init__(self):
        self.model = Model("base")

    def train(self, loader):
        self.model.train()
        for batch, y in loader:
            nn.functional.cross_entropy(self.model(batch), y).backward()

Fit().train([])
""",
        (
            ("self.features(batch)[:, 0]", "self.features(batch)[:, 0].detach()"),
            ("        return self.lm(", "        with torch.no_grad():\n            return self.lm("),
            (".backward()", ""),
            ("requires_grad_(False)", "requires_grad_(True)"),
        ),
    ),
    "a Trainer that freezes its model when it is built": (
        "CKPT405",
        """
from transformers import AutoModelForSequenceClassification, TrainingArguments, Trainer

class ProbeTrainer(Trainer):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for n, p in self.model.named_parameters():
            p.requires_grad = n.startswith(("classifier", "score"))

OPTIONS = {"output_dir": "probe", "gradient_checkpointing": True, "bf16": True}

def main(rows, more):
    model = AutoModelForSequenceClassification.from_pretrained("distilbert-base-uncased")
    ProbeTrainer(model=model, args=TrainingArguments(**OPTIONS), train_dataset=rows).train()
""",
        (
            ('"gradient_checkpointing": True', '"gradient_checkpointing": False'),
            ('("classifier", "score")', '("classifier", "distilbert.transformer.layer.5", "distilbert.embeddings")'),
            ("        super()", "        kwargs = prepared(kwargs)\n        super()"),
            ("        for n, p", "        self.model = prepared(self.model)\n        for n, p"),
        ),
    ),
}
RIGHT = [(name, twin) for name, (_, _, twins) in CASES.items() for twin in range(len(twins))]


def codes(script):
    return [finding.code for finding in check_source(script)]


@pytest.mark.parametrize("name", CASES)
def test_found(name):
    code, script, _ = CASES[name]
    assert code in codes(script)


@pytest.mark.parametrize(("name", "twin"), RIGHT)
def test_the_same_without_the_cause_is_right(name, twin):
    code, script, twins = CASES[name]
    was, becomes = twins[twin]
    assert was in script
    assert code not in codes(script.replace(was, becomes))
