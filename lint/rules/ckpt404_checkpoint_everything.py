"""`apply_activation_checkpointing` that wraps every module.

## What it does
Flags `apply_activation_checkpointing(model)` without `check_fn` and without `auto_wrap_policy`, and a `check_fn` or a
policy that says yes to every module: always, or because it asks for nothing but `isinstance(module, nn.Module)`. A
function or a loop that puts `checkpoint_wrapper` around every module by hand, and around those in it, counts as well.

## Why is this bad?
By default every submodule is wrapped, at every level. A layer inside a block inside a model is recomputed once for each
level above it (inner linear layers run three times and more), and nothing is saved beyond what wrapping the blocks
saves.

## Bad
```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

def wrap(model):
    apply_activation_checkpointing(model)  # error
    apply_activation_checkpointing(model, check_fn=lambda module: True)  # error
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, nn.Module))  # error
```
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

def wrap_all(module):
    for name, child in module.named_children():
        wrap_all(child)
        setattr(module, name, checkpoint_wrapper(child))  # error
```

## Good
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

class Block:
    pass

def wrap(model, options, policy):
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
    apply_activation_checkpointing(model, auto_wrap_policy=policy)
    apply_activation_checkpointing(model, **options)
```

## Evidence
```python
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.Linear(4, 4))

    def forward(self, x):
        return x + self.mlp(x)

def runs(**options):
    count = 0
    model = torch.nn.Sequential(Block(), Block())
    first = model[0].mlp[0]

    def seen(module, args):
        nonlocal count
        count += 1

    first.register_forward_pre_hook(seen)
    apply_activation_checkpointing(model, **options)
    model(torch.ones(2, 4, requires_grad=True)).sum().backward()
    return count

assert runs(check_fn=lambda module: isinstance(module, Block)) == 2
assert runs() >= 3
```

## References
torch 2.13 `torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py` (`check_fn=lambda _: True`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Function, Method, Value, truth
from ..finding import Severity
from ..model.events import ApplyCheckpointing, CheckpointWrap
from ..model.report import Report
from ..model.wrapping.every_module import accepts_every_module
from ..model.wrapping.wrapped_at_each_level import wraps_each_level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT404", "checkpoint-everything", Severity.WARNING
NEEDS = (ApplyCheckpointing, CheckpointWrap)
VERSIONS = {"torch": ">=1.13"}


def check(run: Run) -> Iterator[Report]:
    """Report wrapping without a choice."""
    for event in run.of(ApplyCheckpointing):
        if event.wraps_all or accepts_every_module(event.check) or _always(run, event.check):
            yield Report(
                event.node,
                "every module is wrapped, at every level, so inner layers are recomputed once for each level above "
                "them; pass a `check_fn` that accepts the model's blocks",
            )
    for wrap in run.of(CheckpointWrap):
        if wraps_each_level(run, wrap):
            yield Report(
                wrap.node,
                "every module is wrapped, at every level, so inner layers are recomputed once for each level above "
                "them; wrap the model's blocks alone",
            )


def _always(run: Run, check: Value) -> bool:
    """Whether each way through the function ends in what is true."""
    check = check.function if isinstance(check, Method) else check
    if not isinstance(check, Function):
        return False
    returned = run.program.returns.get(check.node, [])
    return bool(returned) and all(truth(found.value) is True for found in returned)
