"""A checkpointed region with side effects in a model compiled with `fullgraph=True`.

## What it does
Flags a checkpoint inside a function or module of this file that `torch.compile(..., fullgraph=True)` compiles, when
what it runs writes an attribute of its module, appends to a list kept there, or prints.

## Why is this bad?
Dynamo traces a checkpointed region as one operator, which may not change anything outside: it raises
`Unsupported: HOP: Unsafe side effect` in the first step. Without `fullgraph` the graph breaks
there and the region runs uncompiled.

## Bad
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.norms = []
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        y = self.linear(x).tanh()
        self.norms.append(y.norm())
        return y

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(3)])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # error
        return x

net = torch.compile(Net(), fullgraph=True)
```

## Good
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.debug = False
        self.calls = 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        if self.debug:
            self.calls += 1
        self.seen.add_(1)
        rows = []
        for row in x:
            rows.append(self.linear(row))
        return torch.stack(rows)

class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.linear(x).tanh()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)

class NotCompiled(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Counting()

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)

net = torch.compile(Net(), fullgraph=True)
partly = torch.compile(NotCompiled())
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint

class Block(torch.nn.Module):
    def __init__(self, effect):
        super().__init__()
        self.linear, self.effect, self.calls, self.norms = torch.nn.Linear(4, 4), effect, 0, []
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        y = self.linear(x).tanh()
        if self.effect == "count":
            self.calls += 1
        elif self.effect == "keep":
            self.last = y.mean()
        elif self.effect == "append":
            self.norms.append(y.norm())
        elif self.effect == "print":
            print("here")
        elif self.effect == "buffer":
            self.seen.add_(1)
        return y * 2

def raised(effect):
    torch._dynamo.reset()
    block = Block(effect)
    run = torch.compile(
        lambda x: checkpoint(block, x, use_reentrant=False), backend="aot_eager", fullgraph=True
    )
    try:
        run(torch.ones(2, 4, requires_grad=True)).sum().backward()
    except torch._dynamo.exc.Unsupported:
        return True
    return False

assert [raised(effect) for effect in ("count", "keep", "append", "print")] == [True] * 4
assert [raised(effect) for effect in ("none", "buffer")] == [False] * 2
```

## References
torch 2.13 `torch/_dynamo/variables/higher_order_ops.py` (checkpoint as a higher-order operator).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.identifiers import is_own_attribute
from ..facts.values import Absent, Instance, equals
from ..finding import Severity
from ..model.events import Compile, TorchCheckpoint
from ..model.needs import together
from ..model.report import Remark, Report

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Call, Value
    from ..model.regions.region import Region
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT315", "compiled-checkpoint-side-effect", Severity.ERROR
NEEDS = together("fullgraph", TorchCheckpoint)


def check(run: Run) -> Iterator[Report]:
    """Report regions that a whole-graph compilation cannot take."""
    whole = [compiling for compiling in run.of(Compile) if equals(compiling.call.keyword("fullgraph"), True) is True]
    inside = {call.node: it for it in whole for value in _compiled(run, it) for call in run.bodies.of(value).calls}
    for event in run.of(TorchCheckpoint):
        compiling = inside.get(event.node)
        effect = _side_effect(run, run.region(event)) if compiling is not None else None
        if compiling is not None and effect is not None:
            yield Report(
                event.node,
                "dynamo refuses side effects inside a checkpoint, and with `fullgraph=True` that raises `Unsupported` "
                "in the first step; move them outside of the checkpointed function",
                notes=(Remark(effect, "this changes something outside"), Remark(compiling.node, "compiled here")),
            )


def _compiled(run: Run, compiling: Compile) -> list[Value]:
    """What is compiled: the module or function that is given, or the function that the call decorates."""
    if not isinstance(compiling.module, Absent):
        return [compiling.module]
    return [it for it in run.program.functions.values() if compiling.node in getattr(it.node, "decorator_list", ())]


def _side_effect(run: Run, region: Region) -> ast.AST | None:
    """Something that every run of the region changes or prints."""
    bodies = {function.node for function in region.functions}
    for write in run.writes:
        function = write.place.function
        ours = function is not None and function.node in bodies and not write.place.guards
        if ours and isinstance(write.obj, Instance) and not write.is_item:
            return write.node
    for call in region.calls:
        if not call.place.guards and (call.name == "builtins.print" or _appends_to_module(call)):
            return call.node
    return None


def _appends_to_module(call: Call) -> bool:
    method = call.attribute
    return method is not None and method.attr in ("append", "extend") and is_own_attribute(method.value)
