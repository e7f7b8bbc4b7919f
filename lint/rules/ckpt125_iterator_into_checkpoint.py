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
from torch.utils.checkpoint import checkpoint

def block(x, pairs):
    for weight, bias in pairs:
        x = x @ weight + bias
    return x

def forward(x, weights, biases):
    x = checkpoint(block, x, zip(weights, biases), use_reentrant=False)  # error
    pairs = ((weight, bias) for weight, bias in zip(weights, biases))
    x = checkpoint(block, x, pairs, use_reentrant=False)  # error
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

## Good
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

def forward(x, weights, biases, layers, batch):
    x = checkpoint(block, x, list(zip(weights, biases)), use_reentrant=False)
    x = checkpoint(inside, x, weights, batch, use_reentrant=False)
    x = checkpoint(stacked, x, [], use_reentrant=False)
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

import ast
from typing import TYPE_CHECKING

from ..facts.scopes import bound_names
from ..facts.values import Function, Result, Seq, Unknown, Value, options
from ..finding import Severity
from ..model.events import Checkpoint, TorchCheckpoint
from ..model.regions.call_targets import call_targets
from ..model.regions.free_variables import free_names
from ..model.report import Remark, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT125", "iterator-into-checkpoint", Severity.ERROR
NEEDS = (TorchCheckpoint,)
_ITERATORS = tuple(f"builtins.{name}" for name in ("iter", "zip", "map", "filter", "enumerate", "reversed"))


def check(run: Run) -> Iterator[Report]:
    """Report regions that use up what the recomputation needs."""
    for event in run.of(Checkpoint):
        found = _iterator(event) or _advanced(run, event) or _popped(event)
        if found is not None:
            what, node = found
            yield Report(
                event.node,
                f"this region runs again in the backward pass, and then {what}; make a list of it, or take it before "
                f"the checkpoint",
                notes=(Remark(node, "consumed by the forward pass"),),
            )


def _iterator(event: Checkpoint) -> tuple[str, ast.AST] | None:
    """An input that is certainly an iterator."""
    for value in (*event.inputs, *event.function_kwargs.values()):
        node = value.node
        if node is not None and all(_is_iterator(option) for option in options(value)):
            return "the iterator it gets is used up", node
    for argument in event.node.args[1:]:
        if isinstance(argument, ast.Call) and isinstance(argument.func, ast.Name) and argument.func.id == "iter":
            return "the iterator it gets is used up", argument
    return None


def _is_iterator(value: Value) -> bool:
    match value:
        case Result(call):
            return call.name in _ITERATORS
        case Seq():
            return isinstance(value.node, ast.GeneratorExp)
        case Unknown():
            # What a function of the file returned whose result is not followed: a coroutine or a generator.
            return isinstance(value.node, ast.FunctionDef) and _yields(value.node)
    return False


def _yields(function: ast.FunctionDef) -> bool:
    nested = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    stack: list[ast.AST] = [*function.body]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, nested):
            stack += ast.iter_child_nodes(node)
    return False


def _advanced(run: Run, event: Checkpoint) -> tuple[str, ast.AST] | None:
    """``next`` on an iterator that the region does not make itself."""
    for call in run.region(event).calls_to("builtins.next"):
        function, taken = call.place.function, call.node.args[0] if call.node.args else None
        match taken:
            case ast.Name(id=name) if function is not None and _is_from_outside(function, name):
                return f"`next({name})` gives the next value instead of the same one", call.node
            case ast.Attribute(value=ast.Name(id="self")):
                return f"`next({ast.unparse(taken)})` gives the next value instead of the same one", call.node
    return None


def _is_from_outside(function: Function, name: str) -> bool:
    """Whether ``name`` belongs to a scope around ``function`` and does more than count."""
    made = function.scope.look_up(name)
    counts = isinstance(made, Result) and made.call.name == "itertools.count"
    return name in free_names(function.node) and not counts


def _popped(event: Checkpoint) -> tuple[str, ast.AST] | None:
    """``parameter.pop(...)`` in the checkpointed function."""
    for body in call_targets(event.function):
        own = set(body.parameters()) - set(bound_names(body.function.node))
        for node in ast.walk(body.function.node):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="pop"), args=given) if name in own:
                    if given or _is_only_popped(body.function, name):
                        return f"what `{name}.pop` took is gone", node
    return None


def _is_only_popped(function: Function, name: str) -> bool:
    """Whether nothing in ``function`` can put back what it takes from ``name``."""
    uses = [node for node in ast.walk(function.node) if isinstance(node, ast.Name) and node.id == name]
    pops = [node.value for node in ast.walk(function.node) if isinstance(node, ast.Attribute) and node.attr == "pop"]
    return all(use in pops for use in uses)
