"""`checkpoint_sequential` with one segment.

## What it does
Flags `checkpoint_sequential(functions, 1, input)`.

## Why is this bad?
The last segment is never checkpointed, and with one segment the first is the last: nothing is recomputed and every
activation is kept, as if the call were not there.

## Bad
```python
from torch.utils.checkpoint import checkpoint_sequential

def forward(blocks, x):
    return checkpoint_sequential(blocks, 1, x, use_reentrant=False)  # error
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint_sequential

DEPTH, PER_SEGMENT = 6, 8

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[nn.Linear(8, 8) for _ in range(DEPTH)])

    def forward(self, x):
        x = checkpoint_sequential(self.blocks, max(1, DEPTH // PER_SEGMENT), x, use_reentrant=False)  # error
        return checkpoint_sequential(self.blocks, max(len(self.blocks) // 8, 1), x, use_reentrant=False)  # error
```

## Good
```python
from torch.utils.checkpoint import checkpoint_sequential

def forward(blocks, x, segments=1):
    x = checkpoint_sequential(blocks, segments, x, use_reentrant=False)
    return checkpoint_sequential(blocks, segments=2, input=x, use_reentrant=False)
```
```python
import math

import torch.nn as nn
from torch.utils.checkpoint import checkpoint_sequential

class Net(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.blocks = nn.Sequential(*[nn.Linear(8, 8) for _ in range(depth)])
        self.stages = nn.Sequential(*[nn.Linear(8, 8) for _ in range(9)])

    def forward(self, x):
        x = checkpoint_sequential(self.blocks, max(1, len(self.blocks) // 8), x, use_reentrant=False)
        return checkpoint_sequential(self.stages, math.isqrt(len(self.stages)), x, use_reentrant=False)
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint_sequential

def runs(segments):
    count = 0
    blocks = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(4)))

    def seen(module, args):
        nonlocal count
        count += 1

    for block in blocks:
        block.register_forward_pre_hook(seen)
    x = torch.ones(2, 4, requires_grad=True)
    checkpoint_sequential(blocks, segments, x, use_reentrant=False).sum().backward()
    return count

assert runs(1) == 4  # no block runs twice
assert runs(2) == 6  # the two of the first segment do
```

## References
torch 2.13 `torch/utils/checkpoint.py`, `checkpoint_sequential` ("the last chunk has to be non-volatile").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import equals, is_absent
from ..finding import Severity
from ..model.events import CheckpointSequential
from ..model.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT210", "single-segment-checkpoint-sequential", Severity.WARNING
NEEDS = (CheckpointSequential,)
MAY_BE_MEANT = True


def check(run: Run) -> Iterator[Report]:
    """Report calls that checkpoint nothing."""
    for event in run.of(CheckpointSequential):
        # Without an input the call raises.
        if equals(event.segments, 1) and not is_absent(event.input):
            yield Report(
                event.node,
                "`checkpoint_sequential` never checkpoints its last segment, so `segments=1` recomputes nothing; "
                "use at least 2 segments, or `checkpoint` for the whole",
            )
