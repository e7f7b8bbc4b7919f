"""A reentrant checkpoint around an FSDP unit.

## What it does
Flags a reentrant checkpoint whose function is itself an FSDP1 unit: the parent checkpoints a child that
`FullyShardedDataParallel` wraps, by hand or by its `auto_wrap_policy`, or `checkpoint_wrapper` encloses the unit, also
because `apply_activation_checkpointing` comes before FSDP. Lightning, Fabric, accelerate and a Trainer make such units
where they get the model, by their `FSDPStrategy`, `FullyShardedDataParallelPlugin` and `fsdp_config`. Layers that a
loop makes units of, one by one, and that a `forward` checkpoints are left alone: who writes that chooses what is
gathered when.

## Why is this bad?
The unit gathers its parameters again for the recomputation and once more for the backward pass: twice the
communication of the backward pass (6 all-gathers for 3 units). The non-reentrant variant needs them once, whatever the
order, and `fully_shard` gathers once under both variants.

## Bad
```python
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def forward(self, x):
        return x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)  # error
        return x

model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))
```
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def wrap(block):
    return checkpoint_wrapper(FSDP(block), checkpoint_impl=CheckpointImpl.REENTRANT)  # error
```
```python
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.layers = nn.ModuleList([FSDP(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)).cuda())])

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)  # error
        return x
```
```python
from functools import partial
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

def shard(model):
    wrapper = partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT)
    apply_activation_checkpointing(model, wrapper, lambda module: isinstance(module, Qwen2DecoderLayer))  # error
    policy = partial(transformer_auto_wrap_policy, transformer_layer_cls={Qwen2DecoderLayer})
    return FSDP(model, auto_wrap_policy=policy)
```
```python
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def forward(self, x):
        return x

class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=True)  # error

class Net(nn.Module):
    def __init__(self, cls):
        super().__init__()
        self.layers = nn.ModuleList([cls() for _ in range(3)])

plain = Net(Block)
recomputed = FSDP(Net(Recomputed), auto_wrap_policy=ModuleWrapPolicy({Block}))
```
```python
import torch.nn as nn
from lightning.fabric import Fabric
from lightning.fabric.strategies import FSDPStrategy
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def forward(self, x):
        return x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)  # error
        return x

by_fabric = Fabric(strategy=FSDPStrategy(auto_wrap_policy={Block})).setup(Net())
```

## Good
```python
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.utils.checkpoint import checkpoint

class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return x

wide = Wide()
for index, layer in enumerate(wide.layers):
    wide.layers[index] = FSDP(layer)
wide = FSDP(wide)
```

```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def forward(self, x):
        return x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x

model = FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({Block}))

def wrap(block):
    inside = FSDP(checkpoint_wrapper(block, checkpoint_impl=CheckpointImpl.REENTRANT))
    return inside, checkpoint_wrapper(FSDP(block))
```
```python
from functools import partial
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from transformers.models.qwen2.modeling_qwen2 import Qwen2Attention, Qwen2DecoderLayer

wrapper = partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT)
policy = ModuleWrapPolicy({Qwen2DecoderLayer})

def is_layer(module):
    return isinstance(module, Qwen2DecoderLayer)

def sharded_first(model):
    model = FSDP(model, auto_wrap_policy=policy)
    apply_activation_checkpointing(model, wrapper, is_layer)
    return model

def without_reentrant(model):
    apply_activation_checkpointing(model, checkpoint_wrapper, is_layer)
    return FSDP(model, auto_wrap_policy=policy)

def other_units(model):
    apply_activation_checkpointing(model, wrapper, lambda module: isinstance(module, Qwen2Attention))
    return FSDP(model, auto_wrap_policy=policy)

def kept_after_forward(model):
    apply_activation_checkpointing(model, wrapper, is_layer)
    return FSDP(model, auto_wrap_policy=policy, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP)
```
```python
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def forward(self, x):
        return x

class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=True)

class Teacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Block() for _ in range(3)])

class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Recomputed() for _ in range(3)])

teacher = FSDP(Teacher(), auto_wrap_policy=ModuleWrapPolicy({Block}))
student = FSDP(Student(), auto_wrap_policy=ModuleWrapPolicy({Recomputed}))
```
```python
# One class builds different models: only the one whose blocks are units themselves holds no checkpoint around a unit.
from types import SimpleNamespace
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def forward(self, x):
        return x

class Recomputed(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=True)

class Net(nn.Module):
    def __init__(self, cls):
        super().__init__()
        self.cls, self.settings = cls, SimpleNamespace(cls=cls)
        self.layers = nn.ModuleList([cls() for _ in range(3)])

recomputed = FSDP(Net(Recomputed), auto_wrap_policy=ModuleWrapPolicy({Recomputed}))
plain = FSDP(Net(Block), auto_wrap_policy=ModuleWrapPolicy({Block}))
```
```python
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.first = FSDP(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)))
        self.last = FSDP(
            nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)), sharding_strategy=ShardingStrategy.SHARD_GRAD_OP
        )

    def forward(self, x):
        x = checkpoint(self.first, self.embed(x), use_reentrant=False)
        return checkpoint(self.last, x, use_reentrant=True)
```
```python
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
from torch.distributed.fsdp.wrap import wrap
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return x

sharded = Net()
for layer in sharded.layers:
    fully_shard(layer)
fully_shard(sharded)

marked = Net()  # which `enable_wrap` is around this, whoever calls it knows
for index, layer in enumerate(marked.layers):
    marked.layers[index] = wrap(layer)
```

## Fix safety
Unsafe: the non-reentrant variant runs instead.

## Evidence
```python
import os
import tempfile
import torch
import torch.distributed as dist
from functools import partial
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.utils._python_dispatch import TorchDispatchMode
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

class Gathers(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += str(func).startswith("c10d.") and ("allgather" in str(func) or "all_gather" in str(func))
        return func(*args, **(kwargs or {}))

def wrapped(implementation, first, strategy=None):
    def wrap(model):
        apply_activation_checkpointing(
            model,
            partial(checkpoint_wrapper, checkpoint_impl=implementation),
            lambda module: isinstance(module, torch.nn.Linear),
        )

    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))
    if first:
        wrap(model)
    policy = ModuleWrapPolicy({torch.nn.Linear})
    model = FSDP(model, device_id=torch.device("cpu"), auto_wrap_policy=policy, sharding_strategy=strategy)
    if not first:
        wrap(model)
    return counted(model)

def gathers(reentrant):
    policy = ModuleWrapPolicy({torch.nn.Linear})
    return counted(FSDP(Net(reentrant), device_id=torch.device("cpu"), auto_wrap_policy=policy))

def by_fsdp2(reentrant):
    mesh, model = init_device_mesh("cpu", (2,)), Net(reentrant)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return counted(model)

def in_a_loop(reentrant):
    model = Net(reentrant)
    for index, layer in enumerate(model.layers):
        model.layers[index] = FSDP(layer, device_id=torch.device("cpu"))
    return counted(FSDP(model, device_id=torch.device("cpu")))

def counted(model):
    for _ in range(2):  # the first step records the execution order
        loss = model(torch.ones(2, 8, requires_grad=True)).sum()
        with Gathers() as seen:
            loss.backward()
    return seen.count

def work(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    assert gathers(reentrant=False) == 3
    assert gathers(reentrant=True) == 6
    assert in_a_loop(reentrant=True) == 6 and in_a_loop(reentrant=False) == 3
    assert by_fsdp2(reentrant=True) == by_fsdp2(reentrant=False) == 3
    reentrant, strategies = CheckpointImpl.REENTRANT, ShardingStrategy
    assert wrapped(reentrant, first=True) == 6 and wrapped(reentrant, first=False) == 3
    assert wrapped(CheckpointImpl.NO_REENTRANT, first=True) == wrapped(CheckpointImpl.NO_REENTRANT, first=False) == 3
    assert wrapped(reentrant, first=True, strategy=strategies.SHARD_GRAD_OP) == 0
    dist.barrier()
    os._exit(0)  # gloo's threads may abort an interpreter that ends while they run

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (f"{folder}/store",), nprocs=2)
```

## References
pytorch/pytorch#105635; huggingface/transformers#30404.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import options
from ..finding import Applicability, Severity
from ..model.calls.only_called import entered_by
from ..model.events import ApplyCheckpointing, Checkpoint, CheckpointWrap, Fsdp1Wrap, TorchCheckpoint, TrainerArgs
from ..model.libraries.sharding import class_of, named_class, root
from ..model.libraries.units import FreedUnits, freed_units, gives, wrapped_alone
from ..model.needs import together
from ..model.regions.bodies import classes_checked
from ..model.regions.module_tree import may_hold_method
from ..model.report import Remark, Report, Rewrite, SetKeyword

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT401", "reentrant-checkpoint-outside-fsdp-unit", Severity.WARNING
NEEDS = (
    *together(
        (Fsdp1Wrap, "enable_wrap", "FSDPStrategy", "FullyShardedDataParallelPlugin"),
        (TorchCheckpoint, CheckpointWrap, ApplyCheckpointing),
    ),
    *together("fsdp_config", TorchCheckpoint, TrainerArgs),
)


def check(run: Run) -> Iterator[Report]:
    """Report reentrant checkpoints that enclose a unit."""
    units = list(freed_units(run))
    for event in run.of(Checkpoint):
        around = _unit_inside(run, units, event) if event.reentrant else None
        if around is not None:
            yield _report(event, around, "use_reentrant", "False")
    for outer in run.of(CheckpointWrap):
        unit = _wrapped(run, outer.module, outer) or _unit_of_class(units, outer.module, outer)
        if outer.reentrant and unit is not None:
            yield _report(outer, unit)
    for apply in run.of(ApplyCheckpointing):
        if apply.reentrant and (unit := _later_unit(run, apply, units)) is not None:
            yield _report(apply, unit)


def _unit_inside(run: Run, units: list[FreedUnits], event: Checkpoint) -> Fsdp1Wrap | FreedUnits | None:
    """What makes a unit of the module that ``event`` is around."""
    for entered in _entered(run, event):
        unit = _wrapped(run, entered, event) or _unit_of_class(units, entered, event)
        if unit is not None:
            return unit
    return None


def _entered(run: Run, event: Checkpoint) -> Iterator[Value]:
    """What ``event`` runs: what it is given, and the module that a function calls and does nothing else."""
    yield from options(event.function)
    yield from options(entered_by(run, event, hops=1))


def _wrapped(run: Run, module: Value, event: Checkpoint | CheckpointWrap) -> Fsdp1Wrap | None:
    """What makes a unit of ``module`` alone, before ``event`` goes around it."""
    for wrap in wrapped_alone(run, module):
        if isinstance(event, Checkpoint):
            # Who makes a unit of each layer of a finished model chooses what is gathered when.
            is_meant = not wrap.place.loops or gives(wrap, module)
        else:
            is_meant = wrap.order < event.order and wrap.place.walk == event.place.walk
        if is_meant:
            return wrap
    return None


def _unit_of_class(units: list[FreedUnits], module: Value, event: Checkpoint | CheckpointWrap) -> FreedUnits | None:
    """What makes units of all modules of the class of ``module``, in a model that may hold it."""
    for unit in units:
        is_held = isinstance(event, CheckpointWrap) or may_hold_method(unit.model, event.place.function)
        if is_held and unit.are_of(class_of(module)):
            return unit
    return None


def _later_unit(run: Run, apply: ApplyCheckpointing, units: list[FreedUnits]) -> FreedUnits | None:
    """What makes units of the modules that ``apply`` has put into checkpoints already."""
    wrapped = [named_class(kind) for kind in classes_checked(apply.check, run.bodies)]
    for unit in units:
        made = unit.call
        is_later = (
            made.order > apply.order and made.place.walk == apply.place.walk and not made.place.deeper_than(apply.place)
        )
        if is_later and any(map(unit.are_of, wrapped)) and root(unit.model) is root(apply.model):
            return unit
    return None


def _report(
    event: Checkpoint | CheckpointWrap | ApplyCheckpointing,
    unit: Fsdp1Wrap | FreedUnits,
    keyword: str = "",
    text: str = "",
) -> Report:
    change = SetKeyword(event.node, keyword, text) if keyword else None
    return Report(
        event.node,
        "a reentrant checkpoint around an FSDP unit gathers its parameters twice in the backward pass; "
        "use the non-reentrant variant",
        notes=(Remark(unit.node, "this makes the module a unit"),),
        fix=Rewrite(Applicability.UNSAFE, "Use the non-reentrant variant", (change,)) if change else None,
    )
