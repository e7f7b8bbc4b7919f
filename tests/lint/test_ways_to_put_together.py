"""Mistakes that show when values are put together: loops over settings, composed names, models that a Trainer keeps."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.api import check_paths

TRAINER = """
def main(data):
    model = AutoModelForSequenceClassification.from_pretrained("microsoft/deberta-v3-base")
    args = TrainingArguments("out", gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True})
    Own(model, args, train_dataset=data).train()
"""
LIBRARIES = """
import torch
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments
"""
STEP = "def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):"
FSDP = """
import os
from trl import DPOConfig
"""
ADAPTERS = """
from dataclasses import dataclass
from peft import IA3Config, LoraConfig, PrefixTuningConfig
from trl import SFTConfig, SFTTrainer

def make(method, budget):
    match method:
        case "lora":
            return LoraConfig(r=budget)
        case "ia3":
            return IA3Config()
        case "prefix":
            return PrefixTuningConfig(num_virtual_tokens=budget)
    raise ValueError(method)

def fit(method, budget):
    SFTTrainer(model="gpt2", args=SFTConfig(method), peft_config=make(method, budget)).train()
    return budget

@dataclass
class Plan:
    method: str
    budget: int = 0

"""
FUSED = """
import torch
from torch import nn

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors[0], ctx.saved_tensors[1]
        return grad * weight, (grad * x).flatten(0, -2).sum(0)

class Norm(nn.Module):
    def __init__(self, old):
        super().__init__()
        self.weight = old.weight

    def forward(self, x):
        return Scale.apply(x, self.weight)

def scaled(self, x):
    return Scale.apply(x, self.weight)

"""
READ = "ctx.saved_tensors[0], ctx.saved_tensors[1]"
BLOCKS = """
import contextlib
import torch
from torch import nn
from torch.func import functional_call, grad
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Linear(8, 8), nn.Linear(8, 8)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4))

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=REENTRANT)
        return self.head(x)

"""
REENTRANT, NOT = BLOCKS.replace("REENTRANT", "True"), BLOCKS.replace("REENTRANT", "False")
OF_ONE = """
def loss_of(parameters, row):
    return functional_call(net, parameters, (row[None],)).sum()

slopes = grad(loss_of)(dict(net.named_parameters()), torch.ones(8))
"""
#: By the rule, and by what is put together: a script, what makes the mistake in it, and what takes its place.
WAYS = {
    ("CKPT303", "composed names"): (
        f"""{FSDP}
SETTINGS = {{"VERSION": "2", "ACTIVATION_CHECKPOINTING": "true"}}
os.environ["ACCELERATE_USE_FSDP"] = "true"
for name, value in SETTINGS.items():
    os.environ[f"FSDP_{{name}}"] = value
config = DPOConfig("out")
""",
        '"ACTIVATION_CHECKPOINTING": "true"',
        '"ACTIVATION_CHECKPOINTING": "false"',
    ),
    ("CKPT303", "names in capitals"): (
        f"""{FSDP}
def set_up(**settings):
    os.environ["ACCELERATE_USE_FSDP"] = "true"
    for name, value in settings.items():
        os.environ["FSDP_" + name.upper()] = str(value).lower()
set_up(version=2, activation_checkpointing=True)
config = DPOConfig("out")
""",
        "activation_checkpointing=True",
        "activation_checkpointing=False",
    ),
    ("CKPT303", "lines of a text"): (
        f"""{FSDP}
VARIABLES = '''ACCELERATE_USE_FSDP=true
FSDP_ACTIVATION_CHECKPOINTING=true'''
for line in VARIABLES.splitlines():
    name, value = line.split("=")
    os.environ[name] = value
config = DPOConfig("out")
""",
        "CHECKPOINTING=true",
        "CHECKPOINTING=false",
    ),
    ("CKPT303", "merged"): (
        f"""{FSDP}
