"""Optimizer steps in gradient hooks on a module that several reentrant checkpoints run.

## What it does
Flags a reentrant checkpoint, or a module that `checkpoint_wrapper` makes reentrant, that runs the same module several
times a step (a shared block) in a file whose `register_post_accumulate_grad_hook` changes the parameter: the "optimizer
in the backward pass". Modules that run once, hooks that only look, and the non-reentrant variant are fine.

## Why is this bad?
The reentrant variant runs a backward pass of its own for every segment, and each ends by accumulating the gradient of
the shared weights. The hook fires once a segment instead of once a step, so the optimizer takes several steps, each
with a part of the gradient.

## Bad
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        for _ in range(3):
            x = checkpoint(self.block, x, use_reentrant=True)  # error
        return x

def train(net, optimizers):
    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()
    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(step)
```

## Good
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, block, layers):
        super().__init__()
        self.block = block
        self.layers = layers

    def forward(self, x):
        for _ in range(3):
            x = checkpoint(self.block, x, use_reentrant=False)
        for layer in self.layers:
            x = checkpoint(layer, x.requires_grad_(), use_reentrant=True)
        return x

def train(net, optimizers):
    def step(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()
    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(step)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x):
        for _ in range(3):
            x = checkpoint(self.block, x, use_reentrant=True)
        return x

def watch(net):
    def norm(parameter):
        print(parameter.grad.norm())
    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(norm)

def add_up_in_fp32(net):
    # Each part of the gradient is added once.
    def add(parameter):
        parameter.main_grad.add_(parameter.grad)
    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(add)
```

## Fix safety
Unsafe: the optimizer takes one step where it took several.

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint

def train(reentrant, shared):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 4, bias=False) for _ in range(3)]
    layers = [layers[0]] * 3 if shared else layers
    steps = []
    def step(parameter):
        parameter.data.add_(parameter.grad, alpha=-0.1)
        parameter.grad = None
        steps.append(1)
    for layer in dict.fromkeys(layers):
        layer.weight.register_post_accumulate_grad_hook(step)
    x = torch.ones(2, 4, requires_grad=True)
    for layer in layers:
        x = torch.tanh(layer(x) if reentrant is None else checkpoint(layer, x, use_reentrant=reentrant))
    x.sum().backward()
    return len(steps), layers[0].weight.detach()

once, wanted = train(None, shared=True)
assert once == 1
assert train(False, shared=True)[0] == 1 and torch.allclose(train(False, shared=True)[1], wanted)
assert train(True, shared=True)[0] == 3 and not torch.allclose(train(True, shared=True)[1], wanted, rtol=1e-3)
assert train(True, shared=False)[0] == train(None, shared=False)[0] == 3
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`CheckpointFunction.backward` calls `torch.autograd.backward`); PyTorch tutorial
"How to save memory by fusing the optimizer step into the backward pass".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Attr, Element
from ..finding import Applicability, Severity
from ..model.events import Checkpoint, CheckpointWrap, GradientHook, TorchCheckpoint
from ..model.needs import together
from ..model.regions.reused_segments import is_called_again, is_reused
from ..model.report import Remark, Report, Rewrite, SetKeyword

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Call
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT135", "double-optimizer-hook-with-reentrant", Severity.ERROR
NEEDS = together(GradientHook, (TorchCheckpoint, CheckpointWrap))
_CHANGES = ("step", "add_", "sub_", "mul_", "copy_", "addcmul_", "addcdiv_", "lerp_")
_WHY = (
    "this module runs in several reentrant segments, and the hook that updates its parameters fires in each of them "
    "instead of once a step"
)


def check(run: Run) -> Iterator[Report]:
    """Report shared modules whose reentrant segments each step the optimizer."""
    hooks = [hook for hook in run.of(GradientHook) if _steps(run, hook)]
    for event in run.of(Checkpoint) if hooks else ():
        if run.runs_reentrant(event) and event.place.function is not None and is_reused(run, event):
            add = SetKeyword(event.node, "use_reentrant", "False")
            yield Report(
                event.node,
                f"{_WHY}; write `use_reentrant=False`",
                notes=(Remark(hooks[0].node, "this hook updates the parameter"),),
                fix=Rewrite(Applicability.UNSAFE, "Use the non-reentrant variant", (add,)),
            )
    for wrap in run.of(CheckpointWrap) if hooks else ():
        if run.runs_reentrant(wrap) and is_called_again(run, wrap):
            yield Report(
                wrap.node,
                f"{_WHY}; write `checkpoint_impl=CheckpointImpl.NO_REENTRANT`",
                notes=(Remark(hooks[0].node, "this hook updates the parameter"),),
            )


def _steps(run: Run, hook: GradientHook) -> bool:
    """Whether the hook, or what it calls, updates the parameter."""
    return any(_changes_weights(call) for call in run.bodies.of(hook.hook).calls)


def _changes_weights(call: Call) -> bool:
    """Whether ``call`` changes a parameter; a buffer beside it, which adds gradients up, may get them in parts."""
    beside = isinstance(call.receiver, Element) or (isinstance(call.receiver, Attr) and call.receiver.name != "data")
    return call.called == "step" or (call.called in _CHANGES and not beside)
