"""Checkpointing `module.forward` instead of the module.

## What it does
Flags a checkpoint whose function is the `forward` of a module. `super().forward`, `self.forward` and
`Block.forward` of the object itself are left alone: there the caller has gone through the module already. So is a
`forward` that a new `forward` of the same module wraps.
A `forward` that checkpoints itself is reported where nothing on the way to the call changes what decides to make it.

## Why is this bad?
Hooks belong to calling the module: forward hooks, `weight_norm` and `spectral_norm` (which then compute with a stale
weight), FSDP's gathering of parameters. None of them runs, in the forward pass or in the recomputation. With
`fully_shard` it is an error, `got mixed torch.Tensor and DTensor`, in the first step. A `forward` that checkpoints
itself comes to the same call again and ends in a `RecursionError`.

## Bad
```python
from torch.utils.checkpoint import checkpoint

def forward(layers, x):
    for layer in layers:
        x = checkpoint(layer.forward, x, use_reentrant=False)  # error
    return x
```
```python
import torch.nn as nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        return self.head(checkpoint(self.block.forward, x, use_reentrant=False))  # error

net = Net()
fully_shard(net.block)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(8, 2) for _ in range(3))

    def forward(self, x):
        for run in [block.forward for block in self.blocks]:
            x = checkpoint(run, x, use_reentrant=False)  # error
        return x
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self, use_checkpoint=False):
        super().__init__()
        self.use_checkpoint = use_checkpoint
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        if self.use_checkpoint:
            return checkpoint(self.forward, x, use_reentrant=False)  # error
        return self.linear(x).tanh()
```

## Good
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x).tanh()

class Checkpointed(Block):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)

class Switch(Block):
    def run(self, x):
        return checkpoint(self.forward, x, use_reentrant=False)

def forward(layers, codec, x):
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=False)
        x = checkpoint(layer.__call__, x, use_reentrant=False)
        x = checkpoint(layer.forward_features, x, use_reentrant=False)
    return x
```
```python
from torch.utils.checkpoint import checkpoint

class Step:
    def __init__(self, net):
        self.net = net

    def forward(self, x):
        return x + self.net(x)

def run_all(nets, x):
    for step in [Step(net) for net in nets]:
        x = checkpoint(step.forward, x, use_reentrant=False)
    return x

def checkpointed(run):
    def forward(*args, **kwargs):
        return checkpoint(run, *args, use_reentrant=False, **kwargs)

    return forward

def enable(model):
    for layer in model.layers:
        layer.forward = checkpointed(layer.forward)
```

## Fix safety
Unsafe: hooks that were skipped begin to run.

## Evidence
```python
import os
import tempfile
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

calls = []
module = torch.nn.Linear(4, 4)
module.register_forward_hook(lambda *_: calls.append(1))
x = torch.ones(2, 4, requires_grad=True)
checkpoint(module.forward, x, use_reentrant=False)
assert calls == []
checkpoint(module, x, use_reentrant=False)
assert calls == [1]

def problem(name):
    block = torch.nn.Linear(4, 4)
    fully_shard(block, mesh=init_device_mesh("cpu", (1,)))
    try:
        checkpoint(getattr(block, name), x, use_reentrant=False)
    except RuntimeError as error:
        return str(error)
    return ""

def work(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=1)
    assert "mixed torch.Tensor and DTensor" in problem("forward")
    assert problem("__call__") == ""
    dist.barrier()
    os._exit(0)  # gloo's threads may abort an interpreter that ends while they run

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (f"{folder}/store",), nprocs=1)
```

## References
torch 2.13 `torch/nn/modules/module.py` (`_call_impl` runs the hooks).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.identifiers import is_own_object
from ..facts.nodes import attribute, source_text
from ..facts.objects.classes import is_plain
from ..facts.values import Attr, Call, Function, Instance, Method, Partial, Ref, Result, options
from ..finding import Applicability, Severity
from ..model.calls.endless import checkpoints_itself
from ..model.conditions.guards import tests_gradients
from ..model.conditions.possible import ways_at
from ..model.events import Checkpoint, ForwardPatch, Fsdp2Shard, TorchCheckpoint
from ..model.needs import together
from ..model.report import Remark, Replace, Report, Rewrite

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Guard, Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT306", "checkpointed-forward-method", Severity.ERROR
NEEDS = together((".forward", "(self,"), TorchCheckpoint)


def check(run: Run) -> Iterator[Report]:
    """Report checkpoints that go past the hooks of a module."""
    for event in run.of(Checkpoint):
        if checkpoints_itself(run, event):
            yield Report(
                event.node,
                "this function checkpoints itself, and so on without an end, which raises a RecursionError; move what "
                "it computes into another method, and checkpoint that",
            )
            continue
        ways = [
            (function, _method(event, function), under) for function, under in ways_at(_unbound(event), event.place)
        ]
        # One of each block that a loop goes through stands in one place.
        is_chosen = any(method is not ways[0][1] for _, method, _ in ways)
        for function, method, under in ways if is_chosen else ways[:1]:
            module = None if method is None else _module(event, function, method)
            if method is None or module is None or is_own_object(module) or _is_replaced(run, event, method):
                continue
            chosen = tuple(guard for guard in under if is_chosen and not tests_gradients(guard))
            yield _report(run, event, method, module, chosen)


def _report(run: Run, event: Checkpoint, method: ast.Attribute, module: ast.expr, chosen: tuple[Guard, ...]) -> Report:
    """What to say of ``method``, which runs ``module`` and is taken where the conditions ``chosen`` hold."""
    sharded = any(run.of(Fsdp2Shard))
    is_written = event.node.args[:1] == [method] and method.value is module
    change = Replace(method, source_text(module))
    return Report(
        event.node,
        f"`{source_text(method)}` skips the hooks of the module, "
        + ("FSDP's too, and fails on sharded parameters" if sharded else "`weight_norm` and FSDP among them")
        + f"; pass `{source_text(module)}`",
        notes=(Remark(method, "the method is chosen here", chosen),) if chosen else (),
        fix=Rewrite(Applicability.UNSAFE, "Checkpoint the module", (change,)) if is_written else None,
        severity=None if sharded else Severity.WARNING,
    )


def _module(event: Checkpoint, function: Value, method: ast.Attribute) -> ast.expr | None:
    """The module that runs: for `Block.forward` the first input; None for a function or a plain object."""
    match function:
        case Function(owner=None):
            return None
        case Method(receiver=Instance(cls)) if is_plain(cls):
            return None
        case Ref(name) if not name.split(".")[-2][:1].isupper():
            return None
        case Function() | Ref() | Attr(base=Result(call=Call(name="builtins.type")) | Attr(name="__class__")):
            return event.node.args[1] if len(event.node.args) > 1 else None
    return method.value


def _method(event: Checkpoint, function: Value) -> ast.Attribute | None:
    """`module.forward` as it is written in the call, or where it was put into a variable or a list."""
    written = event.node.args[0] if event.node.args else None
    made = function.node if isinstance(function, Method | Attr) else None
    named = (attribute(written), attribute(made))
    return next((node for node in named if node is not None and node.attr == "forward"), None)


def _unbound(event: Checkpoint) -> Value:
    """What is checkpointed, or what a partial of the same function calls; whoever gets one may not know the module."""
    match event.function:
        case Partial(func=function, call=call) if call.place.function is event.place.function:
            return function
    return event.function


def _is_replaced(run: Run, event: Checkpoint, method: ast.Attribute) -> bool:
    """Whether the module gets another `forward`, so that a call of the module comes here, hooks and all."""
    patches = list(run.of(ForwardPatch))
    targets = [target for patch in patches for target in options(patch.target)]
    modules = [it.receiver if isinstance(it, Method) else it.base for it in _bound(_unbound(event))]
    if any(target is module for target in targets for module in modules):
        return True
    written = {source_text(target) for patch in patches for target in getattr(patch.node, "targets", ())}
    # What a function in this one's place puts there may be known by another value, but is called the same.
    return event.place.function is not None and source_text(method) in written


def _bound(value: Value) -> Iterator[Method | Attr]:
    """The methods among the alternatives of ``value``."""
    return (option for option in options(value) if isinstance(option, Method | Attr))
