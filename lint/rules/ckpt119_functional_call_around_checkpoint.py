"""`functional_call` with other parameters on a module that checkpoints inside.

## What it does
Flags `torch.func.functional_call(module, parameters, ...)` with parameters that this file computes (a gradient step,
detached copies) when the forward pass of `module` certainly comes to a checkpoint. The module's own parameters, calls
under `no_grad`, and `functional_call` inside of the checkpointed function are fine.

## Why is this bad?
`functional_call` puts the parameters in for the time of the call. The recomputation happens later, in the backward
pass, with the module's own: gradients of the given parameters are 40 to 55 % off, and in the reentrant variant they are
missing and land on the wrong tensors.

## Bad
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)

def inner_step(x, y):
    net = Net()
    loss = nn.functional.mse_loss(net(x), y)
    gradients = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
    fast = {name: p - 0.1 * g for (name, p), g in zip(net.named_parameters(), gradients)}
    adapted = torch.func.functional_call(net, fast, (x,))  # error
    nn.functional.mse_loss(adapted, y).backward()
```

## Good
```python
import torch
import torch.nn as nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)

class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x):
        return self.block(x)

def own_parameters(x):
    net = Net()
    functional_call(net, dict(net.named_parameters()), (x,)).sum().backward()

def average(x):
    net = Net()
    with torch.no_grad():
        return functional_call(net, {name: 0.9 * p for name, p in net.named_parameters()}, (x,))

def inside(x):
    net = Plain()
    fast = {name: 0.9 * p for name, p in net.named_parameters()}
    def run(x, *values):
        return functional_call(net, dict(zip(fast, values)), (x,))
    checkpoint(run, x, *fast.values(), use_reentrant=False).sum().backward()

def without_checkpoint(x):
    net = Plain()
    functional_call(net, {name: 0.9 * p for name, p in net.named_parameters()}, (x,)).sum().backward()
```

## Evidence
```python
import torch
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint

class Net(torch.nn.Module):
    def __init__(self, variant):
        super().__init__()
        torch.manual_seed(0)
        self.block, self.variant = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()), variant

    def forward(self, x):
        return self.block(x) if self.variant is None else checkpoint(self.block, x, use_reentrant=self.variant)

def gradient(variant, factor):
    net, x = Net(variant), torch.linspace(-1, 1, 32).reshape(4, 8).requires_grad_()
    given = {name: (factor * p).detach().requires_grad_() for name, p in net.named_parameters()}
    functional_call(net, given, (x,)).square().sum().backward()
    return given["block.0.weight"].grad, net.block[0].weight.grad

wanted, _ = gradient(None, 3.0)
found, _ = gradient(False, 3.0)
assert (found - wanted).norm() > 0.1 * wanted.norm()
found, misplaced = gradient(True, 3.0)
assert found is None and misplaced is not None

own = Net(False)
x = torch.linspace(-1, 1, 32).reshape(4, 8)
functional_call(own, dict(own.named_parameters()), (x,)).square().sum().backward()
plain = Net(None)
plain(x).square().sum().backward()
assert torch.allclose(own.block[0].weight.grad, plain.block[0].weight.grad)
```

## References
torch 2.13 `torch/nn/utils/stateless.py` (`_reparametrize_module` is undone on return).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Instance
from ..finding import Severity
from ..model.events import ApplyCheckpointing, AutogradGrad, Backward, HfEnable, TorchCheckpoint
from ..model.frozen.given_parameters import are_computed
from ..model.libraries.enabled import is_checkpointed
from ..model.needs import together
from ..model.report import Report
from ..model.tensors.gradient_free import is_gradient_free
from ..model.types import is_hf_model, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Call
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT119", "functional-call-around-checkpoint", Severity.ERROR
NEEDS = together("functional_call", (TorchCheckpoint, ApplyCheckpointing, HfEnable))


def check(run: Run) -> Iterator[Report]:
    """Report parameters that are gone when the recomputation needs them."""
    trains = any(run.of(Backward, AutogradGrad))
    for call in run.calls_to("torch.func.functional_call", "torch.nn.utils.stateless.functional_call"):
        model = unwrapped(call.argument(0, "module"))
        known = isinstance(model, Instance) or is_hf_model(model)
        if not (trains and known) or is_gradient_free(call) or _is_recomputed(run, call):
            continue
        if are_computed(run, call.argument(1, "parameter_and_buffer_dicts")) and is_checkpointed(run, model, call):
            yield Report(
                call.node,
                "the checkpoint inside this module runs again in the backward pass, when these parameters are no "
                "longer in place: gradients are wrong; call it inside the checkpointed function, with the parameters "
                "as its inputs, or without checkpointing",
            )


def _is_recomputed(run: Run, call: Call) -> bool:
    """Whether the call itself stands in a checkpointed function."""
    regions = (run.region(event) for event in run.of(TorchCheckpoint))
    return any(inner.node is call.node for region in regions for inner in region.calls)
