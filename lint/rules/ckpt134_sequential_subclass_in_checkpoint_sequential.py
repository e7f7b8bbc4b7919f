"""`checkpoint_sequential` on a subclass of `nn.Sequential` whose own `forward` it does not call.

## What it does
Flags `checkpoint_sequential(model, ...)` when `model` is of a class of this file that derives from `nn.Sequential` and
has a `forward` that does more than run its children one after the other, unless that `forward` makes the call.

## Why is this bad?
`checkpoint_sequential` takes the children and runs them itself. What the `forward` adds, a residual, a scale, a
reshape, is left out: the output is another one, with and without gradients.

## Bad
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint_sequential

class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)

stack = Residual(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))

def forward(x):
    return checkpoint_sequential(stack, 2, x, use_reentrant=False)  # error
```

## Good
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)

class Stack(nn.Sequential):
    def __init__(self, width):
        super().__init__(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))

class Plain(nn.Sequential):
    def forward(self, x):
        for layer in self:
            x = layer(x)
        return x

class Logged(nn.Sequential):
    def forward(self, x):
        for layer in self:
            x = layer(x)
            print(x.shape)
        return x

def forward(x):
    x = checkpoint(Residual(nn.Linear(8, 8)), x, use_reentrant=False)
    x = checkpoint_sequential(Plain(nn.Linear(8, 8), nn.GELU()), 2, x, use_reentrant=False)
    x = checkpoint_sequential(Logged(nn.Linear(8, 8), nn.GELU()), 2, x, use_reentrant=False)
    return checkpoint_sequential(Stack(8), 2, x, use_reentrant=False)

class Switchable(nn.Sequential):
    checkpointing = False

    def forward(self, x):
        if self.checkpointing and self.training:
            return checkpoint_sequential(self, 2, x, use_reentrant=False)
        return super().forward(x)

def blocks(x):
    # The children keep their own forward.
    stages = nn.Sequential(Residual(nn.Linear(8, 8)), Residual(nn.Linear(8, 8)))
    return checkpoint_sequential(stages, 2, x, use_reentrant=False)
```

## Evidence
```python
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

class Residual(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)

stack = Residual(nn.Linear(4, 4), nn.Tanh())
x = torch.ones(2, 4, requires_grad=True)
for reentrant in (True, False):
    assert not torch.allclose(checkpoint_sequential(stack, 2, x, use_reentrant=reentrant), stack(x))
    assert torch.equal(checkpoint(stack, x, use_reentrant=reentrant), stack(x))
    outer = nn.Sequential(stack, Residual(nn.Linear(4, 4)))
    assert torch.equal(checkpoint_sequential(outer, 2, x, use_reentrant=reentrant), outer(x))
```

## References
torch 2.13 `torch/utils/checkpoint.py`, `checkpoint_sequential` (`functions = list(functions.children())`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import options
from ..finding import Severity
from ..model.calls.own_forward import own_forward
from ..model.events import CheckpointSequential
from ..model.report import Remark, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Function
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT134", "sequential-subclass-in-checkpoint-sequential", Severity.ERROR
NEEDS = ((CheckpointSequential, "Sequential"),)


def check(run: Run) -> Iterator[Report]:
    """Report subclasses of `nn.Sequential` whose `forward` is passed over."""
    for event in run.of(CheckpointSequential):
        forwards = [own_forward(option) for option in options(event.functions)]
        forward = forwards[0]
        if forward is not None and not any(found is None or _runs_in(run, event, found) for found in forwards):
            yield Report(
                event.node,
                "`checkpoint_sequential` runs the children of this module and passes over its own `forward`, so the "
                "output is another one; use `checkpoint(module, x, use_reentrant=False)`, or checkpoint inside it",
                notes=(Remark(forward.node, "this is not called"),),
            )


def _runs_in(run: Run, event: CheckpointSequential, forward: Function) -> bool:
    """Whether ``forward`` makes the call itself, there or in a method that it calls: then nothing passes over it."""
    function = event.place.function
    if function is not None and function.node is forward.node:
        return True
    return any(call.node in event.place.stack for call in run.bodies.calls_in(forward))
