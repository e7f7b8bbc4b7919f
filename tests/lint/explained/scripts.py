"""Small training scripts in the spellings of users: what each says of activation checkpointing is what a run does."""

from __future__ import annotations

_LOAD = "import torch\nfrom transformers import AutoModelForCausalLM\nmodel = AutoModelForCausalLM.from_pretrained('tiny')\n"
_STEP = "ids = torch.arange(8).view(1, 8)\nmodel(input_ids=ids, labels=ids).loss.backward()\n"
_TRAINER = """
from transformers import Trainer, TrainingArguments
data = [{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}] * 2
"""
_PEFT = "from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training\n"
_LORA = "model = get_peft_model(model, LoraConfig(target_modules=['q_proj']))\n"
_NET = """
import functools
import torch
import torch.nn as nn
import torch.utils.checkpoint as cp
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl, apply_activation_checkpointing, checkpoint_wrapper,
)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
    def forward(self, x, scale=1.0):
        return torch.relu(self.linear(x)) * scale
"""
_USE = """
net = Net().train()
net(torch.randn(2, 4, requires_grad=True)).sum().backward()
"""
_STACK = """
class Net(nn.Module):
    def __init__(self, use_checkpoint=False):
        super().__init__()
        self.use_checkpoint = use_checkpoint
        self.blocks = nn.ModuleList([Block() for _ in range(4)])
"""


def _trained(args: str, before: str = "") -> str:
    return f"{_LOAD}{_TRAINER}{before}args = TrainingArguments('out', report_to=[], max_steps=1, use_cpu=True{args})\n"


_TRAIN = "Trainer(model=model, args=args, train_dataset=data).train()\n"

