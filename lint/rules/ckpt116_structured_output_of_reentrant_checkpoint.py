"""A reentrant checkpoint around a function that returns a dict, a list or an object.

## What it does
Flags a checkpoint that runs reentrant (also by leaving `use_reentrant` out), and modules that torch's wrappers make
reentrant, when every `return` gives a dict, a list, a nested tuple, a dataclass or an output object of transformers. A
tensor and a flat tuple, with constants among it or not, are fine.

## Why is this bad?
The reentrant variant connects a tensor and the tensors of a flat tuple to the graph, and nothing deeper. What comes
out of a dict has `requires_grad=False`: the region does not train, silently when the loss has another path.

## Bad
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        inner = self.up(x).relu()
        return {"output": x + self.down(inner), "inner": inner}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=True)["output"] + x  # error
```
```python
from torch.utils.checkpoint import checkpoint

def forward(layers, x):
    def run(h):
        states = []
        for layer in layers:
            h = layer(h)
            states.append(h)
        return h, states
    h, states = checkpoint(run, x, use_reentrant=True)  # error
    return h + states[0]
```
```python
from torch.utils.checkpoint import checkpoint

def region(x, scale):
    return x * 2, (x * 3, x * 4)

def forward(x):
    a, (b, c) = checkpoint(region, x, 2, use_reentrant=True)  # error
    return a + b + c
```

## Good
```python
from torch.utils.checkpoint import checkpoint

def region(x, scale):
    return x * 2, (scale * 3, scale * 4)

def forward(x):
    a, (b, c) = checkpoint(region, x, 2, use_reentrant=True)
    return a * b * c
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return {"output": self.down(self.up(x).relu())}

def flat(x):
    return x * 2, None, 3, "four"

def maybe(x, as_dict):
    if as_dict:
        return {"output": x * 2}
    return x * 2

def named(x):
    return x * 2, {"count": 2, "mean": x.detach().mean()}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        x = checkpoint(self.block, x, use_reentrant=False)["output"]
        x = checkpoint(flat, x, use_reentrant=True)[0]
        x = checkpoint(named, x, use_reentrant=True)[0]
        return checkpoint(maybe, x, False, use_reentrant=True)
```

## Fix safety
Unsafe: the non-reentrant variant runs instead, which gives these parameters their gradients.

## Evidence
```python
from dataclasses import dataclass
import torch
from torch.utils.checkpoint import checkpoint
from transformers.modeling_outputs import BaseModelOutput

@dataclass
class Output:
    state: torch.Tensor

layer = torch.nn.Linear(4, 4)
SHAPES = {
    "tensor": (lambda h: h, lambda y: y),
    "tuple": (lambda h: (h, None, 3, "four"), lambda y: y[0]),
    "list": (lambda h: [h], lambda y: y[0]),
    "dict": (lambda h: {"h": h}, lambda y: y["h"]),
    "nested": (lambda h: (1, (h, h)), lambda y: y[1][0]),
    "dataclass": (Output, lambda y: y.state),
    "output": (lambda h: BaseModelOutput(last_hidden_state=h), lambda y: y.last_hidden_state),
}

for name, (pack, unpack) in SHAPES.items():
    for reentrant in (True, False):
        layer.zero_grad()
        x = torch.ones(2, 4, requires_grad=True)
        y = unpack(checkpoint(lambda h: pack(layer(h)), x, use_reentrant=reentrant))
        (y + x).sum().backward()
        trained = layer.weight.grad is not None
        assert trained == (not reentrant or name in ("tensor", "tuple")), (name, reentrant)
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`CheckpointFunction.backward` looks at flat outputs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.identifiers import operands
from ..facts.objects.classes import is_dataclass
from ..facts.values import Const, Dict, Function, Instance, Method, Result, Seq, Value, options
from ..finding import Applicability, Severity
from ..model.calls.call_targets import call_targets
from ..model.events import Checkpoint, Checkpointing, DeepSpeedCheckpoint, WrapperCheckpointing
from ..model.known_models.timm_models import feature_model
from ..model.names import canonical
from ..model.regions.given_parameters import NOTHING_GIVEN, GivenParameters
from ..model.report import Remark, Report, Rewrite, SetKeyword
from ..model.results.recurrent_states import is_lstm, reads_state
from ..model.tensors.gradless import carries_gradient
from ..model.types import bases
from ..model.wrapping.wrapped import wrapped_classes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Call
    from ..facts.walk import Returned
    from ..model.events.checkpoints import FunctionCheckpoint
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT116", "structured-output-of-reentrant-checkpoint", Severity.ERROR
NEEDS = (Checkpointing,)
_NAMESPACES = ("types.SimpleNamespace", "argparse.Namespace")


def check(run: Run) -> Iterator[Report]:
    """Report reentrant regions whose results are not connected to the graph."""
    for event in run.replayed(Checkpoint):
        shown = _result_of(run, event) if run.runs_reentrant(event) else None
        if shown is not None:
            rewrite = (SetKeyword(event.node, "use_reentrant", "False"),)
            fix = Rewrite(Applicability.UNSAFE, "Use the non-reentrant variant", rewrite)
            yield _report(event, "use_reentrant=False", shown)._replace(fix=fix)
    for foreign in run.replayed(DeepSpeedCheckpoint):
        shown = _result_of(run, foreign)
        if shown is not None:
            yield _report(foreign, "return (a, b)", shown)
    for wrap in run.replayed(WrapperCheckpointing):
        found = (
            [_structured(run, cls.instance) for cls in wrapped_classes(run, wrap)] if run.runs_reentrant(wrap) else []
        )
        for returned in filter(None, found[:1]):
            yield _report(wrap, "checkpoint_impl=CheckpointImpl.NO_REENTRANT", _remark(returned))


def _result_of(run: Run, event: FunctionCheckpoint) -> Remark | None:
    """Where what ``event`` checkpoints gives a structured result."""
    features = [feature_model(option) for option in options(event.function)]
    if features[0] is not None and all(features):
        return Remark(features[0].call.node, "`features_only` makes this model return a list")
    if is_lstm(event.function) and reads_state(run, event.call):
        return Remark(event.function.node or event.node, "an LSTM gives its state as a tuple beside its output")
    given = GivenParameters(event.function, event.inputs, event.function_kwargs)
    returned = _structured(run, event.function, given)
    return None if returned is None else _remark(returned)


def _remark(returned: Returned) -> Remark:
    return Remark(returned.node, "what the function returns")


def _report(event: Checkpointing, remedy: str, shown: Remark) -> Report:
    return Report(
        event.node,
        "the reentrant variant connects only a tensor or a flat tuple of tensors to the graph, so what is inside this "
        f"result gets no gradient; write `{remedy}`",
        notes=(shown,),
    )


def _structured(run: Run, function: Value, given: GivenParameters = NOTHING_GIVEN, hops: int = 3) -> Returned | None:
    """The first return of the checkpointed ``function`` when all of its returns are structured.

    Args:
        run: The run.
        function: What is checkpointed.
        given: What it is given.
        hops: How many functions are looked into that only hand on what another one returns.
    """
    targets = list(call_targets(function))
    found = [run.program.returns.get(part.function.node, []) for part in targets]
    returns = [returned for part in found for returned in part]
    certain = bool(found) and all(found)
    inputs = {name for part in targets for name in part.parameters()[:1]}
    everywhere = all(
        _is_structured(option, inputs) or _is_handed_on(run, option, given, hops)
        for returned in returns
        for option in options(returned.value)
    )
    return returns[0] if certain and everywhere else None


def _is_handed_on(run: Run, value: Value, given: GivenParameters, hops: int) -> bool:
    """Whether ``value`` is a structured result of a module that is given, or bound early: `lambda x, b=block: b(x)`."""
    modules = options(given.called_by(value.call)) if isinstance(value, Result) else []
    known = all(isinstance(module, Instance | Function | Method) for module in modules)
    if not modules or not known or not hops:
        return False
    return all(_structured(run, module, hops=hops - 1) is not None for module in modules)


def _is_structured(value: Value, inputs: set[str]) -> bool:
    match value:
        case Seq("tuple", items):
            inner = [held for item in items if isinstance(item, Seq | Dict) for held in _held(item)]
            return any(_is_computed(option, inputs) for held in inner for option in options(held))
        case Seq("list") | Dict():
            return any(not isinstance(held, Const) for held in _held(value))
        case Instance(cls, made):
            return is_dataclass(cls) or (made is not None and not any(bases(cls)) and _is_given_computed(made))
        case Result(call) if call.name in _NAMESPACES:
            return _is_given_computed(call)
        case Result(call):
            name = canonical(call.name)
            return name.startswith("transformers.") and name.rpartition(".")[2].endswith(("Output", "OutputWithPast"))
    return False


def _is_given_computed(made: Call) -> bool:
    """Whether an object gets something that a call computed when it is made, to be read from it."""
    return any(carries_gradient(option) for given in (*made.args, *made.kwargs.values()) for option in options(given))


def _is_computed(value: Value, inputs: set[str]) -> bool:
    """Whether ``value`` is what a call made, or an operation on the first input of the function."""
    return not inputs.isdisjoint(operands(value.node)) or carries_gradient(value)


def _held(value: Seq | Dict) -> list[Value]:
    return list(value.items.values()) if isinstance(value, Dict) else value.items
