"""A checkpointed lambda or local function that reads a variable the loop will change.

## What it does
Flags a lambda or a function defined in a loop body that is checkpointed in that loop and reads a name the loop binds
anew in every turn, unless the name is bound as a default argument. Silent where the backward pass of a turn is over
before the next one begins, where the turn is the last one, and under `torch.no_grad()`.

## Why is this bad?
The function runs a second time in the backward pass, after the loop has ended, and then the name means what the last
turn left in it. The forward pass is right, the loss is right, and every gradient is computed with the last layer: in
the reentrant variant all other layers get none at all.

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
        block = layers[i]  # bound in every turn
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

## Good
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
        # The backward pass of each turn is over before the name changes.
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
turn, which is what the forward pass computed with. Unsafe for a function that is also called or handed on, with its
present signature. Not offered when the name is bound between the function and the call.

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

wanted = gradients(None)
bound = gradients(lambda layer, x: checkpoint(lambda h, layer=layer: layer(h), x, use_reentrant=False))
assert all(torch.equal(a, b) for a, b in zip(bound, wanted))
assert not torch.allclose(late()[0], wanted[0])
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`recompute_fn` calls the function again in the backward pass).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..facts.objects.containers import length_of
from ..facts.values import Function, Partial, options
from ..finding import Applicability, Severity
from ..model.events import AutogradGrad, Backward, Checkpoint, GradientSwitch, TorchCheckpoint
from ..model.regions.free_variables import free_names, names_bound_by
from ..model.report import BindDefaults, Remark, Report, Rewrite
from ..model.state.gradless import is_gradless
from ..model.state.modes import is_gradient_free

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.places import Loop
    from ..facts.values import FunctionNode
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT105", "late-binding-checkpointed-function", Severity.ERROR
NEEDS = (TorchCheckpoint,)


def check(run: Run) -> Iterator[Report]:
    """Report checkpointed functions that read what their loop changes before the backward pass."""
    for event in run.replayed(Checkpoint):
        if not event.place.loops or is_gradient_free(event.call):
            continue
        for function in options(event.function):
            function = function.func if isinstance(function, Partial) else function
            if isinstance(function, Function) and (names := _changing(run, function, event)):
                yield _report(run, event, function, names)


def _changing(run: Run, function: Function, event: Checkpoint) -> tuple[str, ...]:
    """The names ``function`` reads that a loop around both it and the checkpoint binds before the backward pass."""
    if function.place.function is not event.place.function:
        return ()
    read = free_names(function.node) | _attributes(function.node, ast.Load)
    found: set[str] = set()
    for loop in function.place.loops:
        names = read & (names_bound_by(loop) | _attributes(loop, ast.Store)) if loop in event.place.loops else ()
        ends = _ends_in_turn(run, event, loop) or _is_last_turn(loop, event.node)
        if names and not ends and not _replays_last_turn_only(run, event, loop):
            found.update(names)
    return tuple(sorted(found))


def _attributes(node: ast.AST, context: type[ast.expr_context]) -> frozenset[str]:
    """The attributes of the object itself that ``node`` reads, or sets: `self.layer`."""
    return frozenset(
        f"self.{part.attr}"
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, context) and _is_self(part.value)
    )


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _ends_in_turn(run: Run, event: Checkpoint, loop: Loop) -> bool:
    """Whether the backward pass runs in the same turn of ``loop``, there or in a function called there."""
    backward = list(run.of(Backward, AutogradGrad))
    if any(loop in it.place.loops and it.place.function is event.place.function for it in backward):
        return True
    followed = {node for it in backward for node in it.place.stack}
    return bool(followed) and any(node in followed for node in ast.walk(loop))


def _is_last_turn(loop: Loop, node: ast.AST) -> bool:
    """Whether ``loop`` is left after the statement with ``node``, so that no other turn binds its names."""
    return not isinstance(loop, ast.comprehension) and _leaves(loop.body, node, own=True)


def _leaves(body: list[ast.stmt], node: ast.AST, own: bool) -> bool:
    """Whether ``body`` holds ``node`` and ends the loop behind it; a `break` does only where ``own`` says so."""
    ends = (ast.Return, ast.Raise, ast.Break) if own else (ast.Return, ast.Raise)
    for index, statement in enumerate(body):
        if any(part is node for part in ast.walk(statement)):
            inside = own and not isinstance(statement, ast.For | ast.AsyncFor | ast.While)
            return any(isinstance(later, ends) for later in body[index:]) or any(
                _leaves(inner, node, inside) for inner in _bodies(statement)
            )
    return False


def _replays_last_turn_only(run: Run, event: Checkpoint, loop: Loop) -> bool:
    """Whether nothing trains in front of the last block, so that only its region runs again, with the right name."""
    blocks, frozen = _count(event, loop), max(map(_frozen_first, run.of(GradientSwitch)), default=0)
    last = blocks is not None and 0 < blocks - 1 <= frozen
    return last and all(is_gradless(run, value) for value in event.inputs)


def _count(event: Checkpoint, loop: Loop) -> int | None:
    """How many blocks the attribute `self.blocks` holds that ``loop`` goes through."""
    function = event.place.function
    owner = function.owner if function is not None else None
    iterated = loop.iter if isinstance(loop, ast.For | ast.AsyncFor | ast.comprehension) else None
    names = [part.attr for part in ast.walk(iterated) if isinstance(part, ast.Attribute)] if iterated else []
    if owner is None or len(names) != 1 or names[0] not in owner.fields:
        return None
    return length_of(owner.fields[names[0]])


def _frozen_first(switch: GradientSwitch) -> int:
    """How many of the first blocks ``switch`` freezes: `for block in model.blocks[:2]`."""
    loops = (loop.iter for loop in switch.place.loops if isinstance(loop, ast.For) and switch.freezes)
    for node in (part for passed in loops for part in ast.walk(passed)):
        match node:
            case ast.Slice(lower=None, upper=ast.Constant(value=int(number)), step=None):
                return number
    return 0


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of statements directly in ``statement``."""
    parts = (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ()))
    for part in parts:
        for field in ("body", "orelse", "finalbody"):
            block = getattr(part, field, None)
            if isinstance(block, list):
                yield block


