"""One sharded block in several reentrant checkpoints.

## What it does
Flags a reentrant checkpoint of a module that is run more than once in a forward pass (the same module in a loop, in
several checkpoints, in a list of nothing else, or in one of a method that is called again) and that `fully_shard`
makes a unit of its own, by itself or in a loop over the modules of a model.

## Why is this bad?
FSDP2 takes the first of the inner backward passes for the end of the unit's work. Parameters stay unsharded and their
gradients are neither reduced nor complete: measured 156 % off, without an error. The non-reentrant variant is exact.

## Bad
```python
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, x):
        for _ in range(3):
            x = checkpoint(self.block, x, use_reentrant=True)  # error
        return x

model = Recurrent()
fully_shard(model.block)
fully_shard(model)
```

## Good
```python
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, x):
        for _ in range(3):
            x = checkpoint(self.block, x, use_reentrant=False)
        return x

class Once(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=True)

class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return x

for model in (Recurrent(), Once()):
    fully_shard(model.block)
    fully_shard(model)
stack = Layers()
for layer in stack.layers:
    fully_shard(layer)
```

## Fix safety
Unsafe: the non-reentrant variant runs instead.

## Evidence
```python
import os
import tempfile
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

class Recurrent(torch.nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        torch.manual_seed(0)
        self.block = torch.nn.Linear(8, 8)
        self.reentrant = reentrant

    def forward(self, x):
        for _ in range(3):
            x = checkpoint(self.block, x.tanh(), use_reentrant=self.reentrant)
        return x

def gradient(reentrant, shard):
    model = Recurrent(reentrant)
    if shard:
        mesh = init_device_mesh("cpu", (2,))
        fully_shard(model.block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    model(torch.ones(2, 8, requires_grad=True)).pow(2).sum().backward()
    grad = model.block.weight.grad
    return grad.full_tensor() if hasattr(grad, "full_tensor") else grad

def work(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    wanted = gradient(False, shard=False)
    assert torch.allclose(gradient(False, shard=True), wanted, rtol=1e-4)
    wrong = gradient(True, shard=True)
    assert wrong is None or wrong.shape != wanted.shape or not torch.allclose(wrong, wanted, rtol=1e-2)
    dist.barrier()
    os._exit(0)  # gloo's threads may abort an interpreter that ends while they run

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (f"{folder}/store",), nprocs=2)
```

## References
pytorch/pytorch#89781 (post-backward hooks under reentrant checkpointing).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Applicability, Severity
from ..model.events import Checkpoint, Fsdp2Shard, TorchCheckpoint
from ..model.libraries.sharded import sharded_modules
from ..model.libraries.sharding import may_be_same_module
from ..model.needs import together
from ..model.regions.reused_segments import is_reused
from ..model.report import Remark, Report, Rewrite, SetKeyword
from ..model.tensors.gradient_free import is_gradient_free

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT127", "shared-block-under-reentrant-fsdp2", Severity.ERROR
NEEDS = together(Fsdp2Shard, TorchCheckpoint)
VERSIONS = {"torch": ">=2.4"}


def check(run: Run) -> Iterator[Report]:
    """Report sharded modules that several reentrant segments run."""
    shards = list(run.of(Fsdp2Shard))
    for event in run.of(Checkpoint):
        if is_gradient_free(event.call) or not run.runs_reentrant(event) or not is_reused(run, event):
            continue
        for shard in shards:
            if any(may_be_same_module(event.function, module) for module in sharded_modules(run, shard)):
                yield _report(event, shard)
                break


def _report(event: Checkpoint, shard: Fsdp2Shard) -> Report:
    return Report(
        event.node,
        "several reentrant segments run this sharded module: its gradients are incomplete and not reduced; "
        "write `use_reentrant=False`",
        notes=(Remark(shard.node, "this makes the module a unit"),),
        fix=Rewrite(
            Applicability.UNSAFE,
            "Use the non-reentrant variant",
            (SetKeyword(event.node, "use_reentrant", "False"),),
        ),
    )
