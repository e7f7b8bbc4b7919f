"""The weights that modules hold, each known by the call that built the module, and by what led to that call."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from ...facts.objects.containers import container_kind, given_to, held_by
from ...facts.objects.own_fields import fields_of
from ...facts.values import Instance, Result, Seq, Value, one, options
from ..frozen.named_switches import PARAMETER
from ..names import canonical
from ..types import unwrapped

if TYPE_CHECKING:
    import ast

    from ...facts.values import Call
    from ..history import History
    from ..regions.region import Region

#: A call as one way through the program comes to it.
Built: TypeAlias = "tuple[ast.AST, tuple[ast.Call, ...]]"

_WITH_WEIGHTS = frozenset(
    f"torch.nn.{kind}"
    for kind in (
        *("Linear", "Bilinear", "Embedding", "EmbeddingBag", "LayerNorm", "RMSNorm", "GroupNorm", "PReLU"),
        *("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
        *("LazyLinear", "LazyConv1d", "LazyConv2d", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d"),
        *("MultiheadAttention", "Transformer", "TransformerEncoder", "TransformerEncoderLayer"),
        *("TransformerDecoder", "TransformerDecoderLayer", "RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"),
    )
)


def weights_in(module: Value) -> dict[Built, Result]:
    """What has weights in ``module``: modules of torch, whole models that a library built, and its own parameters."""
    found: dict[Built, Result] = {}
    seen, left = set[int](), [module]
    while left:
        value = unwrapped(left.pop())
        if id(value) in seen:
            continue
        seen.add(id(value))
        match value:
            case Instance():
                left += [*fields_of(value), *(held_by(value) if container_kind(value) else ())]
            case Result(call) if container_kind(value):
                left += given_to(call)
            case Result(call) if _has_weights(call):
                found[_built(call)] = value
            case Seq(items=items):
                left += items
            case _:
                several = options(value)
                left += several if several != (value,) else ()
    return found


def weights_of(region: Region) -> dict[Built, Result]:
    """What has weights among the modules that ``region`` runs."""
    found: dict[Built, Result] = {}
    for module in region.modules:
        own = fields_of(module) if isinstance(module, Instance) else (module,)
        for part in (option for value in own for option in options(value)):
            if isinstance(part, Result) and _has_weights(part.call):
                is_own = part is module or canonical(part.call.name) in PARAMETER
                found |= {_built(part.call): part} if is_own else {}
    return found


def are_held_alone(run: History, weights: Result, held: dict[Built, Result]) -> bool:
    """Whether all that the expression of ``weights`` ever builds is among ``held``: no other object has such a part."""
    call = weights.call
    made = (other for other in run.calls_at(call.node) if other.place.walk == call.place.walk)
    return all(_built(other) in held for other in made)


def is_certainly_one(run: History, left: Value, right: Value) -> bool:
    """Whether both are one object, also where a function or a constructor that several objects come from builds it."""
    if not one(left, right) or not isinstance(left, Instance) or not isinstance(right, Instance):
        return one(left, right)
    made, other = left.call, right.call
    if made is None or other is None:
        return True
    # What a constructor stores in `self` is one value for all objects of the class.
    in_objects = any(getattr(callee, "name", "") == "__init__" for callee in made.place.callees)
    ways = {call.place.stack for call in run.calls_at(made.node) if call.place.walk == made.place.walk}
    return made.is_repeated_by(other) and (not in_objects or len(ways) == 1)


def is_built_by_itself(model: Value, forward: Call) -> bool:
    """Whether no loop but one around ``forward`` may have built several of ``model``."""
    made = model.call if isinstance(model, Instance | Result) else None
    return made is None or made.place.loops == forward.place.loops[: len(made.place.loops)]


def _built(call: Call) -> Built:
    return call.node, call.place.stack


def _has_weights(call: Call) -> bool:
    name = canonical(call.name)
    return name in _WITH_WEIGHTS or name in PARAMETER or name.endswith(".from_pretrained")
