"""Allow several reentrant checkpoints inside one FSDP unit.

## What it does
Flags reentrant checkpoints in the `forward` of a module that `FullyShardedDataParallel` wraps as one unit, that is
without an `auto_wrap_policy`, when more than one segment runs: the checkpoint stands in a loop or there are several.
The same for a transformers model that is told to use the reentrant variant.

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

## Good
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

import ast
from typing import TYPE_CHECKING

from ..facts.values import Class, Dict
from ..finding import Applicability, Severity
from ..model.events import Checkpoint, Fsdp1Wrap, HfEnable
from ..model.hf import default_versions, enable_reentrant
from ..model.report import Remark, Report, Rewrite, SetKey, SetKeyword
from ..model.sharding import class_of, is_whole_shard, root, unit_classes
from ..model.words import CHECKPOINT, ENABLE, together

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT302", "reentrant-checkpoints-in-one-fsdp-unit", Severity.ERROR
TRIGGERS = together("FullyShardedDataParallel", (CHECKPOINT, ENABLE))


def check(run: Run) -> Iterator[Report]:
    """Report the segments of units that hold more than one."""
    units = [wrap for wrap in run.of(Fsdp1Wrap) if unit_classes(wrap) == [] and is_whole_shard(wrap)]
    if len(units) != len(list(run.of(Fsdp1Wrap))):
        return  # Units inside units: which segment is in which is not known.
    for unit in units:
        for event in _segments(run, unit):
            change = SetKeyword(event.node, "use_reentrant", "False")
            yield _report(event.node, unit, change)
        for enable in run.of(HfEnable):
            if root(enable.model) is root(unit.module) and enable_reentrant(run, enable):
                found = _report(enable.node, unit, _key_change(enable.kwargs))
                yield found._replace(versions=default_versions(enable))


def _segments(run: Run, unit: Fsdp1Wrap) -> list[Checkpoint]:
    """The reentrant checkpoints in the forward of the unit, if they are more than one."""
    cls = class_of(unit.module)
    if not isinstance(cls, Class):
        return []
    inside = {function.node for function in run.bodies.of(cls.instance).functions}
    found = {
        event.node: event
        for event in run.of(Checkpoint)
        if event.place.function is not None and event.place.function.node in inside
    }
    several = len(found) > 1 or any(event.place.loops for event in found.values())
    return [event for event in found.values() if event.reentrant] if several else []


def _key_change(kwargs: Value) -> SetKey | None:
    node = kwargs.node
    return SetKey(node, "use_reentrant", "False") if isinstance(kwargs, Dict) and isinstance(node, ast.Dict) else None


def _report(node: ast.Call, unit: Fsdp1Wrap, change: SetKeyword | SetKey | None) -> Report:
    return Report(
        node,
        "several reentrant checkpoints run inside one FSDP unit, which is freed after the first of them: the backward "
        "pass fails; write `use_reentrant=False`",
        notes=(Remark(unit.node, "this makes one unit of the whole model"),),
        fix=Rewrite(Applicability.UNSAFE, "Use the non-reentrant variant", (change,)) if change else None,
    )