os.environ |= {{"ACCELERATE_USE_FSDP": "true", "FSDP_ACTIVATION_CHECKPOINTING": "true"}}
config = DPOConfig("out")
""",
        'DPOConfig("out")',
        'DPOConfig("out", gradient_checkpointing=False)',
    ),
    ("CKPT303", "settings merged"): (
        """
from transformers import TrainingArguments
sharding = {"version": 2}
sharding |= {"activation_checkpointing": True}
args = TrainingArguments("out", fsdp="full_shard", fsdp_config=sharding, gradient_checkpointing=True)
""",
        '"activation_checkpointing": True',
        '"activation_checkpointing": False',
    ),
    ("CKPT314", "tuples in a comprehension"): (
        f'{ADAPTERS}table = [fit(m, b) for m, b in [("lora", 8), ("lora", 32), ("ia3", 0), ("prefix", 20)]]\n',
        '("prefix", 20)',
        '("lora", 64)',
    ),
    ("CKPT314", "more runs than calls are followed"): (
        f"""{ADAPTERS}
for method, budget in [("lora", 4), ("lora", 8), ("lora", 16), ("lora", 32), ("ia3", 0), ("prefix", 20)]:
    fit(method, budget)
""",
        '("prefix", 20)',
        '("lora", 64)',
    ),
    ("CKPT314", "dataclasses"): (
        f'{ADAPTERS}for plan in (Plan("lora", 8), Plan("prefix", 20)):\n    fit(plan.method, plan.budget)\n',
        'Plan("prefix", 20)',
        'Plan("ia3")',
    ),
    ("CKPT314", "dicts"): (
        f"""{ADAPTERS}
for plan in [{{"method": "lora", "budget": 8}}, {{"method": "prefix", "budget": 20}}]:
    fit(**plan)
""",
        '"prefix"',
        '"lora"',
    ),
    ("CKPT305", "what a Trainer gives"): (
        f"""{LIBRARIES}
class Own(Trainer):
    {STEP}
        words = self.accelerator.unwrap_model(model).get_input_embeddings()(inputs.pop("input_ids"))
        clean = model(inputs_embeds=words, **inputs)
        if not model.training:
            return clean.loss
        (direction,) = torch.autograd.grad(clean.loss, words, retain_graph=True)
        return model(inputs_embeds=words + direction, **inputs).loss
{TRAINER}""",
        '"use_reentrant": True',
        '"use_reentrant": False',
    ),
    ("CKPT305", "what a Trainer keeps"): (
        f"""{LIBRARIES}
class Own(Trainer):
    {STEP}
        out = self.model(**inputs)
        grads = torch.autograd.grad(out.loss, list(self.model.parameters()), create_graph=True)
        return out.loss + sum(grad.norm() for grad in grads)
{TRAINER}""",
        "list(self.model.parameters())",
        "[self.model.classifier.weight]",
    ),
    ("CKPT305", "in a step"): (
        f"""{LIBRARIES}
class Own(Trainer):
    {STEP}
        out = self.model(**inputs)
        self.slope = torch.autograd.grad(out.loss, self.model.get_input_embeddings().weight, retain_graph=True)
        return out.loss
{TRAINER}""",
        "compute_loss",
        "log_slope",
    ),
    ("CKPT305", "where it trains"): (
        f"""{LIBRARIES}
class Own(Trainer):
    {STEP}
        out = model(**inputs)
        if model.training:
            self.slope = torch.autograd.grad(out.loss, model.get_input_embeddings().weight, retain_graph=True)
        return out.loss
{TRAINER}""",
        "if model.training",
        "if not model.training",
    ),
    ("CKPT305", "in the Trainer's mode"): (
        f"""{LIBRARIES}
class Own(Trainer):
    {STEP}
        model.train()
        out = model(**inputs)
        self.slope = torch.autograd.grad(out.loss, model.get_input_embeddings().weight, retain_graph=True)
        return out.loss
{TRAINER}""",
        "model.train()",
        "model.eval()",
    ),
    ("CKPT305", "the library's own loss"): (
        f"""{LIBRARIES}