def _report(run: Run, event: Checkpoint, function: Function, names: tuple[str, ...]) -> Report:
    node = function.node
    quoted = ", ".join(f"`{name}`" for name in names)
    is_lambda = isinstance(node, ast.Lambda)
    return Report(
        event.node,
        f"backward runs this function after the loop, when {quoted} is the last iteration's value, so gradients are "
        "wrong; bind it as a default argument or pass the module itself",
        notes=() if is_lambda else (Remark(node, f"{quoted} is read here when the function runs"),),
        fix=_fix(run, event, node, names),
    )


def _fix(run: Run, event: Checkpoint, node: FunctionNode, names: tuple[str, ...]) -> Rewrite | None:
    """Bind ``names`` where the function is made, if they mean the same there as in the call."""
    attributes = any("." in name for name in names)
    if (
        attributes
        or isinstance(node, ast.AsyncFunctionDef)
        or any(_is_bound_between(loop, node, event, names) for loop in _around(event))
    ):
        return None
    only_here = isinstance(node, ast.Lambda) or _is_only_checkpointed(run, node, event)
    return Rewrite(
        Applicability.SAFE if only_here else Applicability.UNSAFE,
        "Bind " + ", ".join(f"`{name}={name}`" for name in names),
        (BindDefaults(node, names),),
    )


def _around(event: Checkpoint) -> list[ast.stmt]:
    return [loop for loop in event.place.loops if isinstance(loop, ast.stmt)]


def _is_bound_between(loop: ast.stmt, function: FunctionNode, event: Checkpoint, names: tuple[str, ...]) -> bool:
    """Whether a statement between the function and the one that checkpoints it binds one of ``names``."""
    made = (function.end_lineno or function.lineno, function.end_col_offset or 0)
    used = event.node.lineno, event.node.col_offset
    for statement in ast.walk(loop):
        if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For | ast.With):
            between = made <= (statement.lineno, statement.col_offset) < used
            if between and not any(node is event.node for node in ast.walk(statement)):
                stored = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and _is_store(node)}
                if not stored.isdisjoint(names):
                    return True
    return False


def _is_store(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _is_only_checkpointed(run: Run, node: ast.FunctionDef, event: Checkpoint) -> bool:
    """Whether the function's name is read for nothing but being checkpointed."""
    function = event.place.function
    body = run.program.tree if function is None else function.node
    checkpointed = [other.node.args[0] for other in run.of(Checkpoint) if other.node.args]
    return all(
        any(part is read for part in checkpointed)
        for read in ast.walk(body)
        if isinstance(read, ast.Name) and read.id == node.name and isinstance(read.ctx, ast.Load)
    )
