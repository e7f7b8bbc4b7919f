"""`determinism_check="none"`, which hides that the recomputation is another computation.

## What it does
Flags `determinism_check="none"` given to non-reentrant checkpointing, directly, in a partial, or in the dict of a
`TrainingArguments` or `gradient_checkpointing_enable`. The reentrant variant has no such check to turn off.

## Why is this bad?
torch compares the shapes and dtypes of what is recomputed with what the forward pass saved. When they differ, the
gradients belong to another function than the loss. Without the check they are used as they are.

## Bad
```python
from torch.utils.checkpoint import checkpoint

def forward(block, x):
    return checkpoint(block, x, use_reentrant=False, determinism_check="none")  # error
```
```python
from functools import partial
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import checkpoint
from transformers import TrainingArguments

run = partial(checkpoint, use_reentrant=False, determinism_check="none")  # error

def wrap(block):
    return checkpoint_wrapper(block, determinism_check="none")  # error

args = TrainingArguments(
    "out",
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": False, "determinism_check": "none"},  # error
)
```

## Good
```python
from torch.utils.checkpoint import checkpoint
from transformers import TrainingArguments

reentrant = {"use_reentrant": True, "determinism_check": "none"}
args = TrainingArguments("out", gradient_checkpointing=True, gradient_checkpointing_kwargs=reentrant)

def forward(block, x, how):
    x = checkpoint(block, x, use_reentrant=False)
    x = checkpoint(block, x, use_reentrant=False, determinism_check="default")
    x = checkpoint(block, x, use_reentrant=False, determinism_check=how)
    return checkpoint(block, x, use_reentrant=True, determinism_check="none")
```

## Fix safety
Unsafe: a run that went on with other gradients stops with a `CheckpointError` that says which tensors differ.

## Evidence
```python
import torch
from torch.utils.checkpoint import CheckpointError, checkpoint

def gradient(**options):
    runs = []
    def block(x):
        runs.append(1)
        # What an autocast block that is left before the backward pass, or a changed default dtype, comes down to.
        return torch.sigmoid(x.half() if len(runs) == 1 else x.double() * 3).float()
    x = torch.full((4,), 0.3, requires_grad=True)
    checkpoint(block, x, use_reentrant=False, **options).sum().backward()
    return x.grad

try:
    gradient()
except CheckpointError as error:
    assert "different metadata" in str(error)
else:
    raise AssertionError("the default check must notice")

x = torch.full((4,), 0.3, requires_grad=True)
torch.sigmoid(x).sum().backward()
assert not torch.allclose(gradient(determinism_check="none"), x.grad, rtol=0.05)
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`_allowed_determinism_checks_to_fns`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import ABSENT, Dict, Value, equals
from ..finding import Applicability, Severity
from ..model.events import CallEvent, Checkpoint, CheckpointPartial, CheckpointWrap, HfEnable, KbitPrepare, TrainerArgs
from ..model.libraries.trainer import written_at
from ..model.report import DropKeyword, Report, Rewrite
from ..model.variant import hf_kwargs_reentrant
from ..model.wrapping.keywords import partials_with

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Call
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT124", "disabled-determinism-check", Severity.WARNING
NEEDS = ("determinism_check",)
VERSIONS = {"torch": ">=2.1"}
_KEY = "determinism_check"


_TEXT = (
    'with `determinism_check="none"` a recomputation that differs from the forward pass gives wrong gradients without '
    "an error; remove it and mend what differs"
)


def check(run: Run) -> Iterator[Report]:
    """Report checkpoints that do not compare the recomputation with the forward pass."""
    for apply, wrapper in partials_with(run, _KEY):
        if apply.reentrant is not True and equals(wrapper.kwargs[_KEY], "none"):
            yield Report(wrapper.call.node, _TEXT)
    for event in run.of(CallEvent):
        if equals(_setting(event), "none"):
            yield Report(
                _place(event),
                _TEXT,
                fix=_drop(event),
            )


def _setting(event: CallEvent) -> Value:
    match event:
        case Checkpoint() | CheckpointWrap() if event.reentrant is not True and not _is_by_partial(event.call):
            return event.call.keyword(_KEY)
        case CheckpointPartial():
            return event.call.keyword(_KEY)
        case HfEnable(kwargs=given) | TrainerArgs(kwargs=given) | KbitPrepare(kwargs=given):
            if isinstance(given, Dict) and hf_kwargs_reentrant(given, default=False) is not True:
                return given.get(_KEY)
    return ABSENT


def _place(event: CallEvent) -> ast.AST:
    if isinstance(event, TrainerArgs):
        return written_at(event)
    return event.node if event.call.written(_KEY) else event.call.naming


def _is_by_partial(call: Call) -> bool:
    """Whether a partial of `functools` says it: that is reported where it is made."""
    made = [partial for partial in call.via if partial.call.name == "functools.partial"]
    return any(partial.open_kwargs or _KEY in partial.kwargs for partial in made)


def _drop(event: CallEvent) -> Rewrite | None:
    if not event.call.written(_KEY):
        return None
    return Rewrite(Applicability.UNSAFE, f"Remove `{_KEY}`", (DropKeyword(event.node, _KEY),))
