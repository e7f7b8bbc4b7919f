"""What each card holds where the layers stand on several, one after the other, as ``device_map="auto"`` places them.

accelerate places whole layers by the bytes of their weights. Every card computes its layers in turn, on the same batch.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...compat.models import output_head, unsplit_modules
from ...errors import ForecastError
from .optimizers import foreach_copies, rule_for, state_bytes
from .quantised import packed_bytes, quantised_weights
from .state import gradient_bytes, late_gradient_bytes, storage_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import torch

    from .setup import Setup


@dataclass(frozen=True, slots=True)
class Card:
    """One of several cards, in bytes.

    Attributes:
        first: Its first layer.
        end: The layer after its last one.
        has_head: Whether the loss is computed on it.
        standing: Its weights and the optimizer's state of them, and a weight that is taken out of its packing.
        head_gradients: Gradients that exist before the first layer's backward.
        late_gradients: Those that come last, of the input embeddings.
        gradients: All gradients of its weights.
        step_copies: What the optimizer's step takes for itself.
    """

    first: int
    end: int
    has_head: bool
    standing: int
    head_gradients: int
    late_gradients: int
    gradients: int
    step_copies: int


def placed(model: torch.nn.Module, layers: Sequence[torch.nn.Module], setup: Setup, capacity: int) -> tuple[Card, ...]:
    """Place a model on the meta device over ``setup.gpus`` cards.

    Args:
        model: The model, with its adapters.
        layers: Its decoder layers, in forward order.
        setup: The number of cards, the optimizer, and whether weights are packed.
        capacity: Bytes of a card.

    Returns:
        What every card holds that gets something, in order.

    Raises:
        ForecastError: the weights do not fit the cards, or their order is not that of the layers.
    """
    packed = quantised_weights(model) if setup.four_bit else {}
    card_of = _cards_of_parameters(model, packed, setup.gpus, capacity)
    of_layer = [min(card_of[id(p)] for p in layer.parameters()) for layer in layers]
    if of_layer != sorted(of_layer):
        raise ForecastError("accelerate does not place this model's layers in their order: leave --device-map out")
    head = output_head(model)
    on_head = max(of_layer) if head is None else max(card_of[id(p)] for p in head[1].parameters())
    cards = sorted({*card_of.values()})
    return tuple(_card(model, layers, setup, packed, (card, card_of, of_layer, on_head)) for card in cards)


def _card(
    model: torch.nn.Module,
    layers: Sequence[torch.nn.Module],
    setup: Setup,
    packed: Mapping[int, torch.Tensor],
    place: tuple[int, Mapping[int, int], Sequence[int], int],
) -> Card:
    card, card_of, of_layer, on_head = place
    here = [p for p in model.parameters() if card_of[id(p)] == card]
    trained = [p for p in here if p.requires_grad]
    plain = storage_bytes(p for p in here if id(p) not in packed)
    weights = plain + sum(packed_bytes(p.numel()) for p in here if id(p) in packed)
    taken_out = max((p.numel() * p.element_size() for p in here if id(p) in packed), default=0)
    rule = rule_for(setup.optimizer)
    state = sum(state_bytes(rule, p.shape, p.element_size()) for p in trained)
    all_gradients = gradient_bytes(trained)
    in_layers = sum(gradient_bytes(x.parameters()) for x, place in zip(layers, of_layer, strict=True) if place == card)
    outside = all_gradients - in_layers
    late = min(outside, late_gradient_bytes(model)) if card == min(of_layer) else 0
    first = sum(place < card for place in of_layer)
    return Card(
        first=first,
        end=first + sum(place == card for place in of_layer),
        has_head=card == on_head,
        standing=weights + taken_out + state,
        head_gradients=outside - late,
        late_gradients=late,
        gradients=all_gradients,
        step_copies=foreach_copies(setup.optimizer) * all_gradients,
    )


def _cards_of_parameters(
    model: torch.nn.Module, packed: Mapping[int, torch.Tensor], gpus: int, capacity: int
) -> dict[int, int]:
    """The card of every parameter, by id."""
    from accelerate.utils import get_balanced_memory, infer_auto_device_map  # start-up: only such plans need it

    whole_model: Any = model
    base = whole_model.get_base_model() if hasattr(model, "get_base_model") else whole_model
    sizes = _sizes(base, packed)
    whole = unsplit_modules(base)
    with _quiet(get_balanced_memory.__module__):  # it says of each card that this machine has none
        room = get_balanced_memory(base, dict.fromkeys(range(gpus), capacity), whole, **sizes)
        places = infer_auto_device_map(base, room, whole, **sizes)
    if not all(isinstance(place, int) for place in places.values()):
        raise ForecastError(f"the weights do not fit {gpus} cards: use more of them")
    found = {}
    for name, parameter in base.named_parameters():
        near = [module for module in places if not module or name == module or name.startswith(f"{module}.")]
        found[id(parameter)] = places[max(near, key=len)]
    return found


@contextmanager
def _quiet(logger: str) -> Iterator[None]:
    log = logging.getLogger(logger)
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _sizes(base: torch.nn.Module, packed: Mapping[int, torch.Tensor]) -> dict[str, Any]:
    """What accelerate is told of weights in 4 bit; it knows the size of all others."""
    if not packed:
        return {}
    from accelerate.utils import CustomDtype

    others = {name: p.dtype for name, p in base.named_parameters() if id(p) not in packed}
    return {"dtype": CustomDtype.INT4, "special_dtypes": others}
