"""A tuple as the input of a reentrant `checkpoint_sequential`.

## What it does
Flags `checkpoint_sequential(functions, segments, (a, b))` in the reentrant variant, which is the default.

## Why is this bad?
The reentrant variant connects only tensors that are arguments themselves to the graph; those inside a tuple are cut
off. Every segment but the last, which is not checkpointed, gets no gradients, and the loss does not show it.

## Bad
```python
from torch.utils.checkpoint import checkpoint_sequential

def forward(blocks, x, mask):
    x, _ = checkpoint_sequential(blocks, 4, (x, mask), use_reentrant=True)  # error
    return x
```
```python
from torch.utils.checkpoint import checkpoint_sequential

def forward(blocks, x, mask):
    inputs = (x, mask)
    return checkpoint_sequential(blocks, 4, inputs)[0]  # error: CKPT101, CKPT129
```

## Good
```python
from torch.utils.checkpoint import checkpoint_sequential

def forward(blocks, x, mask):
    x, _ = checkpoint_sequential(blocks, 4, (x, mask), use_reentrant=False)
    return x

def one_tensor(blocks, x, inputs):
    x = checkpoint_sequential(blocks, 4, x, use_reentrant=True)
    return checkpoint_sequential(blocks, 4, inputs, use_reentrant=True)
```

## Fix safety
Unsafe: the segments begin to train, which changes the run.

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint_sequential

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, pair):
        x, scale = pair
        return self.linear(x) * scale, scale

def trained(reentrant):
    blocks = torch.nn.Sequential(*(Block() for _ in range(4)))
    x = torch.ones(2, 4, requires_grad=True)
    checkpoint_sequential(blocks, 2, (x, 0.5), use_reentrant=reentrant)[0].sum().backward()
    return [block.linear.weight.grad is not None for block in blocks]

assert trained(True) == [False, False, True, True]
assert trained(False) == [True, True, True, True]
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`CheckpointFunction.forward` looks for tensors among its arguments only).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Seq, equals, options
from ..finding import Applicability, Severity
from ..model.events import CheckpointSequential
from ..model.report import Remark, Report, Rewrite, SetKeyword

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT129", "tuple-into-checkpoint-sequential", Severity.ERROR
NEEDS = (CheckpointSequential,)


def check(run: Run) -> Iterator[Report]:
    """Report containers given to reentrant segments."""
    for event in run.of(CheckpointSequential):
        given = options(event.input)
        if equals(event.segments, 1):
            continue  # The last segment is no checkpoint, and here it is the only one.
        if run.runs_reentrant(event) and all(isinstance(option, Seq) and option.node is not None for option in given):
            kind = given[0].kind if isinstance(given[0], Seq) else "tuple"
            add = SetKeyword(event.node, "use_reentrant", "False")
            yield Report(
                event.node,
                f"the reentrant variant cuts the tensors inside this {kind} off the graph, so only the last segment "
                f"trains; write `use_reentrant=False`",
                notes=(Remark(given[0].node, f"the {kind}"),) if given[0].node is not None else (),
                fix=Rewrite(Applicability.UNSAFE, "Write `use_reentrant=False`", (add,)),
            )
