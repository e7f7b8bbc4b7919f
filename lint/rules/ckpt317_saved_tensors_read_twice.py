"""A custom autograd function in a checkpoint whose `backward` reads `ctx.saved_tensors` twice.

## What it does
Flags the second `ctx.saved_tensors` in the `backward` of a `torch.autograd.Function` that a non-reentrant checkpoint
runs, where every way to it comes by the first one: `if ctx.needs_input_grad[0]:` is taken where that input is a
parameter, or what a layer gave. Functions that `backward` hands its `ctx` to are read too.
Checkpoints of transformers count for what the program puts into the layers: `LlamaRMSNorm.forward = fused`, a class in
place of such a class, or `layer.input_layernorm = Fused(...)`.

## Why is this bad?
Each read unpacks all saved tensors again. A non-reentrant checkpoint drops a recomputed tensor as soon as it is
unpacked, so the second read raises `CheckpointError` in the first backward pass. Without a checkpoint, and with the
reentrant variant, the same function works, so its own tests pass.

## Bad
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * torch.sigmoid(b)

    @staticmethod
    def backward(ctx, grad):
        grad_a = grad * torch.sigmoid(ctx.saved_tensors[1])
        a, b = ctx.saved_tensors  # error
        s = torch.sigmoid(b)
        return grad_a, grad * a * s * (1 - s)

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return x + Gate.apply(self.a(x), self.b(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x
```
```python
import torch
from torch.utils.checkpoint import checkpoint

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        x = ctx.saved_tensors[0]
        weight = ctx.saved_tensors[1]  # error
        return grad * weight, (grad * x).sum(0)

scale = Scale.apply

def run(linear, weight, x):
    return checkpoint(lambda h: linear(scale(h, weight)), x, use_reentrant=False)
```
```python
import torch
from torch.utils.checkpoint import checkpoint

def scaled(grad, context):
    return grad * context.saved_tensors[1]

class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        return scaled(grad, ctx), Product.of_weight(ctx, grad=grad)

    @staticmethod
    def of_weight(ctx, grad):
        x, _ = ctx.saved_tensors  # error
        return (grad * x).sum(0)

def run(linear, weight, x):
    return checkpoint(lambda h: linear(Product.apply(h, weight)), x, use_reentrant=False)
```

## Good
```python
import torch
from torch.utils.checkpoint import checkpoint

class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        if ctx.needs_input_grad[1]:
            x, weight = ctx.saved_tensors
            return grad * weight, (grad * x).sum(0)
        weight = ctx.saved_tensors[1]
        return grad * weight, None

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].exp() * torch.ones_like(ctx.saved_tensors[0])

def run(linear, weight, x):
    x = checkpoint(lambda h: linear(Once.apply(h, weight)), x, use_reentrant=False)
    x = checkpoint(lambda h: linear(Twice.apply(h)), x, use_reentrant=True)
    return Twice.apply(x)
```
```python
import torch
from torch.utils.checkpoint import checkpoint

def of_input(ctx, grad):
    if not ctx.needs_input_grad[0]:
        return None
    return grad * ctx.saved_tensors[1]

def scaled(grad, weight):
    return grad * weight

class Helped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, grad):
        if not ctx.needs_input_grad[1]:
            return of_input(ctx, grad), None
        x, weight = ctx.saved_tensors
        return scaled(grad, weight), Helped.of_weight(grad, x)

    @staticmethod
    def of_weight(grad, x):
        return (grad * x).sum(0)

class MaybeHelped(Helped):
    @staticmethod
    def backward(ctx, grad):
        grad_x = of_input(ctx, grad)
        return grad_x, None if grad_x is not None else (grad * ctx.saved_tensors[0]).sum(0)

def run(linear, weight, x):
    x = checkpoint(lambda h: linear(Helped.apply(h, weight)), x, use_reentrant=False)
    return checkpoint(lambda h: linear(MaybeHelped.apply(h, weight)), x, use_reentrant=False)
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint

class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.exp()

class Twice(Once):
    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0].exp() * torch.ones_like(ctx.saved_tensors[0])

linear = torch.nn.Linear(4, 4)

def raises(function, **options):
    x = torch.randn(2, 4, requires_grad=True)
    body = lambda h: linear(function.apply(linear(h))).tanh()
    y = checkpoint(body, x, **options) if options else body(x)
    try:
        y.sum().backward()
    except Exception as error:
        return type(error).__name__
    return None

assert raises(Twice, use_reentrant=False) == "CheckpointError"
assert raises(Twice, use_reentrant=False, determinism_check="none") == "CheckpointError"
for function, options in (
    (Twice, {}), (Twice, {"use_reentrant": True}), (Once, {"use_reentrant": False}), (Once, {"use_reentrant": True})
):
    assert raises(function, **options) is None
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`_checkpoint_hook.unpack_hook`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..facts.values import Absent, Result
from ..finding import Severity
from ..model.events import Checkpointing, GradientSwitch, HfEnable
from ..model.flow.saved_tensor_reads import second_reads
from ..model.known_models.replaced_parts import replaced_in_layers
from ..model.libraries.enabled import enablings
from ..model.names import canonical
from ..model.needs import SWITCHED_ON, together
from ..model.report import Remark, Report
from ..model.tensors.gradient_free import is_gradient_free
from ..model.tensors.needs_gradient import needs_gradient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.events import Event
    from ..model.regions.region import Region
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT317", "saved-tensors-read-twice", Severity.ERROR
NEEDS = (
    *together("saved_tensors", Checkpointing),
    *together("saved_tensors", "transformers", (HfEnable, *SWITCHED_ON)),
)


def check(run: Run) -> Iterator[Report]:
    """Report reads that unpack what the checkpoint has given away already."""
    reported = set()
    for cause, region in (*_checkpointed(run), *_in_layers(run)):
        for call, first, second in second_reads(region, partial(_needs_gradient, run)):
            if second in reported or is_gradient_free(call):
                continue
            reported.add(second)
            yield Report(
                second,
                "a non-reentrant checkpoint gives each saved tensor once, so this second read raises `CheckpointError` "
                "in the backward pass; read `ctx.saved_tensors` once",
                notes=(
                    Remark(first, "the first read"),
                    Remark(cause.node, "the checkpoint that runs this function", region.conditions_of(call)),
                ),
            )


def _needs_gradient(run: Run, value: Value) -> bool:
    """Whether ``value`` is what a module with weights gave, or a parameter, in a program that freezes nothing."""
    match value:
        case Result(call) if canonical(call.name) == "torch.nn.Parameter":
            switched = isinstance(call.argument(1, "requires_grad"), Absent)
            return switched and not any(run.of(GradientSwitch))
    return needs_gradient(run, value)


def _checkpointed(run: Run) -> Iterator[tuple[Event, Region]]:
    return ((event, region) for event, region in run.regions() if event.reentrant is False)


def _in_layers(run: Run) -> Iterator[tuple[Event, Region]]:
    """The program's own code in the layers of models that transformers checkpoints."""
    for enabling in enablings(run):
        if enabling.reentrant is False:
            for value in replaced_in_layers(run, enabling.model):
                yield enabling.event, run.bodies.of(value)
