"""A checkpointing flag that is set on a finished model, wherever the program does it."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch.nn as nn
from accelerate import Accelerator
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM
"""

WRONG = {
    "helper param called": """
def enable_ckpt(model):
    model.config.gradient_checkpointing = True
    model.config.use_cache = False
def main(loader, opt):
    accelerator = Accelerator()
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    enable_ckpt(model)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    model.train()
    for b in loader:
        accelerator.backward(model(**b).loss)
""",
    "helper flag attr": """
def setup(model):
    model.gradient_checkpointing = True
    return model
def main(loader, opt):
    accelerator = Accelerator()
    model = setup(AutoModelForCausalLM.from_pretrained("gpt2"))
    model, opt, loader = accelerator.prepare(model, opt, loader)
    for b in loader:
        accelerator.backward(model(**b).loss)
""",
    "helper loader": """
def load(name, ckpt):
    model = AutoModelForCausalLM.from_pretrained(name)
    if ckpt:
        model.config.gradient_checkpointing = True
    return model
def main(opt, loader):
    model = load("gpt2", True)
    for b in loader:
        model(**b).loss.backward()
""",
    "helper not called": """
from transformers import AutoModelForCausalLM, PreTrainedModel
def enable(model: PreTrainedModel):
    model.config.gradient_checkpointing = True
""",
    "config var after": """
model = AutoModelForCausalLM.from_pretrained("gpt2")
config = model.config
config.gradient_checkpointing = True
config.use_cache = False
""",
    "setattr config": """
model = AutoModelForCausalLM.from_pretrained("gpt2")
setattr(model.config, "gradient_checkpointing", True)
""",
    "for module flag": """
def enable(model):
    for module in model.modules():
        if hasattr(module, "gradient_checkpointing"):
            module.gradient_checkpointing = True
model = AutoModelForCausalLM.from_pretrained("gpt2")
enable(model)
""",
    "prepared first": """
accelerator = Accelerator()
model = accelerator.prepare(AutoModelForCausalLM.from_pretrained("gpt2"))
model.config.gradient_checkpointing = True
""",
    "unwrap flag": """
accelerator = Accelerator()
model = accelerator.prepare(AutoModelForCausalLM.from_pretrained("gpt2"))
accelerator.unwrap_model(model).gradient_checkpointing = True
""",
    "self model": """
class T:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
        self._setup()
        self.acc = Accelerator()
        self.model = self.acc.prepare(self.model)
    def _setup(self):
        self.model.config.gradient_checkpointing = True
""",
    "method of class alone": """
class T:
    def __init__(self, name):
        self.model = AutoModelForCausalLM.from_pretrained(name)
    def enable_memory_savings(self):
        self.model.config.gradient_checkpointing = True
        self.model.config.use_cache = False
""",
    "args flag": """
def main(args):
    model = AutoModelForCausalLM.from_pretrained(args.m)
    if args.gradient_checkpointing:
        model.config.gradient_checkpointing = True
    model.train()
""",
    "peft flag": """
from peft import LoraConfig, get_peft_model
def main(args):
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(args.m), LoraConfig())
    model.base_model.model.config.gradient_checkpointing = True
""",
    "layers loop": """
from transformers import LlamaForCausalLM
model = LlamaForCausalLM.from_pretrained("gpt2")
for layer in model.model.layers:
    layer.gradient_checkpointing = True
""",
    "named modules loop": """
model = AutoModelForCausalLM.from_pretrained("gpt2")
for name, module in model.named_modules():
    if hasattr(module, "gradient_checkpointing"):
        module.gradient_checkpointing = True
""",
}

RIGHT = {
    "args value": """
def main(args):
    model = AutoModelForCausalLM.from_pretrained(args.m)
    model.config.gradient_checkpointing = args.gradient_checkpointing
    model.train()
""",
    "enabled elsewhere trainer": """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
def enable(model):
    model.config.gradient_checkpointing = True
def main():
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    enable(model)
    Trainer(model, TrainingArguments("o", gradient_checkpointing=True)).train()
""",
    "helper on config": """
from transformers import AutoConfig, AutoModelForCausalLM
def tweak(config):
    config.gradient_checkpointing = True
    return config
def main():
    config = tweak(AutoConfig.from_pretrained("gpt2"))
    return AutoModelForCausalLM.from_pretrained("gpt2", config=config)
""",
    "helper on own": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Linear(3, 3)
        self.gradient_checkpointing = False
    def forward(self, x):
        if self.gradient_checkpointing:
            return checkpoint(self.block, x, use_reentrant=False)
        return self.block(x)
def enable(model):
    model.gradient_checkpointing = True
def main():
    net = Net()
    enable(net)
    return net
""",
    "helper param unknown": """
def enable(model):
    model.gradient_checkpointing = True
""",
    "diffusers model": """
from diffusers import UNet2DConditionModel
def enable(model):
    model.gradient_checkpointing = True
unet = UNet2DConditionModel.from_pretrained("x")
enable(unet)
""",
    "config used later": """
from transformers import AutoModelForCausalLM, AutoConfig
def main():
    cfg = AutoConfig.from_pretrained("gpt2")
    cfg.gradient_checkpointing = True
    model = AutoModelForCausalLM.from_config(cfg)
    return model
""",
    "flag false": """
def no_ckpt(model):
    model.config.gradient_checkpointing = False
m = AutoModelForCausalLM.from_pretrained("gpt2")
no_ckpt(m)
""",
    "two models helper": """
class Net(nn.Module):
    def __init__(self, lm):
        super().__init__()
        self.lm = lm
        self.gradient_checkpointing = False
    def forward(self, x):
        if self.gradient_checkpointing:
            return checkpoint(self.lm, x, use_reentrant=False)
        return self.lm(x)
def enable(model):
    model.gradient_checkpointing = True
def main():
    net = Net(AutoModelForCausalLM.from_pretrained("gpt2"))
    enable(net)
    return net
""",
    "by hand func": """
from functools import partial
def enable(model):
    for m in model.modules():
        if hasattr(m, "gradient_checkpointing"):
            m.gradient_checkpointing = True
            m._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)
model = AutoModelForCausalLM.from_pretrained("gpt2")
enable(model)
""",
    "kwargs from pretrained config": """
model = AutoModelForCausalLM.from_pretrained("gpt2")
cfg = model.config
cfg.gradient_checkpointing = True
other = AutoModelForCausalLM.from_config(cfg)
""",
    "own modules loop": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
        self.gradient_checkpointing = False
    def forward(self, x):
        return checkpoint(self.a, x, use_reentrant=False) if self.gradient_checkpointing else self.a(x)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
    def forward(self, x):
        for b in self.blocks: x = b(x)
        return x
net = Net()
for m in net.modules():
    if hasattr(m, "gradient_checkpointing"):
        m.gradient_checkpointing = True
""",
    "unknown train fn": """
from mine import train
def setup(model):
    model.gradient_checkpointing = True
    return model
model = setup(AutoModelForCausalLM.from_pretrained("gpt2"))
train(model)
""",
    "own class in modules": """
class Adapter(nn.Module):
    gradient_checkpointing = False
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False) if self.gradient_checkpointing else self.inner(x)
model = AutoModelForCausalLM.from_pretrained("gpt2")
for m in model.modules():
    if isinstance(m, Adapter):
        m.gradient_checkpointing = True
""",
}


def codes(case: str) -> set[str]:
    return {finding.code for finding in check_source(HEAD + case, "train.py")}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_mistake_is_found(case):
    assert "CKPT205" in codes(case)


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_its_right_neighbour_is_not(case):
    assert "CKPT205" not in codes(case)
