"""Modules of `torch.nn` that are built of other modules: what they build, and which of their arguments they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...facts.values import Absent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Value


class Composition(NamedTuple):
    """What a module builds, and the positions and names of the arguments that it holds when they are modules."""

    builds: tuple[str, ...]
    holds: tuple[tuple[int, str], ...] = ()


_ATTENTION = ("MultiheadAttention", "Linear", "Dropout", "LayerNorm")
#: By name in `torch.nn`: torch 2.13 `torch/nn/modules/transformer.py`, `activation.py`, `adaptive.py`, `loss.py`.
COMPOSITIONS: dict[str, Composition] = {
    "MultiheadAttention": Composition(("NonDynamicallyQuantizableLinear", "Linear")),
    "TransformerEncoderLayer": Composition(_ATTENTION, ((4, "activation"),)),
    "TransformerDecoderLayer": Composition(_ATTENTION, ((4, "activation"),)),
    "TransformerEncoder": Composition(("ModuleList",), ((0, "encoder_layer"), (2, "norm"))),
    "TransformerDecoder": Composition(("ModuleList",), ((0, "decoder_layer"), (2, "norm"))),
    "Transformer": Composition(
        (
            *("TransformerEncoder", "TransformerDecoder", "TransformerEncoderLayer", "TransformerDecoderLayer"),
            *("LayerNorm", "ModuleList"),
        ),
        ((6, "activation"), (7, "custom_encoder"), (8, "custom_decoder")),
    ),
    "AdaptiveLogSoftmaxWithLoss": Composition(("Linear", "Sequential", "ModuleList")),
    "LinearCrossEntropyLoss": Composition(("Linear",)),
    "TripletMarginWithDistanceLoss": Composition(("PairwiseDistance",), ((0, "distance_function"),)),
}


def built_in(kind: str) -> frozenset[str]:
    """The classes of all modules that a module of the class ``kind`` builds, and the classes these derive from."""
    found: set[str] = set()
    waiting = [kind]
    while waiting:
        composition = COMPOSITIONS.get(waiting.pop().removeprefix("torch.nn."))
        new = {f"torch.nn.{name}" for name in composition.builds} - found if composition is not None else set()
        found |= new
        waiting += new
    return frozenset(found)


def holds_given(kind: str) -> bool:
    """Whether a module of the class ``kind`` may hold modules that it is given."""
    composition = COMPOSITIONS.get(kind.removeprefix("torch.nn."))
    return composition is not None and bool(composition.holds)


def given_to_hold(kind: str, call: Call) -> Iterator[Value]:
    """What the call that builds a module of the class ``kind`` gives it to hold."""
    composition = COMPOSITIONS.get(kind.removeprefix("torch.nn."))
    for position, name in composition.holds if composition is not None else ():
        given = call.argument(position, name)
        if not isinstance(given, Absent):
            yield given
