"""A checkpointed lambda or local function that reads a variable the loop will change.

## What it does
Flags a lambda or a function defined in a loop body that is checkpointed in that loop and reads a name the loop binds
anew in every iteration, unless the name is bound as a default argument, and one defined in front of the loop that
reads the loop's own variable. What each iteration sets in a dict or list of all iterations (`index[0] = i`) counts as
such a name, and so does an attribute that each iteration sets and a method or module in the checkpoint computes with
(`self.level = i; checkpoint(self.run, x)`). Silent where the backward pass of an iteration
is over before the next one begins, where the iteration is the last one, and under `torch.no_grad()`. Also a function
that reads a name which the code behind the checkpoint binds anew (`mask = mask.roll(1)`, or what the checkpoint gives),
and one that a loop makes and keeps, as the `forward` of each layer, with the loop's own variable in what it
checkpoints, or that it collects in a list which is checkpointed when the loop is over.

## Why is this bad?
The function runs a second time in the backward pass, after the loop has ended, and then the name means what the last
iteration left in it. The forward pass is right, the loss is right, and every gradient is computed with the last layer:
in the reentrant variant all other layers get none at all.

## Bad
```python
from torch.utils.checkpoint import checkpoint

def forward(layers, x):
    for layer in layers:
        x = x + checkpoint(lambda h: layer(h), x, use_reentrant=False)  # error
    return x
```
```python
from torch.utils.checkpoint import checkpoint

def forward(layers, x, mask):
    for i in range(len(layers)):
        block = layers[i]  # bound in every iteration
        def run(h):
            return block(h, mask)
        x = checkpoint(run, x, use_reentrant=False)  # error
    return x
```
```python
from torch.utils.checkpoint import checkpoint

def forward(layers, x):
    for layer in layers:
        # A block of its own for each layer.
        def run(
            h,  # the hidden states
        ):
            y = layer(h)

            return h + y  # residual

        x = checkpoint(run, x, use_reentrant=False)  # error
    return x
```
```python
import torch
from torch.utils.checkpoint import checkpoint

def forward(layers, x):
    return torch.stack([checkpoint(lambda h: layer(h), x, use_reentrant=False) for layer in layers])  # error
```

```python
from torch.utils.checkpoint import checkpoint

class Net:
    def forward(self, x):
        for layer in self.layers:
            self.layer = layer
            x = checkpoint(lambda h: self.layer(h), x, use_reentrant=False)  # error
        return x
```

```python
from torch.utils.checkpoint import checkpoint

def forward(layers, x):
    index, current = [0], {}
    def run(h):
        return layers[index[0]](h)
    for i in range(len(layers)):
        index[0] = i
        x = checkpoint(run, x, use_reentrant=False)  # error
    for layer in layers:
        current["layer"] = layer
        x = checkpoint(lambda h: current["layer"](h), x, use_reentrant=False)  # error
    return x
```
```python
from torch.utils.checkpoint import checkpoint

class Net:
    def forward(self, x, mask):
        def first(h):
            return self.a(h) * mask
        x = checkpoint(first, x, use_reentrant=False)  # error
        mask = mask.roll(1)
        return self.b(x) * mask
```
```python
from torch.utils.checkpoint import checkpoint

def gated(layer, x):
    x = checkpoint(lambda h: layer(h) * x, x, use_reentrant=False)  # error
    return x.relu()
```
```python
from torch.utils.checkpoint import checkpoint

def enable(model):
    for layer in model.layers:
        layer.inner = layer.forward
        layer.forward = lambda x: checkpoint(layer.inner, x, use_reentrant=False)  # error
```

```python
from torch.utils.checkpoint import checkpoint

class Net:
    def forward(self, x):
        def run(h):
            return self.blocks[i % 3](h)
        for i in range(self.loops):
            x = checkpoint(run, x, use_reentrant=False)  # error
        for i, (kind, block) in enumerate(self.blocks):
            if kind == "mlp":
                x = checkpoint(lambda h: block(h).relu(), x, use_reentrant=False)  # error
            elif i == 0:
                x = checkpoint(lambda h: block(h).relu(), x, use_reentrant=False)  # error
        return x
```
```python
from torch.utils.checkpoint import checkpoint

class Net:
    def forward(self, x, mask):
        for i, block in enumerate(self.blocks):
            seen, scale = mask, i
            x = checkpoint(lambda h: self.out(h) * seen * scale, x, use_reentrant=False)  # error
            if i == 3:
                kept = mask
            x = checkpoint(lambda h: self.out(h, kept), x, use_reentrant=False)  # error
            given = mask
            x = checkpoint(lambda h: self.out(h, given), x, use_reentrant=False)  # error
            given = self.other
            self.mask = block.mask
            used = self.mask
            x = checkpoint(lambda h: self.out(h, used), x, use_reentrant=False)  # error
        return x
```

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def remat(self, function, *args):
        if self.training:
            return checkpoint(function, *args, use_reentrant=False)
        return function(*args)

    def forward(self, x):
        for layer in self.layers:
            x = self.remat(lambda h: layer(h), x)  # error
        return x
```

## Good
```python
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.seen = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)]), []

    def forward(self, x):
        self.seen = []
        for layer in self.layers:
            def inner(h, layer=layer):
                h = layer(h)
                self.seen = [*self.seen, h]
                return h
            x = checkpoint(inner, x, use_reentrant=False)
        return x, sum(h.mean() for h in self.seen)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def remat(self, function, *args):
        return checkpoint(function, *args, use_reentrant=False)

    def plain(self, function, *args):
        return function(*args)

    def forward(self, x, mask):
        for layer in self.layers:
            x = self.remat(lambda h, layer=layer: layer(h) * mask, x)
            x = self.plain(lambda h: layer(h), x)
            x = self.remat(layer, x)
        return self.remat(lambda h: self.layers[0](h), x)
```
```python
from torch.utils.checkpoint import checkpoint

class Net:
    def forward(self, x, *args, mask=None):
        for _ in range(self.loops):
            if self.training:
                given, seen, width = args, mask, self.width
                kept, dim = mask, self.width
                again = kept
                def run(h):
                    return self.block(h, *args, kept, again) * dim
                x = checkpoint(run, x, use_reentrant=False)  # what the loop binds is the same each time
            else:
                x = self.block(x, *args, mask, mask)
        return x
```
```python
from torch.utils.checkpoint import checkpoint

def forward(layers, x, scale):
    state, held = {"scale": scale, "on": True}, {}
    for i, layer in enumerate(layers):
        state["on"] = True  # the same in every iteration
        held["last"] = i  # no region reads it
        fresh = {"layer": layer}
        x = checkpoint(
            lambda h, fresh=fresh: fresh["layer"](h) * state["scale"] if state["on"] else h, x, use_reentrant=False
        )
    return x, held
```
```python
from torch.utils.checkpoint import checkpoint

class Net:
    def forward(self, x, i):
        def run(h, index):
            return self.blocks[index](h)
        def first(h):
            return self.blocks[i](h)
        x = checkpoint(first, x, use_reentrant=False)
        for i in range(1, self.loops):
            x = checkpoint(run, x, i, use_reentrant=False)
        return x

    def step(self, batches):
        def run(h):
            return self.net(h, y)
        for x, y in batches:
            checkpoint(run, x, use_reentrant=False).sum().backward()

    def last(self, x):
        for i, block in enumerate(self.blocks):
            if i == len(self.blocks) - 1:
                x = checkpoint(lambda h: block(h).relu(), x, use_reentrant=False)
            else:
                x = block(x)
        for i, block in enumerate(self.blocks):
            if self.training and block is self.blocks[-1]:
                x = checkpoint(lambda h: block(h).relu(), x, use_reentrant=False)
        for i in range(self.loops):
            if i + 1 < self.loops:
                x = self.blocks[i](x)
                continue
            x = checkpoint(lambda h: self.blocks[i](h).relu(), x, use_reentrant=False)
        for i, block in enumerate(self.blocks):
            is_last = self.training and i == len(self.blocks) - 1
            if is_last:
                x = checkpoint(lambda h: block(h).relu(), x, use_reentrant=False)
        return x
```
```python
from torch.utils.checkpoint import checkpoint

class Net:
    def forward(self, x, mask):
        def first(h):
            return self.a(h) * mask
        x = checkpoint(first, x, use_reentrant=False)
        mask = mask.to(x.dtype)
        if self.shift:
            shifted = mask.roll(1)
        return self.b(x) * shifted

def residual(layer, x):
    x = checkpoint(lambda h: layer(h) + x, x, use_reentrant=False)  # a sum needs no values
    return x.relu()

def enable(model):
    for layer in model.layers:
        layer.inner = layer.forward
        layer.forward = lambda x, layer=layer: checkpoint(layer.inner, x, use_reentrant=False)
```
```python
from functools import partial
from torch.utils.checkpoint import checkpoint

def forward(layers, x, mask):
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=False)
        x = checkpoint(lambda h, layer=layer: layer(h, mask), x, use_reentrant=False)
        x = checkpoint(partial(layer, mask=mask), x, use_reentrant=False)
    return x
```
```python
from torch.utils.checkpoint import checkpoint

def make(block):
    def run(*inputs):
        return block(*inputs)
    return run

def forward(layers, x):
    for layer in layers:
        x = checkpoint(make(layer), x, use_reentrant=False)
    return x

def accumulate(layers, batches):
    for layer, batch in zip(layers, batches):
        # The backward pass of each iteration is over before the name changes.
        checkpoint(lambda h: layer(h), batch, use_reentrant=False).sum().backward()
```
```python
import torch
from torch.utils.checkpoint import checkpoint

class Lit:
    def training_step(self, batches):
        for x, y in batches:
            self.manual_backward(checkpoint(lambda h: self.net(h, y), x, use_reentrant=False).mean())

def penalty(model, batches):
    for x, y in batches:
        out = checkpoint(lambda h: model(h, y), x, use_reentrant=False)
        torch.autograd.grad(out.sum(), list(model.parameters()))

def finish(loss):
    loss.backward()

def with_helper(model, layers, batches):
    for x, y in batches:
        for layer in layers:
            x = checkpoint(lambda h, layer=layer: layer(h, y), x, use_reentrant=False)
        finish(x.sum())

def evaluate(model, batches):
    with torch.no_grad():
        for x, y in batches:
            checkpoint(lambda h: model(h, y), x, use_reentrant=False)

def last(layers, x):
    for layer in layers:
        if layer.last:
            x = checkpoint(lambda h: layer(h), x, use_reentrant=False)
            break
    return x
```

## Fix safety
Safe for a lambda, and for a local function that is only checkpointed: `name=name` keeps what the name means at this
iteration, which is what the forward pass computed with. Unsafe for a function that is also called or handed on, with
its present signature. Not offered when the name is bound between the function and the call.

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint

layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

def gradients(run):
    layers.zero_grad()
    x = torch.ones(2, 4, requires_grad=True)
    for layer in layers:
        x = torch.tanh(run(layer, x)) if run is not None else torch.tanh(layer(x))
    x.sum().backward()
    return [layer.weight.grad for layer in layers]

def late():
    layers.zero_grad()
    x = torch.ones(2, 4, requires_grad=True)
    for layer in layers:
        x = checkpoint(lambda h: torch.tanh(layer(h)), x, use_reentrant=False)
    x.sum().backward()
    return [layer.weight.grad for layer in layers]

def rebound(name_again):
    layers.zero_grad()
    scale, x = torch.full((4,), 2.0), torch.ones(2, 4, requires_grad=True)
    x = checkpoint(lambda h: torch.tanh(layers[0](h) * scale), x, use_reentrant=False)
    if name_again:
        scale = scale * 3
    x.sum().backward()
    return layers[0].weight.grad

assert not torch.allclose(rebound(True), rebound(False))

wanted = gradients(None)
bound = gradients(lambda layer, x: checkpoint(lambda h, layer=layer: layer(h), x, use_reentrant=False))
assert all(torch.equal(a, b) for a, b in zip(bound, wanted))
assert not torch.allclose(late()[0], wanted[0])
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`recompute_fn` calls the function again in the backward pass).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Function, Partial, options
from ..finding import Applicability, Severity
from ..model.events import Checkpoint, TorchCheckpoint
from ..model.regions.late_binding import (
    changed_names,
    is_only_checkpointed,
    leading_call,
    may_be_rebound,
    names_bound_afterwards,
    names_of_finished_loop,
    names_of_last_iteration,
    names_of_later_loop,
)
from ..model.regions.state_of_loop import attributes_of_last_iteration
from ..model.report import BindDefaults, Remark, Report, Rewrite
from ..model.tensors.gradient_free import is_gradient_free

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Call
    from ..model.regions.state_of_loop import SetInLoop
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT105", "late-binding-checkpointed-function", Severity.ERROR
NEEDS = (TorchCheckpoint,)


def check(run: Run) -> Iterator[Report]:
    """Report checkpointed functions that read what changes before the backward pass."""
    for event in run.replayed(Checkpoint):
        if is_gradient_free(event.call):
            continue
        for function in options(event.function):
            function = function.func if isinstance(function, Partial) else function
            if not isinstance(function, Function):
                continue
            leading = leading_call(run, event, function)
            if leading is not None and (names := changed_names(run, event, function, leading)):
                yield _report(run, event, function, leading, names)
            elif names := names_of_finished_loop(run, function, leading):
                yield _report_kept(event, names)
            elif names := names_of_later_loop(run, event, function):
                yield _report_later_loop(event, function, names)
            elif names := names_bound_afterwards(run, event, function):
                yield _report_rebound(run, event, function, names)
        if names := names_of_last_iteration(run, event):
            yield _report_kept(event, names)
        for late in attributes_of_last_iteration(run, event):
            yield _report_state(event, late)


def _report_rebound(run: Run, event: Checkpoint, function: Function, names: tuple[str, ...]) -> Report:
    quoted = _quoted(names)
    return Report(
        event.node,
        f"backward runs this function again when {quoted} already has its next value, so gradients are wrong; bind it "
        "as a default argument or give the new value another name",
        notes=() if function.is_lambda else (Remark(function.node, f"{quoted} is read here when the function runs"),),
        fix=_fix(run, event, function, names),
    )


def _report_later_loop(event: Checkpoint, function: Function, names: tuple[str, ...]) -> Report:
    quoted = _quoted(names)
    return Report(
        event.node,
        f"backward runs this function after the loop, when {quoted} is the last iteration's value, so gradients are "
        "wrong; make it a parameter of the function and pass it to the checkpoint",
        notes=() if function.is_lambda else (Remark(function.node, f"{quoted} is read here when the function runs"),),
    )


def _report_state(event: Checkpoint, late: SetInLoop) -> Report:
    return Report(
        event.node,
        f"backward runs this function after the loop, when `{late.name}` is the last iteration's value, so gradients "
        "are wrong; pass it to the checkpoint as an argument",
        notes=(Remark(late.node, "each iteration sets it"),),
    )


def _report_kept(event: Checkpoint, names: tuple[str, ...]) -> Report:
    return Report(
        event.node,
        f"this checkpoint runs after the loop, when {_quoted(names)} is the last iteration's value, so every function "
        "that the loop made checkpoints the same module; bind it as a default argument",
    )


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _report(run: Run, event: Checkpoint, function: Function, leading: Call, names: tuple[str, ...]) -> Report:
    quoted = _quoted(names)
    notes = [] if function.is_lambda else [Remark(function.node, f"{quoted} is read here when the function runs")]
    is_own = leading.node is event.node
    return Report(
        leading.node,
        f"backward runs this function after the loop, when {quoted} is the last iteration's value, so gradients are "
        "wrong; bind it as a default argument or pass the module itself",
        notes=(*notes, *(() if is_own else (Remark(event.node, "the checkpoint", decides=False),))),
        fix=_fix(run, event, function, names) if is_own else None,
    )


def _fix(run: Run, event: Checkpoint, function: Function, names: tuple[str, ...]) -> Rewrite | None:
    """Bind ``names`` where the function is made, if they mean the same there as in the call."""
    if not all(name.isidentifier() for name in names) or function.is_async or may_be_rebound(event, function, names):
        return None
    return Rewrite(
        Applicability.SAFE if is_only_checkpointed(run, function, event) else Applicability.UNSAFE,
        "Bind " + ", ".join(f"`{name}={name}`" for name in names),
        (BindDefaults(function.node, names),),
    )
