"""A call of torch's checkpoint that leaves `use_reentrant` open.

## What it does
Flags `torch.utils.checkpoint.checkpoint` and `checkpoint_sequential` when `use_reentrant` is certainly not given or is
`None`: directly, through an alias, a `functools.partial`, or a `**kwargs` whose keys are known. Calls kept for a torch
without the argument (`except TypeError`, the other branch of a question for the version, for the signature or for a
name that only newer releases have) are left alone, and so is a run that replaces `torch.utils.checkpoint.checkpoint`.

## Why is this bad?
Without the argument torch runs the reentrant variant and warns. In that variant a region none of whose inputs requires
a gradient (a frozen embedding, LoRA, images fed to the first stage) gets no gradients at all, side outputs are
detached, keyword arguments fail and DDP and FSDP have extra conditions. torch has announced to raise an error here.

Calls of `checkpoint` from other libraries (timm, megatron, composable FSDP) have other defaults and are not meant.

## Bad
```python
from torch.utils.checkpoint import checkpoint

def forward(block, x):
    return checkpoint(block, x)  # error
```
```python
from torch.utils.checkpoint import checkpoint

class Stage:
    run = staticmethod(checkpoint)

    def forward(self, block, x):
        return self.run(block, x)  # error
```
```python
def patch(model, enabled):
    try:
        if enabled:
            from torch.utils.checkpoint import checkpoint

            def forward(x):
                return checkpoint(model.body, x)  # error

            model.forward = forward
            return True
    except Exception as error:
        print(error)
    return False

def patch_or_leave(model):
    try:
        from torch.utils.checkpoint import checkpoint_sequential

        model.forward = lambda x: checkpoint_sequential(model.stages, 4, x)  # error
        return True
    except ImportError:
        return False
```

## Good
```python
from torch.utils.checkpoint import checkpoint

def forward(block, x):
    return checkpoint(block, x, use_reentrant=False)
```
```python
import inspect
import torch
from torch.utils.checkpoint import checkpoint

if torch.__version__ >= "1.11":
    run = lambda block, x: checkpoint(block, x, use_reentrant=False)
else:
    run = lambda block, x: checkpoint(block, x)

def by_trial(block, x):
    try:
        return checkpoint(block, x, use_reentrant=False)
    except TypeError:
        return checkpoint(block, x)

def by_trial_first(block, x):
    try:
        return checkpoint(block, x, use_reentrant=False)
    except TypeError:
        pass
    return checkpoint(block, x)

def by_signature(block, x):
    if "use_reentrant" in inspect.signature(checkpoint).parameters:
        return checkpoint(block, x, use_reentrant=False)
    return checkpoint(block, x)
```
```python
from functools import partial
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.gradient_checkpointing, self.run = False, checkpoint

    def gradient_checkpointing_enable(self, use_reentrant=False):
        self.gradient_checkpointing, self.run = True, partial(checkpoint, use_reentrant=use_reentrant)

    def forward(self, x):
        for block in self.blocks:
            x = self.run(block, x) if self.gradient_checkpointing else block(x)
        return x
```
```python
from functools import partial
import torch.utils.checkpoint

original = torch.utils.checkpoint.checkpoint
torch.utils.checkpoint.checkpoint = partial(original, use_reentrant=False)

def forward(block, x):
    return torch.utils.checkpoint.checkpoint(block, x)
```

## Fix safety
Unsafe: `use_reentrant=False` runs the other variant. It computes the same gradients where the reentrant one was right.

## Evidence
```python
import warnings
import torch
from torch.utils.checkpoint import checkpoint

frozen = torch.ones(2, 4)
layer = torch.nn.Linear(4, 4)
head = torch.nn.Linear(4, 1)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    head(checkpoint(layer, frozen)).sum().backward()
assert layer.weight.grad is None
head(checkpoint(layer, frozen, use_reentrant=False)).sum().backward()
assert layer.weight.grad is not None
```

## References
torch 2.13 `torch/utils/checkpoint.py`, `checkpoint` (`if use_reentrant is None`); pytorch/pytorch#160534.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Ref, equals, is_absent
from ..finding import Applicability, Severity
from ..model.conditions.older_versions import may_be_for_older_torch
from ..model.events import CheckpointPartial, TorchCheckpoint
from ..model.names import canonical
from ..model.report import Remark, Report, Rewrite, SetKeyword

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT101", "implicit-use-reentrant", Severity.WARNING
NEEDS = (TorchCheckpoint,)
VERSIONS = {"torch": ">=1.11"}


def check(run: Run) -> Iterator[Report]:
    """Report calls that certainly leave the variant to torch."""
    if _is_replaced(run):
        return
    called = set()
    written = [*run.written(TorchCheckpoint)]
    told = {_made_at(event) for event in written if _is_told(event)}
    for event in written:
        called |= {partial.node for partial in event.call.via}
        # One call of either of two functions, `self.run = partial(checkpoint, ...)` once it is enabled: which is open.
        if may_be_for_older_torch(event.place, run.versions) or _made_at(event) in told:
            continue
        missing = is_absent(event.use_reentrant)
        if missing or equals(event.use_reentrant, None):
            origin = event.call.via[-1].call.node if missing and event.call.via else event.call.naming
            report = _report(origin, "is not given" if missing else "is `None`")
            yield report._replace(severity=Severity.NOTE if event.is_looked_up else None, notes=_caller(event))
    for partial in run.of(CheckpointPartial):
        is_meant = partial.node not in called and not may_be_for_older_torch(partial.place, run.versions)
        if is_meant and is_absent(partial.call.keyword("use_reentrant")):
            yield _report(partial.node, "is not given")


def _is_told(event: TorchCheckpoint) -> bool:
    return is_absent(event.use_reentrant) is False and not equals(event.use_reentrant, None)


def _made_at(event: TorchCheckpoint) -> tuple[object, ...]:
    """One call in one run of the function that makes it."""
    return event.node, event.place.walk, event.place.stack, event.call.naming


def _is_replaced(run: Run) -> bool:
    """Whether the run puts something else into torch's module: what a call then runs is not known."""
    return any(
        write.field in ("checkpoint", "checkpoint_sequential")
        and isinstance(write.obj, Ref)
        and canonical(write.obj.name) == "torch.utils.checkpoint"
        for write in run.writes
    )


def _caller(event: TorchCheckpoint) -> tuple[Remark, ...]:
    """Who leaves it out, when the call only passes on what it gets."""
    passes_on = any(keyword.arg is None for keyword in event.call.naming.keywords)
    callers = [*event.place.stack, event.node] if event.call.handed else event.place.stack
    return (Remark(callers[-1], "called from here without `use_reentrant`"),) if passes_on and callers else ()


def _report(node: ast.Call, what: str) -> Report:
    return Report(
        node,
        f"`use_reentrant` {what}, so torch runs the reentrant variant; write `use_reentrant=False`",
        fix=Rewrite(Applicability.UNSAFE, "Add `use_reentrant=False`", (SetKeyword(node, "use_reentrant", "False"),)),
    )
