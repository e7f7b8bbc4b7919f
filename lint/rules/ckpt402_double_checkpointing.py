"""Allow checkpointing the same blocks twice where that costs a forward pass.

## What it does
Flags a block that is checkpointed by two means of which at least one is reentrant: `checkpoint_wrapper` twice, or
torch's wrappers together with the model's own `gradient_checkpointing_enable`. Also an `apply_activation_checkpointing`
whose `check_fn` accepts both a class of this file and a class of its parts.

## Why is this bad?
With a reentrant variant among them, each level runs the block once more: three forward passes a step instead of two. A
wrapped part inside a wrapped block is recomputed once for itself and once for the block. Two non-reentrant checkpoints
around the very same block cost nothing and are not reported.

## Bad
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper

def wrap(block):
    inner = checkpoint_wrapper(block)
    return checkpoint_wrapper(inner, checkpoint_impl=CheckpointImpl.REENTRANT)  # error
```
```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

class Mlp(nn.Module):
    def forward(self, x):
        return x

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = Mlp()

    def forward(self, x):
        return x + self.mlp(x)

def wrap(model):
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, (Block, Mlp)))  # error
```

## Good
```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from transformers import AutoModelForCausalLM

class Encoder(nn.Module):
    def forward(self, x):
        return x

class Decoder(nn.Module):
    def forward(self, x):
        return x

def wrap(model, block):
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, (Encoder, Decoder)))
    return checkpoint_wrapper(checkpoint_wrapper(block))

def both_non_reentrant(name, is_layer):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    apply_activation_checkpointing(model, check_fn=is_layer)
```

## Evidence
```python
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper

def runs(*implementations, part=False):
    count = 0
    block = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 8))

    def seen(module, args):
        nonlocal count
        count += 1

    block[0].register_forward_pre_hook(seen)
    if part:
        block[0] = checkpoint_wrapper(block[0])
    for implementation in implementations:
        block = checkpoint_wrapper(block, checkpoint_impl=implementation)
    block(torch.ones(2, 8, requires_grad=True)).sum().backward()
    return count

REENTRANT, OTHER = CheckpointImpl.REENTRANT, CheckpointImpl.NO_REENTRANT
assert runs(OTHER) == runs(REENTRANT) == runs(OTHER, OTHER) == 2
assert runs(OTHER, REENTRANT) == runs(REENTRANT, REENTRANT) == 3
assert runs(OTHER, part=True) == 3
```

## References
torch 2.13 `torch/utils/checkpoint.py` (early stop ends the nested recomputation of the same region).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Class, Result
from ..finding import Severity
from ..model.events import ApplyCheckpointing, CheckpointWrap, HfEnable, WrapperCheckpointing
from ..model.names import canonical
from ..model.region import classes_checked
from ..model.report import Remark, Report
from ..model.sharding import root
from ..model.variant import hf_kwargs_reentrant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT402", "double-checkpointing", Severity.WARNING
TRIGGERS = ("checkpoint_wrapper", "apply_activation_checkpointing")
_WRAPPER = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.checkpoint_wrapper"


def check(run: Run) -> Iterator[Report]:
    """Report blocks that run three times a step."""
    for outer in run.of(CheckpointWrap):
        inner = _wrapper_around(outer.module)
        if inner is not None and (outer.reentrant or inner.reentrant):
            yield _report(outer, Remark(inner.node, "the block is checkpointed here already"))
    for event in run.of(WrapperCheckpointing):
        for enable in run.of(HfEnable):
            variants = event.reentrant, hf_kwargs_reentrant(enable.kwargs, default=False)
            together = root(enable.model) is root(event.module) and not enable.place.excludes(event.place)
            if together and None not in variants and any(variants):
                yield _report(event, Remark(enable.node, "the model checkpoints its layers itself"))
    for apply in run.of(ApplyCheckpointing):
        accepted = [cls for cls in classes_checked(apply.check, run.bodies) if isinstance(cls, Class)]
        if (part := _part_of_another(run, accepted)) is not None:
            yield _report(apply, Remark(part.node, "this class is accepted, and so is one that contains it"))


def _wrapper_around(module: Value) -> CheckpointWrap | None:
    if isinstance(module, Result) and canonical(module.call.name) == _WRAPPER:
        return CheckpointWrap(module.call)
    return None


def _part_of_another(run: Run, accepted: list[Class]) -> Class | None:
    """The accepted class whose objects run inside those of another accepted class."""
    for whole in accepted:
        inside = run.bodies.of(whole.instance).modules
        for part in accepted:
            if part is not whole and any(getattr(module, "cls", None) is part for module in inside):
                return part
    return None


def _report(event: WrapperCheckpointing, note: Remark) -> Report:
    return Report(
        event.node,
        "the same block is checkpointed twice, so it runs three times a step; keep one of the two",
        notes=(note,),
    )
