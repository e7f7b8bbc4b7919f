"""State that the forward pass updates and uses inside a checkpointed region.

## What it does
Flags a checkpointed region in which this file shows a `spectral_norm` layer, one that it gets later (in a loop over
the modules of a model, by `model.apply`) too, or methods that change one of their
module's buffers (in place, by index, or by assigning what is computed from it), count in one of its attributes
(`self.calls += 1`) or leave something of their inputs in one for the next run (a memory, a recurrent state), and return
something computed with what was there before. What the region itself resets at its start is not reported.
A moving average that only other code reads, an own normalization in eval mode say, or that is saved, is a warning.
A buffer that is overwritten before it is read, or only moved, cast or reshaped, holds the same in both runs and is not
reported, nor is an update under a condition that may hold in one of them only, nor a sum that nothing computes with.

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
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Queue(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(8, 4))

    def forward(self, x):
        y = x @ self.keys.clone().t()
        self.keys[: len(x)] = x.detach()  # the recomputation reads the new keys
        return y

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.queue = Queue()

    def forward(self, x):
        return checkpoint(self.queue, x, use_reentrant=False)  # error
```

```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Annealed(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.step = nn.Linear(8, 8), 0

    def forward(self, x):
        self.step += 1
        return torch.tanh(self.linear(x) / self.step)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Annealed()

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)  # error
```

```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(width))

    def forward(self, x):
        if not self.training:
            return x - self.running_mean
        mean = x.mean(0)
        with torch.no_grad():
            self.running_mean.lerp_(mean, 0.1)
        return x - mean

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), Norm(8))

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)  # error
```

```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.memory = nn.MultiheadAttention(8, 2), None

    def forward(self, x):
        context = x if self.memory is None else torch.cat([self.memory, x])
        y, _ = self.attention(x, context, context)
        self.memory = x[-4:].detach()  # the recomputation attends to its own input
        return y

class Neuron(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.potential = nn.Linear(8, 8), 0.0

    def forward(self, x):
        self.potential = self.potential * 0.9 + self.linear(x)
        return torch.sigmoid(self.potential)

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.state = nn.LSTM(8, 8), None

    def forward(self, x):
        y, state = self.rnn(x, self.state)
        if self.training:
            self.state = tuple(part.detach() for part in state)
        return y

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory, self.neuron, self.recurrent = Memory(), Neuron(), Recurrent()

    def forward(self, x):
        x = checkpoint(self.memory, x, use_reentrant=False)  # error
        x = checkpoint(self.neuron, x, use_reentrant=False)  # error
        return checkpoint(self.recurrent, x, use_reentrant=False)  # error
```

```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(8, 8)
        self.hidden = None

    def step(self, x):
        self.hidden = self.cell(x, self.hidden)
        return self.hidden

    def forward(self, sequence):
        self.hidden = torch.zeros(sequence.size(1), 8)
        return torch.stack([checkpoint(self.step, x, use_reentrant=False) for x in sequence])  # error
```

## Good
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Rotated(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.table = torch.ones(1, 8)

    def longer(self, x, table):
        return table if table.size(0) >= x.size(0) else torch.ones(x.size(0), 8)

    def run(self, x):
        self.table = self.longer(x, self.table)
        return self.linear(x) * self.table[: x.size(0)]

    def forward(self, x):
        return checkpoint(self.run, x, use_reentrant=False)
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Neuron(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.potential = nn.Linear(8, 8), 0.0

    def forward(self, x):
        self.potential = self.potential * 0.9 + self.linear(x)
        return torch.sigmoid(self.potential)

class OverTime(nn.Module):
    def __init__(self):
        super().__init__()
        self.neuron = Neuron()

    def forward(self, x):
        self.neuron.potential = 0.0  # both runs start from here
        return torch.stack([self.neuron(step) for step in x])

class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.table, self.keys, self.last, self.device = nn.Linear(8, 8), None, None, None, "cpu"

    def forward(self, x, use_cache=False):
        if self.table is None or self.table.shape[0] < len(x):
            self.table = torch.arange(len(x)).to(x.device)
        if use_cache:
            x = x if self.keys is None else torch.cat([self.keys, x])
            self.keys = x
        y = self.linear(x) + self.table[: len(x), None].to(self.device)
        self.device = x.device
        self.last = y.detach()  # nothing here computes with it
        return y

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.neurons, self.cached = OverTime(), Cached()

    def forward(self, x):
        return checkpoint(self.cached, checkpoint(self.neurons, x, use_reentrant=False), use_reentrant=False)
```
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
        self.calls = 0

    def forward(self, x):
        self.calls += 1
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
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Normalize(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("last", torch.zeros(8, 4))
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x):
        self.scale = self.scale.to(x.device).type_as(x)
        self.last[: len(x)] = x.detach()  # the same both times, and read afterwards
        if self.training:
            mean = x.mean(0)
            new = self.mean * 0.9 + mean.detach() * 0.1
            self.mean.copy_(new)
        else:
            mean = self.mean
        return (x - mean) * self.scale + self.last[: len(x)].mean(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.normalize = Normalize()

    def forward(self, x):
        return checkpoint(self.normalize, x, use_reentrant=False)
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
```python
import torch
from torch.utils.checkpoint import checkpoint

class Queue(torch.nn.Module):
    def __init__(self, read_first):
        super().__init__()
        self.read_first = read_first
        self.register_buffer("keys", torch.ones(4, 4))

    def forward(self, x):
        y = (x @ self.keys.clone().t()).tanh() if self.read_first else None
        self.keys[: len(x)] = x.detach()
        return (x @ self.keys.t()).tanh() if y is None else y

def gradient(read_first, is_checkpointed):
    x = torch.arange(8.0).reshape(2, 4).div(8).requires_grad_()
    queue = Queue(read_first)
    y = checkpoint(queue, x, use_reentrant=False) if is_checkpointed else queue(x)
    y.pow(2).sum().backward()
    return x.grad

class Average(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.mean.lerp_(x.detach().mean(0), 0.1)
        return x.tanh()

def average(is_checkpointed):
    norm, x = Average(), torch.ones(2, 4, requires_grad=True)
    (checkpoint(norm, x, use_reentrant=False) if is_checkpointed else norm(x)).sum().backward()
    return norm.mean

assert torch.allclose(average(True), 1.9 * average(False))
assert not torch.allclose(gradient(True, True), gradient(True, False))
assert torch.equal(gradient(False, True), gradient(False, False))
```

```python
import torch
from torch.utils.checkpoint import checkpoint

class Annealed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x):
        self.step += 1
        return torch.tanh(x / self.step)

def gradient(reentrant):
    x = torch.ones(2, 4, requires_grad=True)
    y = Annealed()(x) if reentrant is None else checkpoint(Annealed(), x, use_reentrant=reentrant)
    y.sum().backward()
    return x.grad

for reentrant in (True, False):
    assert not torch.allclose(gradient(reentrant), gradient(None))
```

## References
torch 2.13 `torch/nn/utils/spectral_norm.py` (one power iteration a forward pass); NVIDIA-NeMo/Automodel#3247.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Severity
from ..model.events import Checkpointing, TorchCheckpoint
from ..model.needs import together
from ..model.report import Remark, Report
from ..model.state.normalized_modules import normalized_in
from ..model.state.replayed_mode import may_be_replayed_in_eval
from ..model.state.updates import moving_averages, state_updates

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT107", "forward-updated-state-in-checkpoint", Severity.ERROR
NEEDS = together(("spectral_norm", "register_buffer", "self."), Checkpointing)

_SPECTRAL = ("torch.nn.utils.spectral_norm", "torch.nn.utils.parametrizations.spectral_norm")


def check(run: Run) -> Iterator[Report]:
    """Report regions whose second run starts from other state than the first."""
    for event, region in run.regions():
        if isinstance(event, TorchCheckpoint) and "context_fn" in event.call.kwargs:
            continue  # It may put the state back.
        training = not (run.stays_in_eval(event) or may_be_replayed_in_eval(run, event))
        spectral = next(normalized_in(run, region, _SPECTRAL), None) if training else None
        if spectral is not None:
            yield _report(event.node, "`spectral_norm`", spectral)
            continue
        update = next(state_updates(run, region, training), None)
        if update is not None:
            yield _report(event.node, f"the {update.kind} `{update.name}`", update.node)
            continue
        average = next(moving_averages(run, region), None) if training else None
        if average is not None:
            yield Report(
                event.node,
                f"the buffer `{average.name}` moves twice a step, in the forward pass and in the recomputation: "
                "what reads it gets other values than without checkpointing; keep the update outside",
                notes=(Remark(average.node, "this average is updated twice a step"),),
                severity=Severity.WARNING,
            )


def _report(node: ast.Call, what: str, origin: ast.AST) -> Report:
    return Report(
        node,
        f"{what} changes in every forward pass, so the recomputation starts from other values and gradients are "
        "wrong; keep it outside the checkpoint",
        notes=(Remark(origin, "this state is updated twice a step"),),
    )
