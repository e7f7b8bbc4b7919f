"""`offload_to_cpu` as a keyword of torch's `checkpoint_wrapper`.

## What it does
Flags `checkpoint_wrapper(module, offload_to_cpu=...)` of `torch.distributed.algorithms`, also through
`functools.partial`.

## Why is this bad?
fairscale's function of the same name has the keyword, and so had torch's up to 2.0 (2.0 drops it without a word). Since
2.1 torch's takes it for an argument of
the wrapped module: wrapping succeeds, and the first step ends in
`TypeError: forward() got an unexpected keyword argument 'offload_to_cpu'`. A layer whose `forward` takes `**kwargs`, as
those of transformers do, drops it without a word: nothing is offloaded.

## Bad
```python
from functools import partial
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)

def wrap(block):
    return checkpoint_wrapper(block, offload_to_cpu=True)  # error

def wrap_all(model, is_block):
    wrapper = partial(  # error
        checkpoint_wrapper,
        offload_to_cpu=False,
        checkpoint_impl=CheckpointImpl.NO_REENTRANT,
    )
    apply_activation_checkpointing(model, checkpoint_wrapper_fn=wrapper, check_fn=is_block)
```

## Good
```python
from fairscale.nn.checkpoint import checkpoint_wrapper as fairscale_wrapper
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, offload_wrapper

def wrap(block):
    return offload_wrapper(checkpoint_wrapper(block, preserve_rng_state=False))

def wrap_with_fairscale(block):
    return fairscale_wrapper(block, offload_to_cpu=True)
```

## Fix safety
Safe for `offload_to_cpu=False`, which asks for nothing. `True` has no fix: wrap with
`offload_wrapper(checkpoint_wrapper(module))` where the offload is wanted.

## Evidence
```python
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, offload_wrapper

x = torch.ones(2, 4, requires_grad=True)
for offload in (True, False):
    wrapped = checkpoint_wrapper(torch.nn.Linear(4, 4), offload_to_cpu=offload)
    try:
        wrapped(x)
    except TypeError as error:
        assert "offload_to_cpu" in str(error)
    else:
        raise AssertionError("no error")

class Layer(torch.nn.Linear):
    def forward(self, x, **kwargs):
        return super().forward(x)

checkpoint_wrapper(Layer(4, 4), offload_to_cpu=True)(x).sum().backward()
offload_wrapper(checkpoint_wrapper(torch.nn.Linear(4, 4)))(x).sum().backward()
```

## References
torch 2.13 `torch/distributed/algorithms/_checkpoint/checkpoint_wrapper.py` (`checkpoint_wrapper`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import equals, is_given
from ..finding import Applicability, Severity
from ..model.events import CheckpointWrap
from ..model.report import DropKeyword, Report, Rewrite
from ..model.wrapping.keywords import partials_with

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Call, Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT312", "offload-keyword-of-checkpoint-wrapper", Severity.ERROR
NEEDS = ((CheckpointWrap, "offload_to_cpu"),)
VERSIONS = {"torch": ">=2.1"}
_KEYWORD = "offload_to_cpu"


def check(run: Run) -> Iterator[Report]:
    """Report the keyword where it is written."""
    seen = set()
    for call, offload in _given(run):
        if call.node not in seen:
            seen.add(call.node)
            yield _report(call, offload)


def _given(run: Run) -> Iterator[tuple[Call, Value]]:
    for wrap in run.of(CheckpointWrap):
        if is_given(wrap.call, _KEYWORD):
            origin = next((partial.call for partial in wrap.call.via if _KEYWORD in partial.kwargs), wrap.call)
            yield origin, wrap.call.keyword(_KEYWORD)
    for _, wrapper in partials_with(run, _KEYWORD):
        yield wrapper.call, wrapper.kwargs[_KEYWORD]


def _report(call: Call, offload: Value) -> Report:
    droppable = equals(offload, False) is True and any(word.arg == _KEYWORD for word in call.node.keywords)
    change = DropKeyword(call.node, _KEYWORD)
    return Report(
        call.node,
        "torch's `checkpoint_wrapper` passes `offload_to_cpu` on to the module, whose forward raises a TypeError, or "
        "drops it if it takes `**kwargs`: nothing is offloaded; write `offload_wrapper(checkpoint_wrapper(module))`, "
        "or drop it",
        fix=Rewrite(Applicability.SAFE, "Drop `offload_to_cpu=False`", (change,)) if droppable else None,
    )
