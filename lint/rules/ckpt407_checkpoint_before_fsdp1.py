"""Wrapping with checkpoints before FSDP1 wraps the model.

## What it does
Notes `apply_activation_checkpointing(model)` that comes before `FullyShardedDataParallel(model)`. Off by default.

## Why is this bad?
It is not under the non-reentrant variant: the units are the same in both orders, and so are the all-gathers and the
gradients. torch's documentation shows the other order, shard first, so this is a matter of style. Under the reentrant
variant this order gathers twice as often in the backward pass, which CKPT401 says.

## Bad
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def wrap(model, is_block, policy):
    apply_activation_checkpointing(model, check_fn=is_block)  # error
    return FSDP(model, auto_wrap_policy=policy)
```

## Good
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

def wrap(model, is_block, policy):
    model = FSDP(model, auto_wrap_policy=policy)
    apply_activation_checkpointing(model, check_fn=is_block)
    return model
```

## Evidence
```python
import os
import tempfile
import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

def is_block(module):
    return type(module) is torch.nn.Linear

def units(first):
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(3)))
    if first:
        apply_activation_checkpointing(model, check_fn=is_block)
    model = FSDP(model, device_id=torch.device("cpu"), auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}))
    if not first:
        apply_activation_checkpointing(model, check_fn=is_block)
    return sum(isinstance(module, FSDP) for module in model.modules())

def work(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=1)
    assert units(first=True) == units(first=False) == 4
    dist.barrier()
    os._exit(0)  # gloo's threads may abort an interpreter that ends while they run

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (f"{folder}/store",), nprocs=1)
```

## References
torch documentation of `apply_activation_checkpointing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Severity
from ..model.events import ApplyCheckpointing, Fsdp1Wrap
from ..model.libraries.sharding import root
from ..model.report import Remark, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT407", "checkpoint-before-fsdp1", Severity.NOTE
NEEDS = ((ApplyCheckpointing, "fsdp"),)
DEFAULT = False


def check(run: Run) -> Iterator[Report]:
    """Note wrappers that come first."""
    for event in run.of(ApplyCheckpointing):
        for wrap in run.of(Fsdp1Wrap):
            later = wrap.order > event.order and wrap.place.walk == event.place.walk
            if later and root(wrap.module) is root(event.model):
                yield Report(
                    event.node,
                    "the documented order wraps with FSDP first; this one gives the same units and gradients",
                    notes=(Remark(wrap.node, "FSDP wraps here"),),
                )
                break
