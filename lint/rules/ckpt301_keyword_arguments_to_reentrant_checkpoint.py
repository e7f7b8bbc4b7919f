"""Keyword arguments for the function under a reentrant checkpoint.

## What it does
Flags `checkpoint(fn, x, mask=mask)` when the reentrant variant runs, which it also does when `use_reentrant` is not
given. So it does where a module, or what is put in the place of its `forward`, hands on the `**kwargs` that it gets.

## Why is this bad?
The reentrant variant takes positional inputs only: the call raises `ValueError: Unexpected keyword arguments`.

## Bad
```python
from torch.utils.checkpoint import checkpoint

def forward(block, x, mask):
    x = checkpoint(block, x, mask=mask, use_reentrant=True)  # error
    return checkpoint(block, x, mask=mask)  # error: CKPT101, CKPT301
```

```python
from torch.utils.checkpoint import checkpoint

class Attention:
    def forward(self, qkv, lengths=None, padding=None, **kwargs):
        kwargs = {"lengths": lengths, **kwargs} if self.flash else {"padding": padding, **kwargs}
        return checkpoint(self.inner, qkv, use_reentrant=True, **kwargs)  # error
```
```python
import functools
from torch.utils.checkpoint import checkpoint

def checkpointed(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return checkpoint(function, *args, use_reentrant=True, **kwargs)  # error
    return inner

@checkpointed
def block(x, mask=None):
    return x * mask

def forward(x, mask):
    return block(x, mask=mask)
```
```python
from torch.utils.checkpoint import checkpoint

def forward(layer, x, bias):
    def run(*inputs):
        return layer(*inputs)
    return checkpoint(run, x, bias=bias, use_reentrant=True)  # error
```

```python
import torch
from functools import partial
from torch.utils.checkpoint import checkpoint

reentrant = partial(checkpoint, use_reentrant=True)

def forward(layers, x, lengths):
    padding = torch.arange(x.size(1))[None] >= lengths[:, None]
    for layer in layers:
        x = checkpoint(layer, x, padding=padding, use_reentrant=True)  # error
        x = reentrant(layer, x, padding=x is None)  # error
    return x
```
```python
from functools import partial
from torch import nn
from torch.utils.checkpoint import checkpoint

class Recomputing(nn.Module):
    run = staticmethod(partial(checkpoint, use_reentrant=True))

    def call(self, layer, *args, **kwargs):
        if self.training:
            return self.run(layer, *args, **kwargs)  # error
        return layer(*args, **kwargs)

class Encoder(Recomputing):
    def forward(self, x, lengths):
        for layer in self.layers:
            x = self.call(layer, x, padding=x.sum(-1) > lengths, scale=lengths[0] / 2)
        return x
```

```python
import functools
from torch import nn
from torch.utils.checkpoint import checkpoint

def recomputed(function):
    @functools.wraps(function)
    def inner(self, *args, **kwargs):
        if self.training:
            return checkpoint(functools.partial(function, self), *args, use_reentrant=True, **kwargs)  # error
        return function(self, *args, **kwargs)
    return inner

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    @recomputed
    def forward(self, x, mask=None):
        return self.linear(x) * mask

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(4))

    def forward(self, x, mask):
        for layer in self.layers:
            x = layer(x, mask=mask)
        return x
```

## Good
```python
from torch import nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def run(self, x, mask=None):
        return self.linear(x)

    def forward(self, x, scale=1, **kwargs):
        return checkpoint(self.run, x, use_reentrant=True, **kwargs) * scale

class Taking(Layer):
    def forward(self, x, **kwargs):
        mask = kwargs.pop("mask", None)
        return checkpoint(self.run, x, mask, use_reentrant=True, **kwargs)

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(4))
        self.last = Taking()

    def forward(self, x, mask):
        for layer in self.layers:
            x = layer(x, scale=2)
        return self.last(x, mask=mask)
```
```python
from torch.utils.checkpoint import checkpoint

def call(layer, *args, **kwargs):
    kwargs.pop("padding", None)
    return checkpoint(layer, *args, use_reentrant=True, **kwargs)

def forward(layers, x, lengths):
    for layer in layers:
        x = call(layer, x, padding=x.sum(-1) > lengths)
    return x
```
```python
from functools import partial
from timm.models._manipulate import checkpoint as timm_checkpoint
from torch.utils.checkpoint import checkpoint

def forward(block, make, x, mask, **kwargs):
    x = checkpoint(block, x, mask=mask, use_reentrant=False)
    x = checkpoint(block, x, mask, use_reentrant=True)
    x = checkpoint(partial(block, mask=mask), x, use_reentrant=True)
    x = checkpoint(block, x, use_reentrant=True, preserve_rng_state=False)
    x = checkpoint(block, x, use_reentrant=True, determinism_check="default", debug=False, early_stop=False)
    y = checkpoint(function=lambda: block(x), use_reentrant=False)
    z = checkpoint(function=make, use_reentrant=True)
    return y + z + checkpoint(block, timm_checkpoint(block, x, mask=mask), **kwargs)
```

## Fix safety
Unsafe: the non-reentrant variant runs instead of none at all. None where the function takes no such keyword: the
non-reentrant variant hands it on, a TypeError.

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint

def block(x, mask=None):
    return x if mask is None else x * mask

x, mask = torch.ones(2, requires_grad=True), torch.ones(2)
for reentrant in (True, None):
    try:
        checkpoint(block, x, mask=mask, use_reentrant=reentrant)
    except ValueError as error:
        assert "Unexpected keyword arguments: mask" in str(error)
    else:
        raise AssertionError("no error")
checkpoint(block, x, mask=mask, use_reentrant=False)
try:
    checkpoint(lambda *inputs: block(*inputs), x, mask=mask, use_reentrant=False)
except TypeError as error:
    assert "unexpected keyword argument" in str(error)
else:
    raise AssertionError("no error")
checkpoint(block, x, use_reentrant=True, preserve_rng_state=False, determinism_check="none", early_stop=False)
checkpoint(function=lambda: x, use_reentrant=True)
```

## References
torch 2.13 `torch/utils/checkpoint.py`, `checkpoint` (`Unexpected keyword arguments`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.objects.classes import is_run_as_written
from ..facts.objects.containers import GAP
from ..facts.values import Absent, Dict, is_given, options
from ..finding import Applicability, Severity
from ..model.calls.call_targets import call_targets
from ..model.calls.comes_in_training import comes_in_training
from ..model.calls.handed_on import keywords_handed_on
from ..model.events import Checkpoint, TorchCheckpoint
from ..model.report import Report, Rewrite, SetKeyword

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.calls.call_targets import CallTarget
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT301", "keyword-arguments-to-reentrant-checkpoint", Severity.ERROR
NEEDS = (TorchCheckpoint,)
RAISES = True


def _in_every_dict(event: Checkpoint) -> Iterator[str]:
    """A keyword of each dict that `**` may stand for, when none of them is without one."""
    for value in event.call.mappings:
        held = [option.items if isinstance(option, Dict) else {} for option in options(value)]
        foreign = [[name for name, given in items.items() if _is_foreign(name, given)] for items in held]
        if all(foreign):
            yield from dict.fromkeys(names[0] for names in foreign)


def _is_foreign(name: str, given: Value) -> bool:
    gone = any(isinstance(option, Absent) for option in options(given))
    return name not in Checkpoint.OWN and GAP not in name and not gone


def check(run: Run) -> Iterator[Report]:
    """Report keyword arguments that the reentrant variant refuses."""
    for event in run.of(Checkpoint):
        names = [name for name in event.function_kwargs if is_given(event.call, name)]
        names = names or list(_in_every_dict(event)) or _by_every_call(run, event)
        if names and run.runs_reentrant(event):
            yield _report(event, names)


def _by_every_call(run: Run, event: Checkpoint) -> list[str]:
    """What the module's `**kwargs` hold, where every call of it gives some that the checkpoint does not know.

    One call suffices where nothing but train mode decides whether its object comes to the checkpoint.
    """
    given = [
        (it.call, [name for name in it.names if name not in Checkpoint.OWN])
        for it in keywords_handed_on(run, event.call)
    ]
    is_every = bool(given) and all(names for _, names in given)
    certain = [names for call, names in given if is_every or comes_in_training(call, event.place, run.bodies.changed)]
    return list(dict.fromkeys(name for names in certain for name in names))


def _report(event: Checkpoint, names: list[str]) -> Report:
    quoted = ", ".join(f"`{name}`" for name in names)
    refused = f"the reentrant variant refuses keyword arguments ({quoted}) with a ValueError"
    taker = next((target.function for target in call_targets(event.function) if not _takes(target, names)), None)
    if taker is not None:
        own = "the function" if taker.is_lambda else f"`{taker.name}`"
        return Report(event.node, f"{refused}, and {own} does not take them by keyword; pass them by position")
    return Report(
        event.node,
        f"{refused}; pass them by position or write `use_reentrant=False`",
        fix=Rewrite(
            Applicability.UNSAFE,
            "Use the non-reentrant variant",
            (SetKeyword(event.node, "use_reentrant", "False"),),
        ),
    )


def _takes(target: CallTarget, names: list[str]) -> bool:
    """Whether the function takes all ``names`` by keyword."""
    arguments = target.function.node.args
    known = {argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)}
    return arguments.kwarg is not None or not is_run_as_written(target.function) or known.issuperset(names)
