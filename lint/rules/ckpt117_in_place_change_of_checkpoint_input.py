"""A checkpointed function that changes its inputs in place.

## What it does
Flags a checkpointed function or module of this file that changes a tensor it was given, in place, before it binds the
name to something else: `x += ...`, `x.mul_(...)` (also on a view), `torch.relu_(x)`, an activation or a dropout with
`inplace=True` as the first step, also at the head of an `nn.Sequential`. For inputs given by keyword, and for inputs of
the reentrant variant that may need no gradient, changes count that have another effect the second time. Changes of
intermediate results are fine.

Also flags a function that changes what it gave to a non-reentrant checkpoint, after the call: `h += checkpoint(f, h)`.

## Why is this bad?
The recomputation starts from the changed tensor. The non-reentrant variant raises an error for inputs by position, in
the backward pass, and so does the reentrant one for inputs that need a gradient, which are leaves in the recomputation;
for those by keyword, and in the reentrant variant for tensors without a gradient, the change is made twice and
gradients are silently 86 to 125 % off.

## Bad
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        inner = self.up(x).relu()
        x += self.down(inner)
        return x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.activated = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(8, 8), nn.Linear(8, 8))

    def forward(self, x):
        x = checkpoint(self.block, x, use_reentrant=False)  # error
        return checkpoint(self.activated, x, use_reentrant=False)  # error
```
```python
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

def activated(layer, x):
    def run(h):
        return layer(F.relu(h, inplace=True))
    return checkpoint(run, x, use_reentrant=False)  # error

def positional(layer, x):
    def run(h):
        return layer(F.relu(h, True))
    return checkpoint(run, x, use_reentrant=False)  # error

def through_view(layer, x):
    def run(h):
        flat = h.view(-1)
        flat.mul_(2)
        return layer(h)
    return checkpoint(run, x, use_reentrant=False)  # error

def function(layer, x):
    def run(h):
        torch.relu_(h)
        return layer(h)
    return checkpoint(run, x, use_reentrant=False)  # error

def forward(layer, x, mask):
    def run(h, mask):
        mask.mul_(0.5)
        return layer(h) * mask
    return checkpoint(run, x, mask=mask, use_reentrant=False)  # error
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

def first_position(h, bias):
    h[:, 0] += bias
    return h.tanh()

def masked(h, keep):
    h[~keep] = 0
    return torch.tanh(h)

def fill(tensor, mask):
    return tensor.masked_fill_(mask, 0.0)

def through_helper(h, mask):
    return torch.sigmoid(fill(h, mask))

class Block(nn.Module):
    def forward(self, x, residual):
        x += residual
        return self.linear(x)

def forward(block: Block, x, keep, bias):
    x = checkpoint(first_position, x, bias, use_reentrant=False)  # error
    x = checkpoint(masked, x, keep, use_reentrant=False)  # error
    x = checkpoint(through_helper, x * 2, keep, use_reentrant=False)  # error
    return checkpoint(block, x, x * 2, use_reentrant=False)  # error
```

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Down(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.body = nn.Sequential(nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(dim, dim, 3))

    def forward(self, x):
        return self.body(x)

def forward(x):
    return checkpoint(Down(8), x, use_reentrant=False)  # error
```

```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.f = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3))
        self.checkpointing = True

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            update = checkpoint(block, h, use_reentrant=False)  # error
            h += update
        h = self.stem(h)
        h += checkpoint(self.f, h, use_reentrant=False)  # error
        h = self.stem(h)
        if self.checkpointing:
            update = checkpoint(self.f, input=h, use_reentrant=False)  # error
        else:
            update = self.f(h)
        h.add_(update)
        g = self.stem(x)
        update = checkpoint(self.f, g, use_reentrant=False)  # error
        g[:, 0] = 0
        return h + g + update
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.q, self.k, self.v, self.slope = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8), slope

    def forward(self, x, bias=None):
        bias += self.slope
        scores = self.q(x) @ self.k(x).transpose(1, 2)
        return x + (scores + bias).softmax(-1) @ self.v(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 8)
        self.layers = nn.ModuleList(Layer(0.5**i) for i in range(3))

    def make_bias(self, length):
        return torch.full((length, length), -1e4).triu(1)

    def forward(self, ids):
        h, bias = self.embed(ids), self.make_bias(ids.size(1))
        for layer in self.layers:
            h = checkpoint(layer, h, bias=bias, use_reentrant=False)  # error
        return h
```

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

ACTIVATIONS = {"relu": lambda: nn.ReLU(inplace=True), "gelu": nn.GELU}

def before_convolution(width, name):
    return nn.Sequential(ACTIVATIONS[name](), nn.Conv2d(width, width, 3, padding=1))

class Stage(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.blocks = nn.Sequential(*[before_convolution(width, "relu") for _ in range(depth)])

    def forward(self, x):
        return checkpoint(self.blocks, x, use_reentrant=False)  # error

stage = Stage(8, 3)

def train(x):
    stage(nn.functional.normalize(x.requires_grad_())).sum().backward()
```

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Recomputed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args):
        return checkpoint(self.module, *args, use_reentrant=False)  # error

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        inner = self.up(x).relu()
        x += self.down(inner)
        return x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Recomputed(Block())

    def forward(self, x):
        return self.block(x)
```

## Good
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Residual(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.stem, self.f, self.block = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh()), block
        self.checkpointing = True

    def forward(self, x, feats):
        h = self.stem(x)
        h += 1
        h = h + checkpoint(self.f, h, use_reentrant=False)
        h += 1
        update = checkpoint(self.f, h.clone(), use_reentrant=False)
        h += update
        update = checkpoint(self.f, h, use_reentrant=False)
        h = h.clone()
        h[:, 0] = 0
        feats += [checkpoint(self.block, feats, use_reentrant=False)]
        with torch.no_grad():
            update = checkpoint(self.f, h, use_reentrant=False)
            h += update
        if self.checkpointing:
            return h + checkpoint(self.f, h, use_reentrant=False)
        h += self.f(h)
        return h

    def counted(self, x, n):
        for block in self.blocks:
            y = checkpoint(block, x, n, use_reentrant=False)
            n += 1
            if self.checkpointing:
                y = checkpoint(self.f, y, use_reentrant=False)
                continue
            y += torch.zeros(n)
        return y

    def train_step(self, h):
        checkpoint(self.f, h, use_reentrant=False).sum().backward()
        h.zero_()
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.slope = nn.Linear(8, 8), 0.5

    def forward(self, x, bias=None, length=0, counts=None, offset=None, names=None):
        bias = bias * 1
        bias += self.slope
        length += 1
        counts += 1
        offset += self.slope
        names += ["q"]
        if x.requires_grad and bias is None:
            bias += 1
        return ((self.q(x) + bias).softmax(-1) / length / len(names)) + offset.to(x.dtype)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 8)
        self.layers = nn.ModuleList(Layer() for _ in range(3))

    def forward(self, ids):
        h = self.embed(ids)
        bias, counts, offset = torch.zeros(8), torch.zeros(1), torch.arange(8.0)
        for layer in self.layers:
            given = {"counts": counts, "offset": offset, "names": [], "length": ids.size(1)}
            h = checkpoint(layer, h, bias=bias, use_reentrant=False, **given)
        return h
```
```python
import torch
from torch.utils.checkpoint import checkpoint

def fill(tensor, mask):
    tensor = tensor.clone()
    return tensor.masked_fill_(mask, 0.0)

def region(h, step, sizes, mask):
    step += 1
    sizes += [step]
    h = h * 1
    h[:, 0] += 1
    return torch.sigmoid(fill(h, mask)) * step

def forward(x, mask):
    return checkpoint(region, x, 0, [], mask, use_reentrant=False)
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.act, self.down = nn.Linear(8, 32), nn.ReLU(inplace=True), nn.Linear(32, 8)

    def forward(self, x, step=0):
        step += 1
        inner = self.up(x)
        inner = self.act(inner)
        inner += 1
        x = x + self.down(inner)
        x += 1
        return x / step

def run(h, mask):
    mask.masked_fill_(mask > 1, 1.0)
    flat = h.view(-1)
    flat = flat.clone()
    flat.mul_(2)
    return h * mask

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x, mask):
        y = checkpoint(self.block, x, use_reentrant=False)
        y += x
        return checkpoint(run, y, mask=mask, use_reentrant=False)
```

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

ACTIVATIONS = {"relu": lambda: nn.ReLU(inplace=True), "gelu": nn.GELU}

def before_convolution(width, name):
    return nn.Sequential(ACTIVATIONS[name](), nn.Conv2d(width, width, 3, padding=1))

class Stage(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        blocks = [before_convolution(width, "relu") for _ in range(depth)]
        blocks[0] = nn.Conv2d(width, width, 3, padding=1)
        self.blocks = nn.Sequential(*blocks)

    def forward(self, x):
        return checkpoint(self.blocks, x, use_reentrant=False)

stage = Stage(8, 3)

def train(x):
    stage(nn.functional.normalize(x.requires_grad_())).sum().backward()
```

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Recomputed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args):
        return checkpoint(self.module, *args, use_reentrant=False)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        inner = self.up(x).relu()
        x = x + self.down(inner)
        return x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Recomputed(Block())

    def forward(self, x):
        return self.block(x)
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint

layer = torch.nn.Linear(4, 4)

def add(h, mask):
    inner = layer(h)
    h += inner
    return h * mask

def relu(h, mask):
    return layer(torch.nn.functional.relu(h, inplace=True)) * mask

def scale(h, mask):
    mask.mul_(0.5)
    return layer(h).square() * mask

def clean(h, mask):
    inner = layer(h)
    inner += 1
    return inner.relu_() * mask

def gradient(run, variant, keyword=False):
    layer.zero_grad()
    x, mask = torch.ones(2, 4, requires_grad=True) * 2, torch.full((2, 4), 0.5)
    if variant == "plain":
        y = run(x, mask)
    else:
        reentrant = variant == "reentrant"
        y = checkpoint(run, x, use_reentrant=False, mask=mask) if keyword else (
            checkpoint(run, x, mask, use_reentrant=reentrant)
        )
    y.sum().backward()
    return layer.weight.grad.clone()

for run in (add, relu, scale):
    for variant in ("reentrant", "non-reentrant"):
        try:
            found = gradient(run, variant)
        except RuntimeError:
            continue
        assert (run, variant) == (scale, "reentrant")
        assert not torch.allclose(found, gradient(run, "plain"))
assert not torch.allclose(gradient(scale, "non-reentrant", keyword=True), gradient(scale, "plain"))

def after(in_place, keyword):
    h = layer(torch.ones(2, 4))
    inputs, named = ((), {"input": h}) if keyword else ((h,), {})
    y = checkpoint(layer, *inputs, use_reentrant=False, **named)
    h = h.add_(y) if in_place else h + y
    layer.zero_grad()
    (h + y).sum().backward()
    return layer.weight.grad.clone()

try:
    after(in_place=True, keyword=False)
except RuntimeError as error:
    assert "modified by an inplace operation" in str(error)
else:
    raise AssertionError
assert not torch.allclose(after(in_place=True, keyword=True), after(in_place=False, keyword=True))
for variant in ("reentrant", "non-reentrant"):
    assert torch.allclose(gradient(clean, variant), gradient(clean, "plain"))
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`_CheckpointFrame.save_inputs` keeps positional tensors as saved tensors, with
their version; keywords as plain references).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Const, equals, options
from ..finding import Severity
from ..model.calls.call_targets import call_targets
from ..model.events import Checkpoint, CheckpointSequential, TorchCheckpoint
from ..model.regions.given_parameters import GivenParameters
from ..model.regions.own_wrappers import inputs_of
from ..model.report import Remark, Report
from ..model.state.in_place import changes, is_decided, is_dropping, matters, overwriting_head
from ..model.state.later_changes import LaterChanges
from ..model.tensors.gradient_free import is_gradient_free
from ..model.tensors.needs_gradient import needs_gradient
from ..model.tensors.tensor_values import is_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.run import Run
    from ..model.state.in_place import Change

CODE, NAME, SEVERITY = "CKPT117", "in-place-change-of-checkpoint-input", Severity.ERROR
NEEDS = (TorchCheckpoint,)
_HERE = "the input is changed here"


def check(run: Run) -> Iterator[Report]:
    """Report regions that spoil what they are recomputed from."""
    later_changes = LaterChanges(run)
    for event in run.replayed(TorchCheckpoint):
        changed = next(_changed(run, event), None)
        if changed is not None:
            yield Report(
                event.node,
                "the region changes its own input in place, so the recomputation starts from something else: an error "
                "in the backward pass, or wrong gradients; make the change out of place",
                notes=(changed,),
            )
        elif (later := next(_changed_after(later_changes, event), None)) is not None:
            yield Report(
                event.node,
                f"`{later.name}` is changed in place after this call, so the recomputation starts from something else: "
                f"an error in the backward pass, or wrong gradients; make the change out of place",
                notes=(Remark(later.node, _HERE),),
            )


def _changed_after(later_changes: LaterChanges, event: TorchCheckpoint) -> Iterator[Change]:
    """What the caller changes of the inputs of ``event`` when the forward pass of the region is over."""
    if isinstance(event, Checkpoint) and event.reentrant is False and not is_gradient_free(event.call):
        yield from later_changes.after(event)


def _changed(run: Run, event: TorchCheckpoint) -> Iterator[Remark]:
    """What changes an input of ``event`` so that the recomputation fails or comes out otherwise."""
    if is_gradient_free(event.call):
        return
    inputs, in_eval = inputs_of(run, event) if isinstance(event, Checkpoint) else [], run.stays_in_eval(event)
    first = _first_input(event, inputs)
    if event.call.args and first is not None and _is_refused(run, event, first):
        heads = filter(None, map(overwriting_head, options(event.call.args[0])))
        yield from (Remark(head.call.node, _HERE) for head in heads if not (is_dropping(head) and in_eval))
    if not isinstance(event, Checkpoint):
        return
    values = GivenParameters(event.function, inputs, event.function_kwargs)
    for part in call_targets(event.function):
        names = part.parameters()
        given = dict(zip(names, inputs, strict=False))
        by_position = {name for name, value in given.items() if not isinstance(value, Const)}
        for change in changes(run, part.function, given=_tensors({**given, **event.function_kwargs}), values=values):
            if change.in_training and in_eval:
                continue
            refused = change.name in by_position and _is_refused(run, event, given[change.name])
            twice = not change.once and change.name in (by_position | event.function_kwargs.keys())
            if refused or (twice and matters(part.function, change)):
                yield Remark(change.node, _HERE, decides=not is_decided(part.function, change))


def _first_input(event: TorchCheckpoint, inputs: list[Value]) -> Value | None:
    """What the first module of the region gets; None where it is not recomputed, or nothing is shown."""
    match event:
        case Checkpoint() if inputs:
            return inputs[0]
        case CheckpointSequential(segments=segments, input=value) if equals(segments, 1) is not True:
            return value
    return None


def _is_refused(run: Run, event: TorchCheckpoint, given: Value) -> bool:
    """Whether a change of the input ``given``, by position, raises an error in the backward pass.

    The non-reentrant variant compares versions; in the reentrant one the input is a leaf of the graph when it needs a
    gradient, and torch refuses to change leaves in place.
    """
    return event.reentrant is False or (event.reentrant is True and needs_gradient(run, given))


def _tensors(given: dict[str, Value]) -> frozenset[str]:
    """The parameters that are surely given tensors."""
    return frozenset(name for name, value in given.items() if is_tensor(value))
