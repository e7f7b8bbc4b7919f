"""A checkpointed function that catches every exception around its last layers.

## What it does
Flags `except Exception`, `except BaseException` and a bare `except` around the last computation of a function that a
non-reentrant checkpoint runs, where the handler computes something instead or raises another exception; a context
manager of the program that raises another one is such a handler, too. So is one that swallows all, by
`suppress(Exception)` or an `__exit__` that returns True, where the rest of the function then computes something else
or lacks the result.

## Why is this bad?
torch ends the recomputation early by an exception of its own, raised when the last saved tensor is there again. The
handler takes it for a failure in every step: the fallback then trips over
`AssertionError: Unexpected state: target_frame.early_stop is set`, and an exception raised in its place ends the
training.

## Bad
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fast = nn.Linear(8, 8)
        self.slow = nn.Linear(8, 8)

    def forward(self, x):
        try:
            return self.fast(x).relu()
        except Exception:  # no kernel for this shape
            return self.slow(x).relu()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(3)])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # error
        return x
```
```python
from torch.utils.checkpoint import checkpoint

def forward(layer, x):
    def run(h):
        try:
            return layer(h)
        except Exception as error:
            raise ValueError("layer failed") from error
    return checkpoint(run, x, use_reentrant=False)  # error
```

```python
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        try:
            return self.out(F.scaled_dot_product_attention(q, k, v))
        except Exception:
            return self.out((q @ k.transpose(-1, -2)).softmax(-1) @ v)

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(8), Attention()

    def forward(self, x):
        return x + self.attention(self.norm(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer() for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)  # error
        return x
```

## Good
```python
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        try:
            return F.scaled_dot_product_attention(q, k, v)
        except Exception:
            return (q @ k.transpose(-1, -2)).softmax(-1) @ v

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.scale = Attention(), nn.Linear(8, 8)

    def forward(self, x):
        return self.attention(x) * self.scale(x)

def forward(layer: Layer, x):
    return checkpoint(layer, x, use_reentrant=False)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fast = nn.Linear(8, 8)
        self.slow = nn.Linear(8, 8)

    def forward(self, x):
        try:
            h = self.fast(x)
        except Exception:
            h = self.slow(x)
        return self.slow(h).relu()  # the recomputation ends here

def forward(layer, block, log, x):
    def narrow(h):
        try:
            return layer(h)
        except RuntimeError:
            return h * 2
    def reraised(h):
        try:
            return layer(h)
        except Exception as error:
            log(error)
            raise
        finally:
            log("done")
    def logged(h):
        try:
            return layer(h)
        except Exception as error:
            log(error)
            return h
    x = checkpoint(logged, x, use_reentrant=False)
    x = checkpoint(narrow, x, use_reentrant=False)
    x = checkpoint(reraised, x, use_reentrant=False)
    x = checkpoint(Block(), x, use_reentrant=False)
    try:
        return checkpoint(block, x, use_reentrant=False)
    except Exception:
        return block(x)
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint

layer, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

def raised(function, **options):
    x = torch.ones(2, 4, requires_grad=True)
    try:
        checkpoint(function, x, use_reentrant=False, **options).sum().backward()
    except Exception as error:
        return type(error)
    return None

def fallback(x):
    try:
        return layer(x).tanh()
    except Exception:
        return other(x).tanh()

def translated(x):
    try:
        return layer(x).tanh()
    except Exception as error:
        raise ValueError("layer failed") from error

def narrow(x):
    try:
        return layer(x).tanh()
    except RuntimeError:
        return other(x).tanh()

def reraised(x):
    try:
        return layer(x).tanh()
    except Exception:
        raise

def followed(x):
    try:
        h = layer(x)
    except Exception:
        h = other(x)
    return other(h).tanh()

assert raised(fallback) is AssertionError
assert raised(translated) is ValueError
def logged(x):
    try:
        return layer(x).tanh()
    except Exception as error:
        str(error)
        return x

for right in (narrow, reraised, followed, logged):
    assert raised(right) is None
assert raised(fallback, early_stop=False) is None
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`_StopRecomputationError`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..facts.objects.classes import method_of
from ..facts.values import Absent, Class, Const
from ..finding import Severity
from ..model.calls.call_targets import call_targets
from ..model.events import Checkpointing
from ..model.flow.handlers import handler_of_end
from ..model.needs import together
from ..model.report import Remark, Report

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Function
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT313", "exception-handler-in-checkpoint", Severity.ERROR
NEEDS = together(("except", "__exit__", "suppress("), Checkpointing)


def check(run: Run) -> Iterator[Report]:
    """Report regions whose handler catches the end of the recomputation."""
    for event, region in run.regions():
        if event.reentrant is not False or not region.functions or _runs_to_the_end(event):
            continue
        handler = handler_of_end(region.functions[0], partial(_called, run), partial(_exit_of, run))
        if handler is not None:
            yield Report(
                event.node,
                "torch ends the recomputation by an exception, which this function catches in every step and answers "
                "with a failure; catch a narrower one, such as `RuntimeError`",
                notes=(Remark(handler, "this catches everything"),),
            )


def _called(run: Run, node: ast.Call) -> Function | None:
    """The one function of the program that ``node`` comes to."""
    found = [target.function for call in run.calls_at(node) for target in call_targets(call.func)]
    return found[0] if len({function.node for function in found}) == 1 else None


def _exit_of(run: Run, node: ast.Call) -> Function | None:
    """The `__exit__` of the class of the program that ``node`` makes an object of."""
    made = [call.func for call in run.calls_at(node) if isinstance(call.func, Class)]
    return method_of(made[0], "__exit__") if len({cls.node for cls in made}) == 1 else None


def _runs_to_the_end(event: Checkpointing) -> bool:
    stops = event.call.keyword("early_stop")
    return not (isinstance(stops, Absent) or (isinstance(stops, Const) and stops.value is True))