SCRIPTS: dict[str, str] = {
    "enabled for a loop": f"{_LOAD}model.train()\nmodel.gradient_checkpointing_enable()\n{_STEP}",
    "enabled reentrant": _LOAD
    + "model.train()\nmodel.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': True})\n"
    + f"model.enable_input_require_grads()\n{_STEP}",
    "enabled by a dict with a name": f"{_LOAD}model.train()\nhow = dict(use_reentrant=False)\n"
    f"model.gradient_checkpointing_enable(how)\n{_STEP}",
    "never enabled": f"{_LOAD}model.train()\n{_STEP}",
    "enabled and disabled": f"{_LOAD}model.train()\nmodel.gradient_checkpointing_enable()\n"
    f"model.gradient_checkpointing_disable()\n{_STEP}",
    "enabled in eval mode": f"{_LOAD}model.gradient_checkpointing_enable()\n{_STEP}",
    "enabled when a constant says so": f"GC = False\n{_LOAD}model.train()\nif GC:\n    model.gradient_checkpointing_enable()\n{_STEP}",
    "a helper enables it": _LOAD
    + "def set_up(model, memory_efficient=True):\n    if memory_efficient:\n        model.gradient_checkpointing_enable()\n"
    + f"    return model.train()\nmodel = set_up(model)\n{_STEP}",
    "a class holds the model": "import torch\nfrom transformers import AutoModelForCausalLM\nclass Job:\n"
    "    def __init__(self):\n        self.model = AutoModelForCausalLM.from_pretrained('tiny')\n"
    "        self.model.gradient_checkpointing_enable({'use_reentrant': False})\n"
    "    def run(self):\n        self.model.train()\n        ids = torch.arange(8).view(1, 8)\n"
    "        self.model(input_ids=ids, labels=ids).loss.backward()\nJob().run()\n",
    "enabled with a flag": f"{_LOAD}model.gradient_checkpointing_enable(True)\n{_STEP}",
    "enabled with the keyword of torch": f"{_LOAD}model.train()\n"
    f"model.gradient_checkpointing_enable(use_reentrant=False)\n{_STEP}",
    "enabled by the name of diffusers": f"{_LOAD}model.enable_gradient_checkpointing()\n{_STEP}",
    "a flag of the configuration": "import torch\nfrom transformers import AutoModelForCausalLM\n"
    f"model = AutoModelForCausalLM.from_pretrained('tiny', gradient_checkpointing=True)\n{_STEP}",
    "the Trainer": _trained(", gradient_checkpointing=True") + _TRAIN,
    "the Trainer, reentrant": _trained(
        ", gradient_checkpointing=True, gradient_checkpointing_kwargs={'use_reentrant': True}"
    )
    + _TRAIN,
    "the Trainer's arguments as a dict": _trained(
        ", **options",
        "options = {'gradient_checkpointing': True, 'gradient_checkpointing_kwargs': {'use_reentrant': False}}\n",
    )
    + _TRAIN,
    "the Trainer leaves what is on": _trained("", "model.gradient_checkpointing_enable({'use_reentrant': False})\n")
    + _TRAIN,
    "the Trainer does not checkpoint": _trained("") + _TRAIN,
    "an old name is written too late": _trained("") + "args.gradient_checkpointing = True\n" + _TRAIN,
    "a subclass of the Trainer": _trained(", gradient_checkpointing=True")
    + "class Mine(Trainer):\n    def compute_loss(self, model, inputs, **more):\n"
    + "        return super().compute_loss(model, inputs, **more)\n"
    + _TRAIN.replace("Trainer(", "Mine("),
    "an adapter": f"{_LOAD}{_PEFT}model.train()\nmodel.gradient_checkpointing_enable()\n{_LORA}"
    f"model.enable_input_require_grads()\n{_STEP}",
    "enabled on an adapter": f"{_LOAD}{_PEFT}{_LORA}model.train()\nmodel.gradient_checkpointing_enable()\n{_STEP}",
    "k-bit preparation of a model that is not quantized": f"{_LOAD}{_PEFT}model = prepare_model_for_kbit_training(model)\n"
    f"{_LORA}model.train()\n{_STEP}",
    "a model that accelerate prepares by itself": _LOAD
    + "from accelerate import Accelerator\nmodel.gradient_checkpointing_enable()\n"
    + f"model = Accelerator(cpu=True).prepare_model(model)\nmodel.train()\n{_STEP}",
    "k-bit preparation of a model that checkpoints": f"{_LOAD}{_PEFT}model.gradient_checkpointing_enable()\n"
    f"model = prepare_model_for_kbit_training(model)\n{_LORA}model.train()\n{_STEP}",
    "an adapter under the Trainer": _trained(", gradient_checkpointing=True", _PEFT + _LORA) + _TRAIN,
    "torch's function": _NET
    + _STACK
    + "    def forward(self, x):\n        for block in self.blocks:\n            x = checkpoint(block, x, use_reentrant=False)\n        return x\n"
    + _USE,
    "torch's default": _NET
    + _STACK
    + "    def forward(self, x):\n        for block in self.blocks:\n            x = cp.checkpoint(block, x)\n        return x\n"
    + _USE,
    "every second block": _NET
    + _STACK
    + "    def forward(self, x):\n        for i, block in enumerate(self.blocks):\n            if i % 2 == 0:\n"
    + "                x = checkpoint(block, x, use_reentrant=False)\n            else:\n                x = block(x)\n        return x\n"
    + _USE,
    "a switch that is off": _NET
    + _STACK
    + "    def forward(self, x):\n        for block in self.blocks:\n            if self.use_checkpoint and self.training:\n"
    + "                x = checkpoint(block, x, use_reentrant=False)\n            else:\n                x = block(x)\n        return x\n"
    + _USE,
    "a switch that is on": _NET
    + _STACK
    + "    def forward(self, x):\n        for block in self.blocks:\n            if self.use_checkpoint and self.training:\n"
    + "                x = checkpoint(block, x, use_reentrant=False)\n            else:\n                x = block(x)\n        return x\n"
    + _USE.replace("Net()", "Net(use_checkpoint=True)"),
    "a closure": _NET
    + _STACK
    + "    def forward(self, x):\n        for block in self.blocks:\n            def run(*inputs, block=block):\n"
    + "                return block(*inputs)\n            x = torch.utils.checkpoint.checkpoint(run, x, use_reentrant=True)\n        return x\n"
    + _USE,
    "a partial": _NET
    + "ckpt = functools.partial(checkpoint, use_reentrant=False)\n"
    + _STACK
    + "    def forward(self, x):\n        for block in self.blocks:\n            x = ckpt(block, x)\n        return x\n"
    + _USE,
    "options of the call": _NET
    + "OPTIONS = {'use_reentrant': False, 'preserve_rng_state': False}\n"
    + _STACK
    + "    def forward(self, x):\n        for block in self.blocks:\n            x = checkpoint(block, x, **OPTIONS)\n        return x\n"
    + _USE,
    "a helper of one's own": _NET
    + "def run(block, x, save):\n    return checkpoint(block, x, use_reentrant=False) if save else block(x)\n"
    + _STACK
    + "    def forward(self, x):\n        for block in self.blocks:\n            x = run(block, x, save=True)\n        return x\n"
    + _USE,
    "segments of a Sequential": _NET
    + "net = nn.Sequential(*[Block() for _ in range(4)])\nx = torch.randn(2, 4, requires_grad=True)\n"
    + "checkpoint_sequential(net, 2, x, use_reentrant=False).sum().backward()\n",
    "too many segments": _NET
    + "net = nn.Sequential(Block(), Block())\nx = torch.randn(2, 4, requires_grad=True)\n"
    + "checkpoint_sequential(net, 4, x, use_reentrant=False).sum().backward()\n",
    "a keyword under the reentrant variant": _NET
    + _STACK
    + "    def forward(self, x):\n        for block in self.blocks:\n            x = checkpoint(block, x, scale=2.0, use_reentrant=True)\n        return x\n"
    + _USE,
    "wrapped blocks": _NET
    + "net = nn.Sequential(checkpoint_wrapper(Block()), Block())\nnet(torch.randn(2, 4, requires_grad=True)).sum().backward()\n",
    "wrapped reentrant": _NET
    + "net = nn.Sequential(checkpoint_wrapper(Block(), CheckpointImpl.REENTRANT))\n"
    + "net(torch.randn(2, 4, requires_grad=True)).sum().backward()\n",
    "applied to a model": _NET
    + "net = nn.Sequential(Block(), Block())\n"
    + "apply_activation_checkpointing(net, check_fn=lambda module: isinstance(module, Block))\n"
    + "net(torch.randn(2, 4, requires_grad=True)).sum().backward()\n",
}
