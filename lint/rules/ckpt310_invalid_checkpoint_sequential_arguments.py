"""`checkpoint_sequential` with more segments than modules, none at all, or arguments it does not take.

## What it does
Flags a literal number of segments that is 0 or larger than the number of modules in the list or `nn.Sequential` of this
file, one that stands where the input belongs, a second input, an `nn.ModuleDict`, a module of this file whose `forward`
needs more than one value, and keyword arguments other than `use_reentrant` and `preserve_rng_state`.

## Why is this bad?
Too many segments raise `ValueError: range() arg 3 must not be zero`, 0 raises a ZeroDivisionError. The modules are
taken by number, which raises a KeyError in an `nn.ModuleDict`. Each module is called with the one value that the module
before it returned, a tuple stays whole, so a second parameter without a default raises a TypeError. Nothing is passed
on to the modules: a mask, or `context_fn`, raises `ValueError: Unexpected keyword arguments`.

## Bad
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint_sequential

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

        self.named = nn.ModuleDict({f"stage{i}": nn.Linear(8, 8) for i in range(3)})

    def forward(self, x, mask):
        x = checkpoint_sequential(self.named, 2, x, use_reentrant=False)  # error
        x = checkpoint_sequential(list(self.named.values()), 4, x, use_reentrant=False)  # error
        x = checkpoint_sequential(self.stages, 4, x, use_reentrant=False)  # error
        x = checkpoint_sequential(self.stages, len(self.stages) // 4, x, use_reentrant=False)  # error
        x = checkpoint_sequential(self.stages, 2, x, use_reentrant=False, mask=mask)  # error
        return checkpoint_sequential([self.stages, self.stages], 0, x, use_reentrant=False)  # error
```
```python
import torch
from torch.utils.checkpoint import checkpoint_sequential

def forward(blocks, x):
    x = checkpoint_sequential(blocks, 2, use_reentrant=False)  # error
    return checkpoint_sequential(blocks, 2, x, input=x, use_reentrant=False)  # error

def with_mask(blocks, x, ids, contexts):
    mask = torch.ones_like(x).requires_grad_()
    x = checkpoint_sequential(blocks, 2, x, mask)  # error
    return checkpoint_sequential(blocks, 2, x, ids, *contexts)  # error
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint_sequential

class Cross(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, image, text):
        return image + self.linear(text), text

class Net(nn.Module):
    def __init__(self, chunks, depth):
        super().__init__()
        self.stem, self.chunks = nn.Linear(8, 8), chunks
        self.stages = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.crossed = nn.ModuleList(Cross(8) for _ in range(depth))
        self.fixed = 2

    def forward(self, image, text):
        image = checkpoint_sequential(self.stages, image, 2, use_reentrant=False)  # error
        image = checkpoint_sequential(self.stages, image, self.fixed, use_reentrant=False)  # error
        image = checkpoint_sequential(self.stages, self.stem(image), self.chunks, use_reentrant=False)  # error
        image = checkpoint_sequential(self.stages, input=self.chunks, segments=[image], use_reentrant=False)  # error
        image, text = checkpoint_sequential(self.crossed, 2, (image, text), use_reentrant=False)  # error
        return checkpoint_sequential([Cross(8), self.stem], 2, (image, text), use_reentrant=False)  # error

def forward(x, pair):
    two = nn.Sequential(nn.Identity(), Cross(4))
    return checkpoint_sequential(two, 2, pair, use_reentrant=False)  # error
```

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint_sequential

def forward(x):
    layers = [nn.Linear(8, 8), nn.ReLU()]
    return checkpoint_sequential(nn.Sequential(*layers), len(layers) + 2, x, use_reentrant=False)  # error
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint_sequential

def forward(x):
    layers = [nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU()]
    segments = 2 * len(layers)
    return checkpoint_sequential(nn.Sequential(*layers), segments, x, use_reentrant=False)  # error
```

## Good
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint_sequential

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, pair, scale=1.0, *rest, mask=None):
        image, text = pair
        return image + self.linear(text) * scale, text

class Any(nn.Module):
    def forward(self, *inputs):
        return inputs[0]

def unpacked(forward):
    return lambda self, pair: forward(self, *pair)

class Unpacked(nn.Module):
    @unpacked
    def forward(self, image, text):
        return image, text

class Net(nn.Module):
    def __init__(self, depth, chunks=2):
        super().__init__()
        self.pairs = nn.Sequential(*[Pair() for _ in range(depth)])
        self.chunks = chunks

    def forward(self, image, text, segments):
        x = checkpoint_sequential(self.pairs, self.chunks, (image, text), use_reentrant=False)
        x = checkpoint_sequential(self.pairs, segments, x, False)
        x = checkpoint_sequential(self.pairs, len(self.pairs) // 2, input=x, use_reentrant=False)
        return checkpoint_sequential([Any(), Unpacked()], segments=2, input=x, use_reentrant=False)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint_sequential

class Net(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.stages = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.layers = nn.Sequential(*[nn.Linear(8, 8) for _ in range(depth)])
        self.named = nn.ModuleDict({f"stage{i}": nn.Linear(8, 8) for i in range(3)})
        self.grown = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        for _ in range(depth):
            self.grown.append(nn.Linear(8, 8))

    def forward(self, x, options, segments):
        x = checkpoint_sequential(self.stages, 3, x, use_reentrant=False)
        x = checkpoint_sequential(list(self.named.values()), 3, x, use_reentrant=False)
        x = checkpoint_sequential(self.stages, segments, x, use_reentrant=False, preserve_rng_state=True)
        x = checkpoint_sequential(self.layers, 8, x, use_reentrant=False)
        x = checkpoint_sequential(self.grown, 8, x, use_reentrant=False)
        return checkpoint_sequential(self.stages, 2, x, use_reentrant=False, **options)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint_sequential

def forward(x):
    layers = [nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU()]
    segments = int(len(layers) ** 0.5)
    return checkpoint_sequential(nn.Sequential(*layers), segments, x, use_reentrant=False)
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint_sequential

net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
x = torch.ones(2, 4, requires_grad=True)

def raises(segments, **options):
    try:
        checkpoint_sequential(net, segments, x, use_reentrant=False, **options)
    except Exception as error:
        return type(error)
    return None

assert [raises(segments) for segments in (1, 2, 3)] == [None] * 3
assert raises(4) is ValueError
assert raises(0) is ZeroDivisionError
assert raises(2, mask=None) is ValueError
net = torch.nn.ModuleDict({"a": torch.nn.Linear(4, 4), "b": torch.nn.Linear(4, 4)})
assert raises(2) is KeyError
net = torch.nn.Sequential(*net.values())
assert raises(2, context_fn=lambda: None) is ValueError
assert raises(2, preserve_rng_state=False) is None
assert raises(x) is TypeError

class Cross(torch.nn.Module):
    def forward(self, image, text):
        return image, text

for reentrant in (True, False):
    for swapped, given in ((x, 2), (2, (x, x))):
        try:
            checkpoint_sequential([Cross(), Cross()], swapped, given, use_reentrant=reentrant)
        except TypeError:
            continue
        raise AssertionError
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`checkpoint_sequential`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.objects.classes import ancestors, is_run_as_written
from ..facts.objects.containers import container_kind, elements, length_of
from ..facts.objects.own_fields import stored_together
from ..facts.objects.torch_classes import is_known_class
from ..facts.parameters import defaults
from ..facts.values import Class, Const, Dict, Function, Instance, Result, Seq, equals, is_given, options
from ..finding import Severity
from ..model.calls.call_targets import call_targets
from ..model.calls.own_calls import is_called_as_written
from ..model.events import CheckpointSequential
from ..model.libraries.signatures import SIGNATURES, misfit
from ..model.names import canonical
from ..model.report import Report
from ..model.tensors.tensor_values import is_tensor
from ..model.types import bases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.calls.call_targets import CallTarget
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT310", "invalid-checkpoint-sequential-arguments", Severity.ERROR
NEEDS = (CheckpointSequential,)
RAISES = True
#: Modules of torch that a number goes through, or that hold others.
_CONTENT_WITH_NUMBERS = frozenset(
    f"torch.nn.{name}" for name in ("Identity", "Module", "ModuleDict", "ModuleList", "Sequential")
)
_TAKEN = ("functions", "segments", "input", "use_reentrant", "preserve_rng_state")


def check(run: Run) -> Iterator[Report]:
    """Report calls that raise."""
    for event in run.of(CheckpointSequential):
        problem = _swapped(event) or _segments(run, event) or _keywords(event) or _unbound(event) or _inputs(event)
        problem = problem or _one_value(run, event) or _one_module(event)
        if problem:
            yield Report(event.node, problem)


def _swapped(event: CheckpointSequential) -> str:
    """Whether the number of segments stands where the input belongs, or something else in its place."""
    is_number = isinstance(event.input, Const) and type(event.input.value) is int
    if all(map(_is_no_number, options(event.segments))) or (is_number and _takes_tensors(event.functions)):
        return (
            "this call raises a TypeError: the second argument of `checkpoint_sequential` is the number of segments, "
            "the input comes third"
        )
    return ""


def _takes_tensors(functions: Value) -> bool:
    """Whether the first module is one of torch that computes with its input, so that a number cannot be it."""
    match elements(functions):
        case [Result(call), *_]:
            kind = canonical(call.name)
            return kind.startswith("torch.nn.") and is_known_class(kind) and kind not in _CONTENT_WITH_NUMBERS
    return False


def _is_no_number(value: Value) -> bool:
    match value:
        case Seq() | Dict() | Function() | Class():
            return True
        case Const(held):
            return not isinstance(held, int)
        case Result(call):
            made = call.func.call.name if isinstance(call.func, Result) else call.name
            return made.startswith("torch.nn.")  # A module of torch, or the tensor that it gives.
    return False


def _inputs(event: CheckpointSequential) -> str:
    """Whether it is given several inputs: what stands fourth is its own flag."""
    if len(event.call.args) > 3 and (event.call.open_args or is_tensor(event.call.args[3])):
        return (
            "`checkpoint_sequential` takes one input, what follows it is `use_reentrant`, so this call raises; call "
            "`checkpoint`, which takes several, for each block"
        )
    return ""


def _one_value(run: Run, event: CheckpointSequential) -> str:
    """Whether a module cannot be called with one value, which is what each of them gets."""
    for module in elements(event.functions):
        needed = [_needed(run, option) for option in options(module)]
        if all(needed):
            return (
                f"this call raises a TypeError: each module gets one value, also when that is a tuple, and here "
                f"{needed[0]}; take them apart inside of the module"
            )
    return ""


def _one_module(event: CheckpointSequential) -> str:
    """Whether it is given one module, which is no list of them."""
    module = event.functions
    if not isinstance(module, Instance) or module.call is None or container_kind(module):
        return ""
    owners = (module.cls, *ancestors(module.cls))
    has_length = any(name in owner.body for owner in owners for name in ("__len__", "__getattr__"))
    if has_length or set(bases(module.cls)) != {"torch.nn.Module"}:
        return ""
    return (
        f"this call raises a TypeError: `{module.cls.name}` is one module and has no length; give the list of its "
        "blocks, or call `checkpoint`"
    )


def _needed(run: Run, module: Value) -> str:
    """What a call of ``module`` with one value leaves open; empty when it fits, or that is not shown."""
    if not is_called_as_written(run, module):
        return ""
    return next(map(_unmet, call_targets(module)), "")


def _unmet(target: CallTarget) -> str:
    """What a call with one value leaves open of the parameters of ``target``; empty when it fits."""
    arguments = target.function.node.args
    if not is_run_as_written(target.function) or target.is_open:
        return ""
    given = target.parameters()
    if not given and arguments.vararg is None:
        return "one takes no argument"
    filled = target.named | defaults(target.function.node).keys()
    required = [name for name in (*given[1:], *(word.arg for word in arguments.kwonlyargs)) if name not in filled]
    return f"one also needs `{required[0]}`" if required else ""


def _segments(run: Run, event: CheckpointSequential) -> str:
    if equals(event.segments, 0):
        return "0 segments raise a ZeroDivisionError; write 2 or more"
    if isinstance(event.functions, Result) and container_kind(event.functions) == "ModuleDict":
        return (
            "`checkpoint_sequential` takes modules by number, which raises a KeyError in an `nn.ModuleDict`; write "
            "`list(modules.values())`"
        )
    return next(filter(None, (_too_many(*it) for it in _cuts(run, event))), "")


def _cuts(run: Run, event: CheckpointSequential) -> list[tuple[Value, Value]]:
    """The modules and in how many segments they are cut, for each object where its constructor is told both."""
    function = event.place.function
    owner = function.owner if function is not None and not event.place.guards else None
    if owner is None or isinstance(event.segments, Const):
        return [(event.functions, event.segments)]
    if any(run.calls_to("builtins.setattr")):
        return []
    return stored_together(owner, event.functions, event.segments, run.writes)


def _too_many(functions: Value, parts: Value) -> str:
    length, segments = length_of(functions), parts.value if isinstance(parts, Const) else None
    if isinstance(segments, int) and length is not None and segments > length:
        return f"{segments} segments of {length} modules raise a ValueError; write {length} or fewer"
    return ""


def _unbound(event: CheckpointSequential) -> str:
    problem = misfit(event.call, SIGNATURES["torch.utils.checkpoint.checkpoint_sequential"])
    return f"this call raises a TypeError: `checkpoint_sequential` {problem}" if problem else ""


def _keywords(event: CheckpointSequential) -> str:
    wrong = [name for name in event.call.kwargs if name not in _TAKEN and is_given(event.call, name)]
    if not wrong:
        return ""
    return f"`checkpoint_sequential` passes nothing on to the modules: `{wrong[0]}=` raises a ValueError; drop it"
