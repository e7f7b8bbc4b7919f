"""Several reentrant checkpoints inside one FSDP unit.

## What it does
Flags reentrant checkpoints in the `forward` of a module that `FullyShardedDataParallel` wraps as one unit, that is
without an `auto_wrap_policy`, when more than one segment runs: the checkpoint stands in a loop, there are several,
`checkpoint_sequential` makes three segments or more, of which it checkpoints all but the last, or the checkpoint stands
in a block of which several run, and reentrant wrappers around several of its modules. The same for a transformers model
that is told to use the reentrant variant, and where Lightning's `FSDPStrategy` or accelerate's plugin wraps the model
without a policy.

## Why is this bad?
FSDP frees the unit's parameters after the first segment's backward pass, and the second segment then computes with an
empty parameter. The first step ends in `RuntimeError: mat2 must be a matrix, got 1-D tensor` or `setStorage`.

## Bad
```python
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)  # error
        return x

model = FSDP(Net())
```
```python
import lightning as L
import torch.nn as nn
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from lightning.pytorch.strategies import FSDPStrategy
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)  # error
        return x

class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.stem, self.net = nn.Linear(8, 8), Net()

    def training_step(self, batch, index):
        return self.net(self.stem(batch)).sum()

L.Trainer(strategy=FSDPStrategy()).fit(Lit())
accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=1))
model = accelerator.prepare(Net())
```
```python
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.checkpoint import checkpoint_sequential

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(8))

    def forward(self, x):
        half = len(self.layers) // 2
        x = checkpoint_sequential(self.layers[:half], 3, x, use_reentrant=True)  # error
        for layer in self.layers[half:]:
            x = layer(x)
        return x

class InTwo(nn.Module):
    def __init__(self, parts=2):
        super().__init__()
        self.layers, self.parts = nn.Sequential(*[nn.Linear(8, 8) for _ in range(8)]), parts

    def forward(self, x):
        return checkpoint_sequential(self.layers, self.parts, x, use_reentrant=True)  # One checkpoint, and the rest.

model, other = FSDP(Net()), FSDP(InTwo())
```

```python
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.checkpoint import checkpoint

class Recomputed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args):
        return checkpoint(self.module, *args, use_reentrant=True)  # error

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Recomputed(nn.Sequential(nn.Linear(8, 8), nn.ReLU())) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

model = FSDP(Net())
```

## Good
```python
import lightning as L
import torch.nn as nn
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from lightning.pytorch.strategies import FSDPStrategy
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return x

class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.stem, self.net = nn.Linear(8, 8), Net()

    def training_step(self, batch, index):
        return self.net(self.stem(batch)).sum()

# Units that stay gathered until backward, so that a checkpoint around them gathers nothing again (CKPT401).
kept = FSDPStrategy(auto_wrap_policy={nn.Sequential}, sharding_strategy="SHARD_GRAD_OP")
L.Trainer(strategy=kept).fit(Lit())
accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(auto_wrap_policy="size_based_wrap"))
model = accelerator.prepare(Net())
```
```python
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=True)

    def inner(self, x):
        return x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x

class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return x

model = FSDP(Net())
one_segment = FSDP(Block())
not_sharded = FSDP(Whole(), sharding_strategy=ShardingStrategy.NO_SHARD)
```

```python
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.checkpoint import checkpoint

class Recomputed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args):
        return checkpoint(self.module, *args, use_reentrant=True)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = Recomputed(nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)]))

    def forward(self, x):
        return self.tower(x)

model = FSDP(Net())
```

## Fix safety
Unsafe: the non-reentrant variant runs instead of none at all.

## Evidence
```python
import os
import tempfile
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.checkpoint import checkpoint

class Net(torch.nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(3)])
        self.reentrant = reentrant

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x

def work(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    x = torch.ones(2, 8, requires_grad=True)
    FSDP(Net(False), device_id=torch.device("cpu"))(x).sum().backward()
    try:
        FSDP(Net(True), device_id=torch.device("cpu"))(x).sum().backward()
    except RuntimeError as error:
        assert "mat2 must be a matrix" in str(error) or "setStorage" in str(error), error
    else:
        raise AssertionError("no error")
    dist.barrier()
    os._exit(0)  # gloo's threads may abort an interpreter that ends while they run

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (f"{folder}/store",), nprocs=2)
```

## References
pytorch/pytorch#89781, #105635; fairscale#777.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Const, Dict, options
from ..finding import Applicability, Severity
from ..model.events import (
    ApplyCheckpointing,
    Checkpoint,
    CheckpointSequential,
    CheckpointWrap,
    Fsdp1Wrap,
    HfEnable,
    TorchCheckpoint,
)
from ..model.libraries.launchers import trained_region
from ..model.libraries.sharding import root
from ..model.libraries.trainer import default_versions, enable_reentrant
from ..model.libraries.units import whole_units
from ..model.needs import together
from ..model.regions.own_wrappers import (
    is_around_each_block,
    runs_in_several_blocks,
    runs_several_of,
    runs_several_wrapped_by,
)
from ..model.report import Remark, Report, Rewrite, SetKey, SetKeyword
from ..model.types import unwrapped
from ..model.wrapping.wrapped import wrapped_classes

if TYPE_CHECKING:
    import ast
    from collections.abc import Container, Iterator

    from ..facts.values import Value
    from ..model.events import WrapperCheckpointing
    from ..model.libraries.units import ShardedUnit
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT302", "reentrant-checkpoints-in-one-fsdp-unit", Severity.ERROR
NEEDS = together(
    (Fsdp1Wrap, "FSDPStrategy", "strategy"), (TorchCheckpoint, CheckpointWrap, ApplyCheckpointing, HfEnable)
)


def check(run: Run) -> Iterator[Report]:
    """Report the segments of units that hold more than one."""
    if run.is_compiled:
        return  # The compiler ignores `use_reentrant`.
    # Units inside units: which segment is in which is not known.
    for unit in whole_units(run) or ():
        for event in _segments(run, unit):
            change = SetKeyword(event.node, "use_reentrant", "False")
            yield _report(event.node, unit, change)
        for wrapping in _wrappings(run, unit):
            yield _report(wrapping.node, unit, None, "checkpoint_impl=CheckpointImpl.NO_REENTRANT")
        for enable in run.of(HfEnable):
            if root(enable.model) is root(unit.module) and enable_reentrant(run, enable):
                found = _report(enable.node, unit, _key_change(enable.kwargs))
                yield found._replace(versions=default_versions(enable))


def _segments(run: Run, unit: ShardedUnit) -> list[TorchCheckpoint]:
    """The reentrant checkpoints in the forward of the unit, if they are more than one."""
    region = trained_region(run, unit.module)
    inside = {function.node for function in region.functions}
    found = {
        event.node: event
        for event in run.of(TorchCheckpoint)
        if event.place.function is not None and event.place.function.node in inside
    }
    made = [event for event in found.values() if _times(event)]
    model = unwrapped(unit.module)
    several = sum(map(_times, made)) > 1 or any(
        _is_repeated(run, it, inside) or _is_in_blocks(run, it) or runs_in_several_blocks(it, model, region)
        for it in made
    )
    return [event for event in found.values() if event.reentrant] if several else []


def _wrappings(run: Run, unit: ShardedUnit) -> Iterator[WrapperCheckpointing]:
    """What puts several modules that run in the unit into reentrant wrappers."""
    region, model = trained_region(run, unit.module), unwrapped(unit.module)
    for wrap in run.of(CheckpointWrap):
        if wrap.reentrant and runs_several_wrapped_by(wrap, model, region):
            yield wrap
    for apply in run.of(ApplyCheckpointing):
        is_inside = apply.reentrant and root(apply.model) is root(unit.module)
        if is_inside and any(runs_several_of(cls, model, region) for cls in wrapped_classes(run, apply)):
            yield apply


def _times(event: TorchCheckpoint) -> int:
    """How many checkpoints one call certainly makes: of `checkpoint_sequential`, the last segment is none."""
    if not isinstance(event, CheckpointSequential):
        return 1
    numbers = [number.value if isinstance(number, Const) else None for number in options(event.segments)]
    return max(0, min(number - 1 if isinstance(number, int) else 0 for number in numbers))


def _is_in_blocks(run: Run, event: TorchCheckpoint) -> bool:
    return isinstance(event, Checkpoint) and is_around_each_block(run, event)


def _is_repeated(run: Run, event: TorchCheckpoint, inside: Container[ast.AST]) -> bool:
    """Whether a loop of the unit makes the checkpoint, by itself or through helpers."""
    around = [call.place for call in run.path_to(event.call)] or [event.place]
    return any(place.loops for place in around if place.function is not None and place.function.node in inside)


def _key_change(kwargs: Value) -> SetKey | None:
    display = kwargs.display if isinstance(kwargs, Dict) else None
    return SetKey(display, "use_reentrant", "False") if display is not None else None


def _report(
    node: ast.Call, unit: ShardedUnit, change: SetKeyword | SetKey | None, advice: str = "use_reentrant=False"
) -> Report:
    return Report(
        node,
        "several reentrant checkpoints run inside one FSDP unit, which is freed after the first of them: the backward "
        f"pass fails; write `{advice}`",
        notes=(Remark(unit.node, "this makes one unit of the whole model"),),
        fix=Rewrite(Applicability.UNSAFE, "Use the non-reentrant variant", (change,)) if change else None,
    )