class Own(Trainer):
    {STEP}
        loss, out = super().compute_loss(model, inputs, return_outputs=True)
        grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        return loss + sum(grad.norm() for grad in grads)
{TRAINER}""",
        "list(model.parameters())",
        "out.logits",
    ),
    ("CKPT305", "a mixin's helper"): (
        f"""{LIBRARIES}
class Penalty:
    {STEP}
        loss = self.cross_entropy(model, inputs)
        (grad,) = torch.autograd.grad(loss, model.get_input_embeddings().weight, create_graph=True)
        return loss + grad.norm()

    def cross_entropy(self, model, inputs):
        return torch.nn.functional.cross_entropy(model(**inputs).logits, inputs["labels"])

class Own(Penalty, Trainer):
    def __init__(self, *args, weight=1.0, **kwargs):
        super().__init__(*args, **kwargs)
{TRAINER}""",
        "gradient_checkpointing=True",
        "gradient_checkpointing=False",
    ),
    ("CKPT305", "a step of its own"): (
        f"""{LIBRARIES}
class Own(Trainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        model.train()
        loss = self.compute_loss(model, self._prepare_inputs(inputs))
        self.accelerator.backward(loss, create_graph=True)
        return loss.detach()
{TRAINER}""",
        "loss, create_graph=True",
        "loss",
    ),
    ("CKPT305", "prepared and unwrapped"): (
        f"""{NOT}
from accelerate import Accelerator
accelerator = Accelerator()
model, loader = accelerator.prepare(Net(), torch.load("rows.pt"))
net = accelerator.unwrap_model(model)
{OF_ONE}""",
        "checkpoint(block, x, use_reentrant=False)",
        "block(x)",
    ),
    ("CKPT305", "a decorator"): (
        f"""{NOT}
from torch.func import grad_and_value
net = nn.DataParallel(Net())

@grad_and_value
def energy(x):
    return net.module(x).sum()
""",
        "net.module(x)",
        "net.module.head(x)",
    ),
    ("CKPT305", "in front of the region"): (
        f"""{REENTRANT}
net = Net()
loss = net(torch.ones(2, 8)).sum()
slope = torch.autograd.grad(loss, net.stem.weight, create_graph=True)
""",
        "net.stem.weight",
        "net.head.weight",
    ),
    ("CKPT305", "what comes out of the region"): (
        f"""{REENTRANT}
def importance(x):
    scores = Net()(x)
    return torch.autograd.grad(scores.pow(2).sum(), x)
""",
        "pow(2).sum(), x)",
        "pow(2).sum(), scores)",
    ),
    ("CKPT305", "in train mode"): (
        """
import torch
from transformers import AutoModelForSequenceClassification
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased")
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
model.train()
for batch in []:
    words = model.get_input_embeddings()(batch.pop("input_ids"))
    loss = model(inputs_embeds=words, **batch).loss
    slope = torch.autograd.grad(loss, words)
""",
        "model.train()",
        "model.eval()",
    ),
    ("CKPT309", "a function that makes them"): (
        f"""{NOT}
KEPT = (torch.ops.aten.mm, torch.ops.aten.addmm.default)
def contexts():
    return create_selective_checkpoint_contexts(list(KEPT))
def run(block, x):
    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)
""",
        "torch.ops.aten.mm,",
        "torch.ops.aten.mm.default,",
    ),
    ("CKPT309", "functions of torch"): (
        f"""{NOT}
def run(block, x):
    return checkpoint(
        block, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts([torch.mm])
    )
""",
        "[torch.mm]",
        "[torch.ops.aten.mm.default]",
    ),
    ("CKPT311", "in the forward of a module"): (
        """
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, x):
        return F.scaled_dot_product_attention(*self.qkv(x).chunk(3, -1))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Attend() for _ in range(2))

    def forward(self, x):
        with sdpa_kernel([SDPBackend.MATH]):
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False)
        return x

