"""Which calls of modules a tensor's gradient surely goes back to, through operations that keep the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import Computed, Dict, Element, Instance, Ref, Result, Seq, options
from ..names import canonical
from .gradient_free import is_gradient_free
from .tensor_methods import COPIES, MOVES, NUMBERS, SHAPES, SPLITS
from .tensor_values import is_operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Value

#: Methods that give one tensor, or a tuple of tensors, with the graph of their object.
_METHODS = MOVES | SHAPES | SPLITS | COPIES | NUMBERS
_FUNCTIONS = frozenset(
    (
        *("einops.rearrange", "einops.repeat", "torch.cat", "torch.concat", "torch.stack", "torch.flatten"),
        *("torch.unsqueeze", "torch.permute", "torch.tanh", "torch.sigmoid", "torch.relu", "torch.exp"),
        *("torch.softmax", "torch.flip", "torch.chunk", "torch.split", "torch.unbind"),
        *(f"torch.nn.functional.{name}" for name in ("relu", "gelu", "silu", "softmax", "normalize", "pad", "dropout")),
        *(f"torch.nn.functional.{name}" for name in ("leaky_relu", "softplus", "layer_norm", "interpolate")),
    )
)
#: Modules that give tuples of tensors, each with the graph, and the one whose second output is weights of attention.
_RECURRENT = frozenset(f"torch.nn.{kind}" for kind in ("RNN", "LSTM", "GRU", "LSTMCell"))
_ATTENTION = "torch.nn.MultiheadAttention"
#: More steps from value to value than this are not followed.
_DEPTH = 8


def graph_sources(value: Value, depth: int = _DEPTH) -> Iterator[Result]:
    """The outputs of modules that ``value`` is, holds or is computed from."""
    parts: list[Value] = []
    match value:
        case Seq(items=held):
            parts = held
        case Dict(items=entries):
            parts = [*entries.values()]
        case Computed(operands=operands) if is_operation(value):
            parts = [*operands]
        case Element(of=Result(call)) if (call.method or call.name.rpartition(".")[2]) in SPLITS:
            parts = _passed_on(call)
        case Element(of=Result(call) as output, index=index) if _gives_several(call, index):
            yield output
        case Result(call):
            if all(isinstance(option, Instance | Result) for option in options(call.func)):
                yield value
            parts = _passed_on(call)
    for part in parts if depth else ():
        yield from graph_sources(part, depth - 1)


def _gives_several(call: Call, index: object) -> bool:
    """Whether ``call`` is one of modules whose output at ``index`` of a tuple has the graph: `h, _ = self.gru(x)`."""
    kinds = [canonical(module.call.name) if isinstance(module, Result) else "" for module in options(call.func)]
    return all(kind in _RECURRENT or (kind == _ATTENTION and index == 0) for kind in kinds)


def _passed_on(call: Call) -> list[Value]:
    """What ``call`` gives the graph of."""
    if is_gradient_free(call):
        return []
    if call.method in _METHODS:
        # `to(torch.long)` gives numbers without a gradient.
        return [] if any(_is_data_type(given) for given in (*call.args, *call.kwargs.values())) else [call.receiver]
    return [*call.args[:1]] if canonical(call.name) in _FUNCTIONS else []


def _is_data_type(value: Value) -> bool:
    """Whether it is a type other than those of floating point: `torch.long`."""
    return isinstance(value, Ref) and not value.name.startswith(("torch.float", "torch.bfloat", "torch.half"))
