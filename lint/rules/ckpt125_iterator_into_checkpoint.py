"""A checkpointed region that consumes what it is given: an iterator, or an entry that is popped.

## What it does
Flags a `zip`, `map`, `filter`, `enumerate`, `reversed`, `iter` or generator as an input of a checkpoint, `next(...)` on
an iterator from outside the region, and `.pop(...)` on a parameter of the checkpointed function. Iterators made inside
the region and `**kwargs`, which are new for each run, are fine.

## Why is this bad?
The region runs a second time in the backward pass, and what was consumed is gone: the loop over the iterator does not
run (a `CheckpointError`, or no gradients in the reentrant variant), `next` gives the next value instead of the same one
(wrong gradients without an error), and the popped key is missing.

## Bad
```python
import itertools
from torch.utils.checkpoint import checkpoint

def block(x, pairs):
    for weight, bias in pairs:
        x = x @ weight + bias
    return x

def forward(x, weights, biases):
    x = checkpoint(block, x, zip(weights, biases), use_reentrant=False)  # error
    pairs = ((weight, bias) for weight, bias in zip(weights, biases))
    x = checkpoint(block, x, pairs, use_reentrant=False)  # error
    x = checkpoint(block, x, itertools.islice(pairs, 2), use_reentrant=False)  # error
    return checkpoint(block, x, in_turn(weights, biases), use_reentrant=False)  # error

def in_turn(weights, biases):
    for weight, bias in zip(weights, biases):
        yield weight, bias
```
```python
from torch.utils.checkpoint import checkpoint

def forward(x, layer, noises):
    noise = iter(noises)
    def block(h):
        return layer(h) + next(noise)
    return checkpoint(block, x, use_reentrant=False)  # error
```
```python
from torch.utils.checkpoint import checkpoint

def block(x, batch):
    mask = batch.pop("mask")
    return x * mask

def last(x, masks):
    return x * masks.pop()

def forward(x, batch, masks):
    x = checkpoint(last, x, masks, use_reentrant=False)  # error
    return checkpoint(block, x, batch, use_reentrant=False)  # error
```

```python
from torch.utils.checkpoint import checkpoint

def up(layers, x, skips):
    for layer in layers:
        def run(h, layer=layer):
            return layer(h + skips.pop())
        x = checkpoint(run, x, use_reentrant=False)  # error
    return x
```

```python
from torch import nn
from torch.utils.checkpoint import checkpoint

class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x, skips):
        return self._forward_impl(x, skips)

    def _forward_impl(self, x, skips):
        for layer in self.layers:
            x = layer(x + skips.pop())
        return x

def decode(up: Up, x, skips):
    return checkpoint(up, x, skips, use_reentrant=False)  # error
```

## Good
```python
from torch import nn
from torch.utils.checkpoint import checkpoint

class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(2))

    def forward(self, x, skips):
        return self._forward_impl(x, list(skips))

    def _forward_impl(self, x, skips):
        for layer in self.layers:
            x = layer(x + skips.pop())
        return x

def decode(up: Up, x, skips):
    return checkpoint(up, x, skips, use_reentrant=False)
```

```python
from itertools import count
from torch.utils.checkpoint import checkpoint

def block(x, pairs, **options):
    scale = options.pop("scale", 1.0)
    for weight, bias in pairs:
        x = scale * (x @ weight + bias)
    return x

def stacked(x, stack):
    stack.append(x)
    return x * stack.pop()

calls = count()

def inside(x, weights, batch):
    print(next(calls))
    batch = dict(batch)
    mask = batch.pop("mask")
    rest = iter(weights)
    return x @ next(rest) @ next(iter(weights)) * mask

def forward(x, weights, biases, layers, batch, **options):
    x = checkpoint(block, x, list(zip(weights, biases)), use_reentrant=False)
    x = checkpoint(inside, x, weights, batch, use_reentrant=False)
    x = checkpoint(stacked, x, [], use_reentrant=False)
    x = checkpoint(lambda h, entry=layers.pop(): entry(h), x, use_reentrant=False)
    x = checkpoint(lambda h: h * options.pop("scale", 1.0), x, use_reentrant=False)
    order = iter(layers)
    return checkpoint(next(order), x, use_reentrant=False)
```

## Evidence
```python
import torch
from torch.utils.checkpoint import CheckpointError, checkpoint

weights = [torch.full((3, 3), value, requires_grad=True) for value in (0.2, 0.5)]

def product(x, matrices):
    for matrix in matrices:
        x = torch.tanh(x @ matrix)
    return x

def gradients(run):
    for weight in weights:
        weight.grad = None
    run(torch.ones(2, 3, requires_grad=True)).sum().backward()
    return [weight.grad for weight in weights]

wanted = gradients(lambda x: product(x, weights))
got = gradients(lambda x: checkpoint(product, x, weights, use_reentrant=False))
assert all(torch.allclose(a, b) for a, b in zip(got, wanted))
try:
    gradients(lambda x: checkpoint(product, x, iter(weights), use_reentrant=False))
except CheckpointError:
    pass
else:
    raise AssertionError("torch must notice")
assert gradients(lambda x: checkpoint(product, x, iter(weights), use_reentrant=True)) == [None, None]

def silent(x):
    scales = iter([1.0, 5.0])
    return checkpoint(lambda h: torch.tanh(h @ weights[0]) * next(scales), x, use_reentrant=False)

once = gradients(lambda x: torch.tanh(x @ weights[0]))
assert torch.allclose(gradients(silent)[0], once[0])  # a factor at the end is kept by the graph ...

def silent(x):
    scales = iter([1.0, 5.0])
    return checkpoint(lambda h: torch.tanh(h @ weights[0] * next(scales)), x, use_reentrant=False)

assert not torch.allclose(gradients(silent)[0], once[0], rtol=0.1)  # ... anything before it is not

def popped(x, batch):
    return torch.sin(x * batch.pop("mask"))

try:
    x = torch.ones(3, requires_grad=True)
    checkpoint(popped, x, {"mask": torch.ones(3)}, use_reentrant=False).sum().backward()
except KeyError:
    pass
else:
    raise AssertionError("the entry must be gone")
```

## References
torch 2.13 `torch/utils/checkpoint.py` (inputs that are no tensors are kept as they are).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Severity
from ..model.events import Checkpoint, TorchCheckpoint
from ..model.regions.consumed import consumed
from ..model.report import Remark, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT125", "iterator-into-checkpoint", Severity.ERROR
NEEDS = (TorchCheckpoint,)


def check(run: Run) -> Iterator[Report]:
    """Report regions that use up what the recomputation needs."""
    for event in run.of(Checkpoint):
        found = consumed(run, event)
        if found is not None:
            yield Report(
                event.node,
                f"this region runs again in the backward pass, and then {found.text}; make a list of it, or take it "
                "before the checkpoint",
                notes=(Remark(found.node, "consumed by the forward pass"),),
            )
