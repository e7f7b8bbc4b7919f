"""`checkpoint_sequential` with more segments than modules, none at all, or arguments it does not take.

## What it does
Flags a literal number of segments that is 0 or larger than the number of modules in the list or `nn.Sequential` of this
file, an `nn.ModuleDict`, and keyword arguments other than `use_reentrant` and `preserve_rng_state`.

## Why is this bad?
Too many segments raise `ValueError: range() arg 3 must not be zero`, 0 raises a ZeroDivisionError. The modules are
taken by number, which raises a KeyError in an `nn.ModuleDict`. Nothing is passed on to the modules: a mask, or
`context_fn`, raises `ValueError: Unexpected keyword arguments`.

## Bad
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint_sequential

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

        self.named = nn.ModuleDict({f"stage{i}": nn.Linear(8, 8) for i in range(3)})

    def forward(self, x, mask):
        x = checkpoint_sequential(self.named, 2, x, use_reentrant=False)  # error
        x = checkpoint_sequential(list(self.named.values()), 4, x, use_reentrant=False)  # error
        x = checkpoint_sequential(self.stages, 4, x, use_reentrant=False)  # error
        x = checkpoint_sequential(self.stages, 2, x, use_reentrant=False, mask=mask)  # error
        return checkpoint_sequential([self.stages, self.stages], 0, x, use_reentrant=False)  # error
```
```python
from torch.utils.checkpoint import checkpoint_sequential

def forward(blocks, x):
    x = checkpoint_sequential(blocks, 2, use_reentrant=False)  # error
    return checkpoint_sequential(blocks, 2, x, input=x, use_reentrant=False)  # error
```

## Good
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint_sequential

class Net(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.stages = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.layers = nn.Sequential(*[nn.Linear(8, 8) for _ in range(depth)])
        self.named = nn.ModuleDict({f"stage{i}": nn.Linear(8, 8) for i in range(3)})
        self.grown = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        for _ in range(depth):
            self.grown.append(nn.Linear(8, 8))

    def forward(self, x, options, segments):
        x = checkpoint_sequential(self.stages, 3, x, use_reentrant=False)
        x = checkpoint_sequential(list(self.named.values()), 3, x, use_reentrant=False)
        x = checkpoint_sequential(self.stages, segments, x, use_reentrant=False, preserve_rng_state=True)
        x = checkpoint_sequential(self.layers, 8, x, use_reentrant=False)
        x = checkpoint_sequential(self.grown, 8, x, use_reentrant=False)
        return checkpoint_sequential(self.stages, 2, x, use_reentrant=False, **options)
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint_sequential

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
x = torch.ones(2, 4, requires_grad=True)

def raises(segments, **options):
    try:
        checkpoint_sequential(net, segments, x, use_reentrant=False, **options)
    except Exception as error:
        return type(error)
    return None

assert [raises(segments) for segments in (1, 2, 3)] == [None] * 3
assert raises(4) is ValueError
assert raises(0) is ZeroDivisionError
assert raises(2, mask=None) is ValueError
net = torch.nn.ModuleDict({"a": torch.nn.Linear(4, 4), "b": torch.nn.Linear(4, 4)})
assert raises(2) is KeyError
net = torch.nn.Sequential(*net.values())
assert raises(2, context_fn=lambda: None) is ValueError
assert raises(2, preserve_rng_state=False) is None
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`checkpoint_sequential`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.objects.containers import container_kind, length_of
from ..facts.values import Const, Result, equals, is_absent
from ..finding import Severity
from ..model.events import CheckpointSequential
from ..model.libraries.signatures import SIGNATURES, misfit
from ..model.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT310", "invalid-checkpoint-sequential-arguments", Severity.ERROR
NEEDS = (CheckpointSequential,)
RAISES = True
_TAKEN = ("functions", "segments", "input", "use_reentrant", "preserve_rng_state")


def check(run: Run) -> Iterator[Report]:
    """Report calls that raise."""
    for event in run.of(CheckpointSequential):
        problem = _segments(event) or _keywords(event) or _unbound(event)
        if problem:
            yield Report(event.node, problem)


def _segments(event: CheckpointSequential) -> str:
    if equals(event.segments, 0):
        return "0 segments raise a ZeroDivisionError; write 2 or more"
    if isinstance(event.functions, Result) and container_kind(event.functions) == "ModuleDict":
        return (
            "`checkpoint_sequential` takes modules by number, which raises a KeyError in an `nn.ModuleDict`; write "
            "`list(modules.values())`"
        )
    length = length_of(event.functions)
    segments = event.segments.value if isinstance(event.segments, Const) else None
    if isinstance(segments, int) and length is not None and segments > length:
        return f"{segments} segments of {length} modules raise a ValueError; write {length} or fewer"
    return ""


def _unbound(event: CheckpointSequential) -> str:
    problem = misfit(event.call, SIGNATURES["torch.utils.checkpoint.checkpoint_sequential"])
    return f"this call raises a TypeError: `checkpoint_sequential` {problem}" if problem else ""


def _keywords(event: CheckpointSequential) -> str:
    wrong = [name for name, value in event.call.kwargs.items() if name not in _TAKEN and is_absent(value) is False]
    if not wrong:
        return ""
    return f"`checkpoint_sequential` passes nothing on to the modules: `{wrong[0]}=` raises a ValueError; drop it"
