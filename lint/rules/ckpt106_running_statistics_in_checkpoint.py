"""BatchNorm and other running statistics inside a checkpointed region.

## What it does
Flags a checkpointed function or module in which this file shows a `BatchNorm*`, `SyncBatchNorm` or tracking
`InstanceNorm*` layer that updates running statistics. Layers with `track_running_stats=False`, with `momentum=None`
(a plain average, which counts every batch twice and stays right) or `momentum=0.0`, that the region builds anew each
time, or that may be frozen (`.eval()` on them, on a module
around them or in a loop over `modules()`, another layer in their place) are fine, and so is a momentum that is computed
and a checkpoint that runs outside training only.

## Why is this bad?
The layer runs twice a step, in the forward pass and in the recomputation, and updates its statistics both times: the
effective momentum is 0.19 instead of 0.1. Gradients are exact, but the evaluated model differs from one trained
without checkpointing.

## Bad
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3)
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(self.conv(x)).relu()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.ModuleList([Stage() for _ in range(4)])

    def forward(self, x):
        for stage in self.stages:
            x = checkpoint(stage, x, use_reentrant=False)  # error
        return x
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint_sequential

net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8))

def forward(x):
    return checkpoint_sequential(net, 2, x, use_reentrant=False)  # error
```

## Good
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, dim, norm="ln"):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(dim, dim), nn.BatchNorm1d(dim, momentum=0.0))
        if norm == "bn":  # with `--notes`, a note: "if `norm` is "bn""
            self.norm = nn.BatchNorm1d(dim)
        else:
            self.norm = lambda x: nn.BatchNorm1d(dim)(x)

    def forward(self, x):
        return self.fc(self.norm(x))

class Net(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.block = Block(8, norm)

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3)
        self.norm = nn.GroupNorm(2, 8)
        self.plain = nn.BatchNorm2d(8, track_running_stats=False)
        self.twice = nn.BatchNorm2d(8, momentum=1 - (1 - 0.1) ** 0.5)

    def forward(self, x):
        return self.twice(self.plain(self.norm(self.conv(x)))).relu()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage = Stage()
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(checkpoint(self.stage, x, use_reentrant=False))
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))

    def train(self, mode=True):
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm1d):
                module.eval()
        return self

    def forward(self, x):
        return checkpoint(self.stage, x, use_reentrant=False)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).requires_grad_(False)
        self.stage.eval()

    def forward(self, x):
        return checkpoint(self.stage, x, use_reentrant=False)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

def set_eval(module):
    if "BatchNorm" in type(module).__name__:
        module.eval()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))

    def forward(self, x):
        return checkpoint(self.stage, x, use_reentrant=False)

net = Net().train()
net.apply(set_eval)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from torchvision.ops import FrozenBatchNorm2d

class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        return self.norm(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage = Stage()
        self.stage.norm = FrozenBatchNorm2d(8)

    def forward(self, x):
        return checkpoint(self.stage, x, use_reentrant=False)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))

    def forward(self, x):
        if not self.training:
            return checkpoint(self.stage, x, use_reentrant=False)
        return self.stage(x)
```
```python
import torch.nn as nn
import torch.utils.checkpoint as cp

class Prior(nn.Module):
    def __init__(self, channels, dim, with_cp=True):
        super().__init__()
        self.with_cp = with_cp
        self.stem = nn.Sequential(nn.Conv2d(channels, dim, 3), nn.BatchNorm2d(dim), nn.ReLU())

    def forward(self, x):
        if self.with_cp and x.requires_grad:
            return cp.checkpoint(self.stem, x, use_reentrant=False)
        return self.stem(x)

class Colours(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, dim, 3), nn.BatchNorm2d(dim), nn.ReLU())
        self.out = nn.Conv2d(dim, dim, 1)

    def forward(self, x):
        def run(x):
            return self.out(self.stem(x))

        return cp.checkpoint(run, x, use_reentrant=False) if x.requires_grad else run(x)

class Adapter(nn.Module):
    def __init__(self, channels, dim):
        super().__init__()
        self.prior = Prior(channels, dim)

    def forward(self, x):
        return self.prior(x.squeeze(2))  # the pictures, which need no gradient
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint

def statistics(reentrant, momentum):
    torch.manual_seed(0)
    block = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8, momentum=momentum), torch.nn.ReLU())
    x = (3 * torch.randn(16, 8) + 1).requires_grad_()
    y = block(x) if reentrant is None else checkpoint(block, x, use_reentrant=reentrant)
    y.sum().backward()
    return block[1].running_mean, int(block[1].num_batches_tracked)

once, one = statistics(None, 0.1)
for reentrant in (True, False):
    twice, two = statistics(reentrant, 0.1)
    assert (one, two) == (1, 2)
    assert torch.allclose(twice, once * 1.9, rtol=1e-5)
    adapted, _ = statistics(reentrant, 1 - (1 - 0.1) ** 0.5)
    assert torch.allclose(adapted, once, rtol=1e-5)
    average, _ = statistics(reentrant, None)
    assert torch.allclose(average, statistics(None, None)[0])
```

## References
pytorch/pytorch#96136, #62471; fairscale `patch_batchnorm`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Absent, Const, equals
from ..finding import Severity
from ..model.conditions.guards import excludes_mode
from ..model.events import Checkpointing, Compile, TorchCheckpoint
from ..model.needs import together
from ..model.report import Remark, Report
from ..model.state.frozen_statistics import may_keep_statistics
from ..model.state.modes import is_gradient_free

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Result
    from ..model.regions.region import Region
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT106", "running-statistics-in-checkpoint", Severity.WARNING
NEEDS = together(("BatchNorm", "InstanceNorm"), Checkpointing)

_BATCH_NORMS = (
    *(f"torch.nn.{lazy}BatchNorm{size}d" for lazy in ("", "Lazy") for size in (1, 2, 3)),
    "torch.nn.SyncBatchNorm",
)
_INSTANCE_NORMS = tuple(f"torch.nn.{lazy}InstanceNorm{size}d" for lazy in ("", "Lazy") for size in (1, 2, 3))


def check(run: Run) -> Iterator[Report]:
    """Report regions that hold a layer which updates its statistics on every run."""
    if any(run.of(Compile)):
        return  # A compiled region updates them once.
    for event, region in run.regions():
        if isinstance(event, TorchCheckpoint) and not isinstance(event.call.keyword("context_fn"), Absent):
            continue
        if _is_outside_training(run, event):
            continue
        for norm in region.modules_of(*_BATCH_NORMS, *_INSTANCE_NORMS):
            if _updates(run, norm) and not region.makes(norm):
                yield _report(event, region, norm)


def _report(event: Checkpointing, region: Region, norm: Result) -> Report:
    kind = norm.call.name.rpartition(".")[2]
    return Report(
        event.node,
        f"`{kind}` in this region updates its running statistics twice a step, in the forward pass and in the "
        f"recomputation; keep it outside, or use `momentum=1 - (1 - momentum) ** 0.5`",
        notes=(Remark(norm.call.node, f"the `{kind}` that runs twice", region.conditions_of(norm)),),
    )


def _is_outside_training(run: Run, event: Checkpointing) -> bool:
    """Whether the checkpoint runs in eval mode or without gradients only."""
    never = any(excludes_mode(guard, training=True) for guard in event.place.guards)
    return never or run.stays_in_eval(event) or (isinstance(event, TorchCheckpoint) and is_gradient_free(event.call))


def _updates(run: Run, norm: Result) -> bool:
    call = norm.call
    tracks, momentum = call.argument(4, "track_running_stats"), call.argument(2, "momentum")
    is_batch_norm = "BatchNorm" in call.name
    tracking = (isinstance(tracks, Absent) and is_batch_norm) or equals(tracks, True)
    fixed = isinstance(momentum, Absent) or (isinstance(momentum, Const) and bool(momentum.value))
    return bool(tracking) and fixed and not may_keep_statistics(run, norm)
