"""Allow state that the forward pass updates and uses inside a checkpointed region.

## What it does
Flags a checkpointed region in which this file shows a `spectral_norm` layer, or a `forward` that changes one of its
module's buffers in place and also computes with it.

## Why is this bad?
The recomputation updates the state a second time and computes with other values than the forward pass did: gradients
are wrong (measured: 0.31 relative error for `spectral_norm`, 0.41 for a VQ codebook) and the state drifts. When another
branch is taken, torch raises `CheckpointError`.

## Bad
```python
import torch.nn as nn
from torch.nn.utils import spectral_norm
from torch.utils.checkpoint import checkpoint

class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage = nn.Sequential(spectral_norm(nn.Linear(8, 8)), nn.ReLU())

    def forward(self, x):
        return checkpoint(self.stage, x, use_reentrant=False)  # error
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Quantizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("codebook", torch.zeros(8, 4))

    def forward(self, x):
        y = x @ self.codebook.t()
        self.codebook.mul_(0.99).add_(x.mean(0))  # moves with the data
        return y

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.quantizer = Quantizer()

    def forward(self, x):
        return checkpoint(self.quantizer, x, use_reentrant=False)  # error
```

## Good
```python
import torch
import torch.nn as nn
from torch.nn.utils import spectral_norm
from torch.utils.checkpoint import checkpoint

class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("load", torch.zeros(8))
        self.register_buffer("scale", torch.ones(8))

    def forward(self, x):
        self.load.add_(x.sum(0))  # counted twice, but nothing is computed with it
        return x * self.scale

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = spectral_norm(nn.Linear(8, 8))
        self.experts = Experts()

    def forward(self, x):
        return self.head(checkpoint(self.experts, x, use_reentrant=False))
```

## Evidence
```python
import torch
from torch.nn.utils import spectral_norm
from torch.utils.checkpoint import checkpoint

def gradient(reentrant):
    torch.manual_seed(0)
    stage = torch.nn.Sequential(spectral_norm(torch.nn.Linear(8, 8)), torch.nn.Tanh(), torch.nn.Linear(8, 8))
    x = torch.randn(4, 8, requires_grad=True)
    y = stage(x) if reentrant is None else checkpoint(stage, x, use_reentrant=reentrant)
    y.pow(2).sum().backward()
    return stage[0].weight_orig.grad

wanted = gradient(None)
for reentrant in (True, False):
    assert (gradient(reentrant) - wanted).norm() / wanted.norm() > 0.01
```

## References
torch 2.13 `torch/nn/utils/spectral_norm.py` (one power iteration a forward pass); NVIDIA-NeMo/Automodel#3247.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..facts.values import Attr, Const, Function, Instance
from ..finding import Severity
from ..model.events import TorchCheckpoint
from ..model.report import Remark, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Class
    from ..model.region import Region
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT107", "forward-updated-state-in-checkpoint", Severity.ERROR
TRIGGERS = (("spectral_norm", "checkpoint"), ("register_buffer", "checkpoint"))

_SPECTRAL = ("torch.nn.utils.spectral_norm", "torch.nn.utils.parametrizations.spectral_norm")
_IN_PLACE = (
    "add_",
    "sub_",
    "mul_",
    "div_",
    "copy_",
    "lerp_",
    "fill_",
    "zero_",
    "index_add_",
    "scatter_",
    "scatter_add_",
)


def check(run: Run) -> Iterator[Report]:
    """Report regions whose second run starts from other state than the first."""
    for event, region in run.regions():
        if isinstance(event, TorchCheckpoint) and "context_fn" in event.call.kwargs:
            continue  # It may put the state back.
        spectral = next(region.modules_of(*_SPECTRAL), None)
        if spectral is not None:
            yield _report(event.node, "`spectral_norm`", spectral.call.node)
            continue
        for name, node in _updates(run, region):
            yield _report(event.node, f"the buffer `{name}`", node)
            break


def _updates(run: Run, region: Region) -> Iterator[tuple[str, ast.Call]]:
    """Buffers changed in place in the region that the same function also computes with."""
    for call in region.method_calls(*_IN_PLACE):
        match call.receiver:
            case Attr(base=Instance(cls), name=name) if name in _buffers(run, cls):
                function = call.place.function
                if function is not None and _computes_with(function, name):
                    yield name, call.node


def _buffers(run: Run, cls: Class) -> set[str]:
    """The names the class registers as buffers."""
    found = set()
    for call in run.method_calls("register_buffer"):
        if isinstance(call.receiver, Instance) and call.receiver.cls is cls and call.args:
            name = call.args[0]
            found |= {name.value} if isinstance(name, Const) and isinstance(name.value, str) else set()
    return found


def _computes_with(function: Function, name: str) -> bool:
    """Whether a local value or the result is computed from ``self.name``."""
    if isinstance(function.node, ast.Lambda):
        return False
    statements = [node for node in ast.walk(function.node) if isinstance(node, ast.Assign | ast.Return)]
    sources = [
        statement.value
        for statement in statements
        if statement.value is not None
        and not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute))
    ]
    return any(
        isinstance(node, ast.Attribute) and node.attr == name and ast.unparse(node.value) == "self"
        for source in sources
        for node in ast.walk(source)
    )


def _report(node: ast.Call, what: str, origin: ast.AST) -> Report:
    return Report(
        node,
        f"{what} changes in every forward pass, so the recomputation starts from other values and gradients are "
        "wrong; keep it outside the checkpoint",
        notes=(Remark(origin, "this state is updated twice a step"),),
    )
