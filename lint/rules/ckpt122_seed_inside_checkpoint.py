"""A fixed random seed inside a checkpointed region.

## What it does
Flags `torch.manual_seed(0)`, `torch.cuda.manual_seed(0)`, `transformers.set_seed(0)` and the like in a function or
module that is checkpointed, unless `torch.random.fork_rng()` is around it; also a seed such as `1000 + self.index` that
only the constructor of a layer sets, and a number that the checkpoint gives. A seed that the caller gives is not
flagged.

## Why is this bad?
It is recommended to make dropout agree with its recomputation, which torch does by itself (`preserve_rng_state=True`).
With the seed every layer and every step draws the same mask, so the regularisation is gone, and everything random
behind it (the next layers, the data augmentation) repeats too.

## Bad
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        torch.manual_seed(42)
        return self.drop(self.linear(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(4)])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # error
        return x
```
```python
from torch.utils.checkpoint import checkpoint
from transformers import set_seed

def forward(block, x):
    def run(h):
        set_seed(0)
        return block(h)
    return checkpoint(run, x, use_reentrant=False)  # error
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index = index
        self.linear = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        torch.manual_seed(1000 + self.index)
        return self.drop(self.linear(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(i) for i in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # error
        return x
```

## Good
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from transformers import set_seed

set_seed(42)
torch.manual_seed(42)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.1)

    def forward(self, x, seed):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            noise = torch.randn(8)
        torch.manual_seed(seed)
        return self.drop(x + noise)

block = Block()

def forward(x, step):
    torch.manual_seed(0)
    return checkpoint(block, x, step, use_reentrant=False)
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index, self.step = index, 0
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        torch.manual_seed(1000 * self.step + self.index)
        return self.drop(x)

class Seeded(nn.Module):
    def __init__(self, block, seed):
        super().__init__()
        self.block, self.seed = block, seed

    def forward(self, x):
        torch.manual_seed(7 + self.seed)
        return self.block(x)

class Once(nn.Module):
    def __init__(self):
        super().__init__()
        self.seed = 0
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        torch.manual_seed(self.seed)
        return self.drop(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(i) for i in range(4))
        self.last = Once()

    def forward(self, x, step):
        self.last.seed = step
        x = checkpoint(self.last, x, use_reentrant=False)
        for block in self.blocks:
            block.step = step
            x = checkpoint(block, x, use_reentrant=False)
        return checkpoint(Seeded(nn.Dropout(0.1), step), x, use_reentrant=False)
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint

def masks(seed):
    torch.manual_seed(0)
    drawn = []
    def block(x):
        if seed is not None:
            torch.manual_seed(seed)
        mask = torch.rand(64) > 0.5
        drawn.append(tuple(mask.tolist()))
        return torch.sin(x * mask)
    behind = set()
    for _ in range(2):
        x = torch.ones(64, requires_grad=True)
        for _ in range(3):
            x = checkpoint(block, x, use_reentrant=False)
        behind.add(torch.rand(()).item())
        x.sum().backward()
    return drawn, behind

drawn, behind = masks(42)
assert len(drawn) == 12 and len(set(drawn)) == 1 and len(behind) == 1
drawn, behind = masks(None)
# Without a seed: six masks, each drawn again in its own recomputation.
assert len(drawn) == 12 and len(set(drawn)) == 6 and len(behind) == 2
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`preserve_rng_state`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Result, options
from ..finding import Severity
from ..model.events import Checkpointing
from ..model.needs import together
from ..model.report import Remark, Report
from ..model.state.seeds import is_constant, is_given_constant, is_same_in_every_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Call
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT122", "seed-inside-checkpoint", Severity.ERROR
NEEDS = together("seed", Checkpointing)
_SEEDS = (
    "torch.manual_seed",
    "torch.random.manual_seed",
    "torch.cuda.manual_seed",
    "torch.cuda.manual_seed_all",
    "torch.mps.manual_seed",
    "torch.xpu.manual_seed",
    "torch.xpu.manual_seed_all",
    "torch.default_generator.manual_seed",
    "transformers.set_seed",
    "transformers.enable_full_determinism",
    "accelerate.set_seed",
    "lightning.seed_everything",
    "pytorch_lightning.seed_everything",
)


def check(run: Run) -> Iterator[Report]:
    """Report regions that start the random numbers over."""
    for event, region in run.regions():
        seeds = [call for call in region.calls_to(*_SEEDS) if not _is_forked(call)]
        fixed = next((call for call in seeds if is_constant(run, call)), None)
        settled = (it for it in seeds if is_same_in_every_step(run, it) or is_given_constant(run, it, event))
        seed = fixed or next(settled, None)
        if seed is not None:
            alike = "every step" if fixed is None else "every layer and every step"
            yield Report(
                event.node,
                f"`{seed.name.rpartition('.')[2]}` in this region gives {alike} the same random "
                f"numbers; remove it, since torch draws the same ones in the recomputation by itself",
                notes=(Remark(seed.node, "starts over here"),),
            )


def _is_forked(call: Call) -> bool:
    entered = [option for value in call.place.contexts for option in options(value)]
    return any(isinstance(option, Result) and option.call.name.endswith("fork_rng") for option in entered)
