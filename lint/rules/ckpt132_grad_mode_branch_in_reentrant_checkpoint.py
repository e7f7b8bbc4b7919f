"""Code in a reentrant checkpoint that branches on `torch.is_grad_enabled()`.

## What it does
Flags `if torch.is_grad_enabled():`, `if hidden.requires_grad:` for what is computed there, and the like in a function
or module that a reentrant checkpoint runs, when the branches compute different things. A branch that only decides
whether to checkpoint further, or whether to go through an autograd function (`Kernel.apply`), is fine, and so is the
non-reentrant variant.

## Why is this bad?
The reentrant variant runs the forward pass under `no_grad` and the recomputation with gradients. The loss comes from
one branch, the gradients from the other.

## Bad
```python
import torch
from torch.utils.checkpoint import checkpoint

def block(x, weight):
    if torch.is_grad_enabled():
        return torch.tanh(x @ weight)
    return (x @ weight).clamp(-1, 1)  # a cheap one for inference

def forward(x, weight):
    return checkpoint(block, x, weight, use_reentrant=True)  # error
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        scale = 1.0 if self.training and torch.is_grad_enabled() else 0.5
        return scale * self.linear(x)

block = Block()

def forward(x):
    return checkpoint(block, x.requires_grad_(), use_reentrant=True)  # error
```

```python
import torch
from torch.utils.checkpoint import checkpoint

def named(x):
    training = torch.is_grad_enabled()
    return x.tanh() if training else x.clamp(-1, 1)

def by_flag(x, weight):
    hidden = x @ weight
    if hidden.requires_grad:
        return hidden.tanh()
    return hidden.clamp(-1, 1)

def recording():
    return torch.is_grad_enabled()

def through_a_helper(x):
    return x.tanh() if recording() else x.clamp(-1, 1)

def forward(x, weight):
    x = checkpoint(named, x, use_reentrant=True)  # error
    x = checkpoint(through_a_helper, x, use_reentrant=True)  # error
    return checkpoint(by_flag, x, weight, use_reentrant=True)  # error
```

## Good
```python
import torch
from torch.utils.checkpoint import checkpoint

def of_the_input(x, weight):
    if x.requires_grad:  # the same in both passes
        return torch.tanh(x @ weight)
    return x @ weight

def of_a_mask(x, weight):
    mask = x.detach()
    return x * mask if mask.requires_grad else x @ weight

def logged(x, weight):
    training = torch.is_grad_enabled()
    if training:
        print(x.shape)
    return x @ weight

def forward(x, weight):
    x = checkpoint(of_the_input, x, weight, use_reentrant=True)
    x = checkpoint(of_a_mask, x, weight, use_reentrant=True)
    return checkpoint(logged, x, weight, use_reentrant=True)
```
```python
import torch
from torch.utils.checkpoint import checkpoint

def cloned(x, weight):
    x = x.clone() if torch.is_grad_enabled() else x
    return x @ weight

def stepwise(x, weight):
    if not torch.is_grad_enabled():
        return torch.tanh(x @ weight)
    hidden = x @ weight
    return torch.tanh(hidden)

def announced(x, weight, log):
    if not torch.is_grad_enabled():
        log.append(x.shape)
    return x @ weight

def forward(x, weight, log):
    x = checkpoint(cloned, x, weight, use_reentrant=True)
    x = checkpoint(stepwise, x, weight, use_reentrant=True)
    return checkpoint(announced, x, weight, log, use_reentrant=True)
```
```python
import torch
from torch.utils.checkpoint import checkpoint

def block(x, weight):
    if torch.is_grad_enabled():
        return torch.tanh(x @ weight)
    return (x @ weight).clamp(-1, 1)

def inner(x, weight):
    if torch.is_grad_enabled():
        return checkpoint(torch.matmul, x, weight, use_reentrant=False)
    return torch.matmul(x, weight)

def inner_last(x, weight):
    if not torch.is_grad_enabled():
        return torch.matmul(x, weight)
    segments = [torch.matmul]
    return checkpoint(segments[0], x, weight, use_reentrant=True)

def kernel(x, weight):
    if torch.is_grad_enabled():
        return Kernel.apply(x, weight)
    return kernel_forward(x, weight)

def checked(x, weight):
    with torch.set_grad_enabled(torch.is_grad_enabled()):
        return x @ weight

def forward(x, weight):
    x = checkpoint(block, x, weight, use_reentrant=False)
    x = checkpoint(checked, x, weight, use_reentrant=True)
    x = checkpoint(kernel, x, weight, use_reentrant=True)
    x = checkpoint(inner_last, x, weight, use_reentrant=True)
    if torch.is_grad_enabled():
        return checkpoint(inner, x, weight, use_reentrant=True)
    return inner(x, weight)
```

## Fix safety
Unsafe: the loss comes from the other branch, which is what the gradients were for. No fix is offered when a branch acts
(calls a hook, stores something) in the pass without gradients, which the other variant does not have.

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint

weight = torch.full((3, 3), 0.4, requires_grad=True)

def block(x):
    if torch.is_grad_enabled():
        return torch.tanh(x @ weight)
    return (x @ weight).clamp(-1, 1)

def run(reentrant):
    weight.grad = None
    x = torch.ones(2, 3, requires_grad=True)
    y = block(x) if reentrant is None else checkpoint(block, x, use_reentrant=reentrant)
    y.pow(2).sum().backward()
    return y.detach(), weight.grad

loss, wanted = run(None)
assert torch.equal(run(False)[0], loss) and torch.equal(run(False)[1], wanted)
assert not torch.allclose(run(True)[0], loss, rtol=0.05) and not torch.allclose(run(True)[1], wanted, rtol=0.05)

flags = []

def ask(x):
    hidden = x @ weight
    flags.append((x.requires_grad, hidden.requires_grad))
    return hidden

checkpoint(ask, torch.ones(2, 3, requires_grad=True), use_reentrant=True).sum().backward()
assert flags == [(True, False), (True, True)]
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`CheckpointFunction.forward` runs under `torch.no_grad()`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.objects.containers import first_given
from ..facts.values import UNKNOWN, Result
from ..finding import Applicability, Severity
from ..model.conditions.grad_mode import questions
from ..model.events import Checkpoint, Checkpointing, CheckpointSequential, TorchCheckpoint
from ..model.names import canonical
from ..model.needs import together
from ..model.report import Remark, Report, Rewrite, SetKeyword

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT132", "grad-mode-branch-in-reentrant-checkpoint", Severity.ERROR
NEEDS = together(("is_grad_enabled", "requires_grad", "grad_fn"), Checkpointing)


def check(run: Run) -> Iterator[Report]:
    """Report regions whose forward pass and recomputation take different branches."""
    nested = {event.node for event in run.of(Checkpointing)}
    for event, region in run.regions():
        if not run.runs_reentrant(event):
            continue
        every = list(questions(region, _entered(event)))
        asked = next((question for question in every if question.decides(nested)), None)
        if asked is not None:
            yield Report(
                event.node,
                "the reentrant variant runs this region without gradients first and with them in the recomputation, so "
                "it takes one branch for the loss and the other for the gradients; write `use_reentrant=False`",
                notes=(Remark(asked.node, "False in the forward pass, True in the recomputation"),),
                fix=None if any(question.needs_first_pass for question in every) else _non_reentrant(event),
            )


def _entered(event: Checkpointing) -> Value:
    match event:
        case Checkpoint():
            return event.function
        case CheckpointSequential(functions=Result(made)) if canonical(made.name) == "torch.nn.Sequential":
            # The first segment: the last one, which is no checkpoint, may begin behind that.
            looped = made.spread[0] if len(made.spread) == 1 and not made.args else UNKNOWN
            return first_given(made) or looped
    return UNKNOWN


def _non_reentrant(event: Checkpointing) -> Rewrite | None:
    if not isinstance(event, TorchCheckpoint) or event.call.via:
        return None
    add = SetKeyword(event.node, "use_reentrant", "False")
    return Rewrite(Applicability.UNSAFE, "Use the non-reentrant variant", (add,))
