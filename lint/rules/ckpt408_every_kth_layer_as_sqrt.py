"""Checkpointing every k-th layer as if that were the square-root strategy.

## What it does
Notes a checkpoint, or a `checkpoint_wrapper`, under `if i % k == 0`, alone or beside other conditions
(`self.training and ...`), in a variable or a method that returns it, where `k` is computed from a square root. The same
for `i in range(0, n, k)`, for a loop over such a range, for a list that holds the condition of each layer, and for
layers that are built with the condition and ask for it themselves: `Block(recompute=i % k == 0)`.

## Why is this bad?
The square-root strategy checkpoints segments of k layers and keeps only what is between the segments. Checkpointing one
layer in k keeps the inside of all the others: measured on 24 layers with k = 4, it saves 19 % of the activation memory
where true segments save 81 %. For transformer blocks, whose inside is much larger than their boundary, checkpointing
every block has the lowest peak of all.

## Bad
```python
import math
from torch.utils.checkpoint import checkpoint

def forward(layers, x):
    every = int(math.sqrt(len(layers)))
    for i, layer in enumerate(layers):
        if i % every == 0:
            x = checkpoint(layer, x, use_reentrant=False)  # error
        else:
            x = layer(x)
    return x
```
```python
import math
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Encoder(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.interval = math.isqrt(len(blocks))

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            if self.training and not i % self.interval:
                x = checkpoint(block, x, use_reentrant=False)  # error
            else:
                x = block(x)
        return x
```
```python
import math
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Encoder(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.interval = int(math.sqrt(len(blocks)))

    def is_chosen(self, index):
        if not self.training:
            return False
        return index % self.interval == 0

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            if self.is_chosen(i):
                x = checkpoint(block, x, use_reentrant=False)  # error
            else:
                x = block(x)
        for i, block in enumerate(self.blocks):
            chosen = i % self.interval == 0
            x = checkpoint(block, x, use_reentrant=False) if chosen else block(x)  # error
        for i, block in enumerate(self.blocks):
            # All but one in each interval.
            x = block(x) if self.is_chosen(i) else checkpoint(block, x, use_reentrant=False)
        return x
```

## Good
```python
import math
import torch.nn as nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

def every_other(layers, x, every=2):
    for i, layer in enumerate(layers):
        x = checkpoint(layer, x, use_reentrant=False) if i % every == 0 else layer(x)
    return x

def all_but_every_kth(layers, x):
    every = int(math.sqrt(len(layers)))
    for i, layer in enumerate(layers):
        x = layer(x) if i % every == 0 else checkpoint(layer, x, use_reentrant=False)
    return x

def gathered(layers, x):
    every, run = int(math.sqrt(len(layers))), []
    for i, layer in enumerate(layers, 1):
        run.append(layer)
        if i % every == 0:
            x = checkpoint(nn.Sequential(*run), x, use_reentrant=False)
            run = []
    return nn.Sequential(*run)(x)

def segments(layers, x):
    return checkpoint_sequential(layers, int(math.sqrt(len(layers))), x, use_reentrant=False)
```

```python
import math
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Encoder(nn.Module):
    def __init__(self, blocks, every_block=True):
        super().__init__()
        self.blocks, self.every_block = nn.ModuleList(blocks), every_block
        self.interval = int(math.sqrt(len(blocks)))

    def is_chosen(self, index):
        if self.every_block:
            return True
        return index % self.interval == 0

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            x = checkpoint(block, x, use_reentrant=False) if self.is_chosen(i) else block(x)
        return x
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

layers = torch.nn.Sequential(
    *(torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 8)) for _ in range(16))
)

def kept(run):
    held = {}

    def pack(tensor):
        held[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = run(torch.ones(4, 8, requires_grad=True) * 1.0)
    weights = {weight.untyped_storage().data_ptr() for weight in layers.parameters()}
    return sum(t.untyped_storage().nbytes() for key, t in held.items() if key not in weights)

def every_fourth(x):
    for i, layer in enumerate(layers):
        x = checkpoint(layer, x, use_reentrant=False) if i % 4 == 0 else layer(x)
    return x

plain = kept(layers)
sparse = kept(every_fourth)
segments = kept(lambda x: checkpoint_sequential(layers, 4, x, use_reentrant=False))
assert sparse > 0.7 * plain
assert segments < 0.4 * plain
```

## References
T. Chen et al., Training Deep Nets with Sublinear Memory Cost (segments of sqrt(n) layers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Severity
from ..model.events import Checkpoint, CheckpointWrap, TorchCheckpoint
from ..model.flow.square_roots import square_root
from ..model.needs import together
from ..model.report import Remark, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT408", "every-kth-layer-as-sqrt", Severity.NOTE
NEEDS = together(("sqrt", "** 0.5", "**0.5"), (TorchCheckpoint, CheckpointWrap))


def check(run: Run) -> Iterator[Report]:
    """Note layers picked by a square root."""
    for event in run.of(Checkpoint, CheckpointWrap):
        assigned = square_root(run, event.call)
        if assigned is not None:
            yield Report(
                event.node,
                "checkpointing one layer in k keeps the inside of all others; the square-root strategy needs "
                "segments of k layers, and for transformer blocks checkpointing every layer peaks lowest",
                notes=(Remark(assigned, "k is a square root"),),
            )