def step(net, x):
    with torch.autograd.set_detect_anomaly(True):
        net(x).mean().backward()
""",
        "torch.autograd.set_detect_anomaly(True)",
        "sdpa_kernel([SDPBackend.MATH])",
    ),
    ("CKPT313", "a context manager"): (
        """
import contextlib
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

@contextlib.contextmanager
def named(name):
    try:
        yield
    except Exception as error:
        raise RuntimeError(name) from error

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)

    def forward(self, x):
        with named("block"):
            return torch.tanh(self.net(x))

def run(x):
    return checkpoint(Block(), x, use_reentrant=False)
""",
        "except Exception",
        "except ValueError",
    ),
    ("CKPT317", "parts of layers"): (
        f"""{FUSED}
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-3.2-1B")
for layer in model.model.layers:
    layer.input_layernorm = Norm(layer.input_layernorm)
model.gradient_checkpointing_enable({{"use_reentrant": False}})
""",
        READ,
        "ctx.saved_tensors",
    ),
    ("CKPT317", "modules by their class"): (
        f"""{FUSED}
from types import MethodType
from transformers import AutoModelForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm, Qwen2RotaryEmbedding
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
for name, module in model.named_modules():
    if isinstance(module, Qwen2RMSNorm):
        module.forward = MethodType(scaled, module)
model.gradient_checkpointing_enable({{"use_reentrant": False}})
""",
        "isinstance(module, Qwen2RMSNorm)",
        "isinstance(module, Qwen2RotaryEmbedding)",
    ),
    ("CKPT317", "a class of the library"): (
        f"""{FUSED}
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from transformers.models.llama import modeling_llama

modeling_llama.LlamaRMSNorm.forward = scaled
model = AutoModelForCausalLM.from_pretrained("TinyLlama/TinyLlama_v1.1")
args = TrainingArguments("out", gradient_checkpointing=True, gradient_checkpointing_kwargs={{"use_reentrant": False}})
Trainer(model, args).train()
""",
        '"TinyLlama/TinyLlama_v1.1"',
        '"Qwen/Qwen3-0.6B"',
    ),
    ("CKPT317", "a class put in its place"): (
        f"""{FUSED}
from transformers import AutoModelForCausalLM
import transformers.models.qwen3.modeling_qwen3 as qwen

class Fast(Norm):
    pass

qwen.Qwen3RMSNorm = Fast
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B")
model.gradient_checkpointing_enable({{"use_reentrant": False}})
""",
        '{"use_reentrant": False}',
        '{"use_reentrant": True}',
    ),
}


def found_in(folder, script):
    (folder / "train.py").write_text(script)
    return {found.code for found in check_paths([folder / "train.py"])}


@pytest.mark.parametrize(("code", "way"), WAYS)
def test_it_is_found(tmp_path, code, way):
    script, was, _ = WAYS[code, way]
    assert was in script
    assert code in found_in(tmp_path, script)


@pytest.mark.parametrize(("code", "way"), WAYS)
def test_the_same_without_the_cause_is_right(tmp_path, code, way):
    script, was, becomes = WAYS[code, way]
    assert code not in found_in(tmp_path, script.replace(was, becomes))


def test_a_module_that_patches_the_layers_is_read_with_the_script_that_trains_them(tmp_path):
    patch = "\ndef patch():\n    from transformers.models.llama import modeling_llama\n\n"
    (tmp_path / "kernels.py").write_text(f"{FUSED}{patch}    modeling_llama.LlamaRMSNorm.forward = scaled\n")
    (tmp_path / "train.py").write_text("""
from kernels import patch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

patch()
model = AutoModelForCausalLM.from_pretrained("TinyLlama/TinyLlama_v1.1")
args = TrainingArguments("out", gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False})
Trainer(model, args).train()
""")
    assert "CKPT317" in {found.code for found in check_paths([tmp_path])}
