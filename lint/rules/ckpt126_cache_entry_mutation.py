"""`allow_cache_entry_mutation=True` in selective activation checkpointing.

## What it does
Flags `create_selective_checkpoint_contexts(..., allow_cache_entry_mutation=True)`, called or in a partial.

## Why is this bad?
An operation that changes a saved activation in place changes what the backward pass is computed with. torch stops with
"has been mutated" for this reason; the flag turns the error into wrong gradients.

## Bad
```python
from functools import partial
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

def forward(block, x, policy):
    contexts = partial(create_selective_checkpoint_contexts, policy, allow_cache_entry_mutation=True)  # error
    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)
```
```python
import torch
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

def contexts():
    return create_selective_checkpoint_contexts([torch.ops.aten.mm.default], True)  # error

def forward(block, x):
    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)
```

## Good
```python
from functools import partial
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

def forward(block, x, policy, flag):
    x = checkpoint(block, x, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, policy))
    contexts = partial(create_selective_checkpoint_contexts, policy, allow_cache_entry_mutation=False)
    x = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
    maybe = partial(create_selective_checkpoint_contexts, policy, allow_cache_entry_mutation=flag)
    return checkpoint(block, x, use_reentrant=False, context_fn=maybe)
```

## Evidence
```python
from functools import partial
import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

weight = torch.full((3, 3), 0.5, requires_grad=True)

def save_products(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE

def block(x):
    y = x @ weight
    z = torch.sin(y)
    y.mul_(2)
    return z + torch.cos(y)

def gradient(run):
    x = torch.full((2, 3), 0.3, requires_grad=True)
    run(x).sum().backward()
    return x.grad

def checkpointed(x, **options):
    contexts = partial(create_selective_checkpoint_contexts, save_products, **options)
    return checkpoint(block, x, use_reentrant=False, context_fn=contexts)

# What is meant: the same computation, without the change in place.
wanted = gradient(lambda x: torch.sin(x @ weight) + torch.cos(2 * (x @ weight)))
try:
    gradient(checkpointed)
except RuntimeError as error:
    assert "mutated" in str(error)
else:
    raise AssertionError("torch must notice")
wrong = gradient(lambda x: checkpointed(x, allow_cache_entry_mutation=True))
assert not torch.allclose(wrong, wanted, rtol=0.1)
```

## Fix safety
Unsafe: the run stops with torch's error until the change in place is gone.

## References
torch 2.13 `torch/utils/checkpoint.py` (`create_selective_checkpoint_contexts`, `_VersionWrapper`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import ABSENT, Partial, Ref, Value, equals
from ..finding import Applicability, Severity
from ..model.names import canonical
from ..model.report import DropKeyword, Report, Rewrite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Call
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT126", "cache-entry-mutation", Severity.ERROR
NEEDS = ("create_selective_checkpoint_contexts",)
VERSIONS = {"torch": ">=2.4"}
_CONTEXTS = "torch.utils.checkpoint.create_selective_checkpoint_contexts"
_FLAG = "allow_cache_entry_mutation"


def check(run: Run) -> Iterator[Report]:
    """Report contexts that let saved activations change."""
    for call in run.program.calls:
        if equals(_flag(call), True):
            fix = Rewrite(Applicability.UNSAFE, f"Remove `{_FLAG}`", (DropKeyword(call.node, _FLAG),))
            yield Report(
                call.node,
                f"with `{_FLAG}=True` an activation that is changed in place after it was saved gives wrong gradients "
                f"without an error; remove it and write the operation out of place",
                fix=fix if call.written(_FLAG) else None,
            )


def _flag(call: Call) -> Value:
    if canonical(call.name) == _CONTEXTS and not call.via:
        return call.argument(1, _FLAG)
    if call.name == "functools.partial" and call.args and _is_contexts(call.args[0]):
        return call.argument(2, _FLAG)
    return ABSENT


def _is_contexts(value: Value) -> bool:
    inner = value.func if isinstance(value, Partial) else value
    return isinstance(inner, Ref) and inner.name == _CONTEXTS
