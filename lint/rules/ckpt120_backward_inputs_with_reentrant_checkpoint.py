"""`backward(inputs=...)` with the parameters of a model that checkpoints reentrant.

## What it does
Flags `loss.backward(inputs=list(model.parameters()))`, and the same through `torch.autograd.backward`, when the forward
pass of `model` certainly comes to a reentrant checkpoint, or when `model` is a part of one that runs in such a
checkpoint alone. The non-reentrant variant, `backward()` without `inputs`, and parameters behind the last checkpoint
are fine.

## Why is this bad?
With `inputs`, autograd walks only to what is named, and the parameters of a reentrant region are not in the graph that
it sees. When the region is the first of the model, its parameters get no gradient and nothing is said: the optimizer
skips them, the head trains. When parameters in front of the region are named, too, the step raises a RuntimeError.

## Bad
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(8, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x):
        return checkpoint(self.block, self.stem(x), use_reentrant=True)

def train(batches, optimizer):
    net = Net()
    for batch in batches:
        loss = net(batch).square().mean()
        loss.backward(inputs=list(net.parameters()))  # error
        optimizer.step()
        net(batch).mean().backward(inputs=list(net.block.parameters()))  # error
```

## Good
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(8, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x):
        return checkpoint(self.block, self.stem(x), use_reentrant=False)

class Reentrant(Net):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        return self.head(checkpoint(self.block, self.stem(x), use_reentrant=True))

def train(batches, other):
    net, reentrant = Net(), Reentrant()
    for batch in batches:
        net(batch).sum().backward(inputs=list(net.parameters()))
        reentrant(batch).sum().backward()
        reentrant(batch).sum().backward(inputs=None)
        reentrant(batch).sum().backward(inputs=list(reentrant.head.parameters()))
        other(batch).sum().backward(inputs=list(other.parameters()))
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint

def gradients(reentrant, by_name, with_stem):
    torch.manual_seed(0)
    stem, block, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    parameters = [*block.parameters(), *head.parameters()]
    x = torch.ones(2, 4, requires_grad=True)
    if with_stem:
        parameters += stem.parameters()
        x = stem(x)
    loss = head(checkpoint(block, x, use_reentrant=reentrant)).sum()
    loss.backward(inputs=parameters if by_name else None)
    return [parameter.grad for parameter in parameters]

for with_stem in (False, True):
    wanted = gradients(False, False, with_stem)
    assert all(torch.equal(a, b) for a, b in zip(wanted, gradients(False, True, with_stem)))
    assert all(torch.equal(a, b) for a, b in zip(wanted, gradients(True, False, with_stem)))
found = gradients(True, True, with_stem=False)
assert found[:2] == [None, None] and found[2] is not None
try:
    gradients(True, True, with_stem=True)
except RuntimeError as error:
    assert "incompatible" in str(error)
else:
    raise AssertionError("no error")
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`CheckpointFunction.backward`, `_is_checkpoint_valid`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Severity
from ..model.events import Backward, TorchCheckpoint
from ..model.libraries.enabled import reentrant_settings, sure_checkpoints_in
from ..model.libraries.trainer import default_versions
from ..model.needs import CHECKPOINTS, together
from ..model.regions.parameters_inside import owners_of_parameters, reentrant_around
from ..model.report import Remark, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.events import Event
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT120", "backward-inputs-with-reentrant-checkpoint", Severity.ERROR
NEEDS = together(Backward, "inputs=", CHECKPOINTS)


def check(run: Run) -> Iterator[Report]:
    """Report backward passes that stop in front of what they name."""
    for backward in run.of(Backward):
        call = backward.call
        owners = owners_of_parameters(call.keyword("inputs"))
        settings = (setting for owner in owners for setting in _around(run, owner))
        setting = next(settings, None)
        if setting is not None:
            yield Report(
                call.node,
                "with `inputs`, the backward pass cannot enter a reentrant checkpoint: parameters in it get no "
                "gradient, without a word, or the step raises an error; write `use_reentrant=False` or drop `inputs`",
                notes=(Remark(setting.node, "this checkpoint is reentrant"),),
                versions=default_versions(setting),
            )


def _around(run: Run, module: Value) -> Iterator[Event]:
    """The reentrant settings of ``module``, or of a model that runs it in a reentrant region alone."""
    yield from _always(run, module)
    yield from reentrant_around(run, module)


def _always(run: Run, model: Value) -> Iterator[Event]:
    """The reentrant settings of ``model`` that no condition of the model itself can avoid."""
    sure = {event.node for event in sure_checkpoints_in(run, model)}
    for setting in reentrant_settings(run, model):
        if not isinstance(setting, TorchCheckpoint) or setting.node in sure:
            yield setting
