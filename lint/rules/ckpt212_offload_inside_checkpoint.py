"""Offloading saved tensors inside a checkpointed region.

## What it does
Flags `checkpoint_wrapper(offload_wrapper(module))`, and `save_on_cpu()` entered in a function that is checkpointed,
wherever it was made: `with self.offload:`.

## Why is this bad?
The inner hooks see the saved tensors first and move all of them to the CPU, so the checkpoint has nothing left to drop:
nothing is recomputed and every activation is copied to the host (measured: 11 times the bytes). The other way round
only the region's inputs are offloaded and the rest is recomputed, which is what the combination is for.

## Bad
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, offload_wrapper

def wrap(block):
    return checkpoint_wrapper(offload_wrapper(block))  # error
```
```python
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint

def forward(block, x):
    def run(h):
        with save_on_cpu():  # saves everything
            return block(h)
    return checkpoint(run, x, use_reentrant=False)  # error
```
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)

def compose(*functions):
    def run(module):
        for function in functions:
            module = function(module)  # error
        return module
    return run

def save_memory(model, block):
    wrap = compose(offload_wrapper, checkpoint_wrapper)
    apply_activation_checkpointing(model, wrap, lambda module: isinstance(module, block))
```

## Good
```python
from torch.autograd.graph import save_on_cpu
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, offload_wrapper
from torch.utils.checkpoint import checkpoint

def wrap(block):
    return offload_wrapper(checkpoint_wrapper(block))

def forward(block, x):
    with save_on_cpu():
        return checkpoint(block, x, use_reentrant=False)
```
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
    offload_wrapper,
)

def compose(*functions):
    def run(module):
        for function in functions:
            module = function(module)
        return module
    return run

def save_memory(model, block):
    wrap = compose(checkpoint_wrapper, offload_wrapper)
    apply_activation_checkpointing(model, wrap, lambda module: isinstance(module, block))
```

## Evidence
```python
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, offload_wrapper

def runs(wrap):
    count = 0
    block = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 8))

    def seen(module, args):
        nonlocal count
        count += 1

    block[0].register_forward_pre_hook(seen)
    wrap(block)(torch.ones(2, 8, requires_grad=True)).sum().backward()
    return count

assert runs(checkpoint_wrapper) == 2
assert runs(lambda block: offload_wrapper(checkpoint_wrapper(block))) == 2
assert runs(lambda block: checkpoint_wrapper(offload_wrapper(block))) == 1  # nothing is recomputed
```

## References
torch 2.13 `torch/autograd/graph.py` (the innermost `saved_tensors_hooks` win).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Call, Result, conditional_options
from ..finding import Severity
from ..model.events import CheckpointWrap
from ..model.names import canonical
from ..model.report import Remark, Report

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Guard, Place, Value
    from ..model.events import Checkpointing
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT212", "offload-inside-checkpoint", Severity.ERROR
NEEDS = ("offload_wrapper", ("save_on_cpu", "checkpoint"))
_SAVE = "torch.autograd.graph.save_on_cpu"
_ENTERING = ("__enter__", "enter_context")
_OFFLOAD = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.offload_wrapper"


def check(run: Run) -> Iterator[Report]:
    """Report checkpoints whose inside keeps its saved tensors on the CPU."""
    for event, region in run.regions():
        if isinstance(event, CheckpointWrap) and isinstance(event.module, Result):
            inner = event.module.call
            if canonical(inner.name) == _OFFLOAD:
                yield _report(event.node, inner.node)
                continue
        for call in region.calls_to(_SAVE):
            yield _report(event.node, call.node)
        for call in region.method_calls(*_ENTERING):
            under = _offloads(run, event, call)
            if under is not None:
                yield _report(event.node, call.node, (*region.conditions_of(call), *under))


def _offloads(run: Run, event: Checkpointing, call: Call) -> tuple[Guard, ...] | None:
    """The conditions under which ``call`` enters an offloading that was made elsewhere: `with self.offload:`.

    None where it enters something else, as the same statement does for another object.
    """
    found = [_offloading(fact) for fact in run.met(call.node) if isinstance(fact, Call)]
    return _offloading(call) if None not in found and _is_of_same_object(event.place, call.place) else None


def _is_of_same_object(checkpoint: Place, entering: Place) -> bool:
    """Whether the body was looked at by itself, or for the caller of the checkpoint and not for another object."""
    is_same_walk = entering.walk == checkpoint.walk
    return not entering.stack or (is_same_walk and entering.stack[: len(checkpoint.stack)] == checkpoint.stack)


def _offloading(call: Call) -> tuple[Guard, ...] | None:
    entered = call.receiver if call.method == "__enter__" else call.argument(0, "cm")
    meant = conditional_options(entered)
    under = [conditions for option, conditions in meant if _is_offloading(option)]
    is_chosen = len(under) == len(meant) or all(under)
    return under[0] if under and is_chosen else None


def _is_offloading(value: Value) -> bool:
    return isinstance(value, Result) and canonical(value.call.name) == _SAVE


def _report(node: ast.Call, inner: ast.Call, conditions: tuple[Guard, ...] = ()) -> Report:
    return Report(
        node,
        "offloading inside the checkpoint takes every saved tensor, so nothing is recomputed and all of it is copied "
        "to the CPU; put the offloading around the checkpoint",
        notes=(Remark(inner, "this saves the tensors first", conditions),),
    )
