"""Which tensors certainly need a gradient: those that trained weights gave, through operations that keep the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import Instance, Result, options
from ..frozen.freezing import may_be_frozen
from .gradient_free import is_gradient_free
from .graph_sources import graph_sources

if TYPE_CHECKING:
    from ...facts.values import Call, Value
    from ..run import Run

_WITH_WEIGHTS = tuple(
    f"torch.nn.{kind}"
    for kind in (
        *("Linear", "Bilinear", "LazyLinear", "Embedding", "EmbeddingBag", "LayerNorm", "RMSNorm"),
        *(f"{kind}{size}d" for kind in ("Conv", "ConvTranspose", "LazyConv") for size in (1, 2, 3)),
        *(f"{kind}{part}" for kind in ("RNN", "LSTM", "GRU") for part in ("", "Cell")),
        *("MultiheadAttention", "Transformer", "TransformerEncoderLayer", "TransformerDecoderLayer"),
    )
)


def needs_gradient(run: Run, value: Value) -> bool:
    """Whether ``value``, whichever of its alternatives it is, goes back to weights that nothing freezes."""
    return all(any(gives_gradient(run, source.call) for source in graph_sources(option)) for option in options(value))


def gives_gradient(run: Run, call: Call) -> bool:
    """Whether ``call`` is one of a module with weights that nothing freezes, and autograd records it."""
    modules = options(call.func)
    trains = all(_has_weights(run, module) for module in modules) and not is_gradient_free(call)
    return trains and not may_be_frozen(run, *modules)


def _has_weights(run: Run, module: Value) -> bool:
    if not isinstance(module, Instance | Result):
        return False
    return next(run.bodies.of(module).modules_of(*_WITH_WEIGHTS), None) is not None
