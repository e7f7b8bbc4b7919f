"""Models of transformers of which what is below the layers is frozen, and layers train: what these get has no graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.nodes import source_text
from ...facts.values import Attr, Result, Value
from ..known_models.backbones import BACKBONES, INPUT_EMBEDDINGS
from ..known_models.model_families import family_of
from ..libraries.sharding import attributes, root
from ..types import unwrapped
from .layers_by_name import SwitchedNames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..events import GradientSwitch
    from ..history import History
    from ..known_models.backbones import Backbone

EMBEDDINGS = "get_input_embeddings"
#: Where models keep their backbone, by their family.
_HOLDERS = {
    "Bert": "bert",
    "DistilBert": "distilbert",
    "Electra": "electra",
    "GPT2": "transformer",
    "GPTNeoX": "gpt_neox",
    **dict.fromkeys(("Roberta", "XLMRoberta", "Camembert"), "roberta"),
    **dict.fromkeys(("Llama", "Mistral", "Mixtral", "Qwen2", "Qwen3", "Gemma", "Gemma2", "Phi"), "model"),
}


def frozen_inputs(run: History, model: Value, freezes: list[GradientSwitch]) -> GradientSwitch | None:
    """The switch that freezes what is below the layers of ``model``, of which some train; None where that is open.

    Args:
        run: The history.
        model: A model of transformers, without wrappers.
        freezes: What switches gradients of it off. Nothing switches them on again.
    """
    found: list[GradientSwitch] = []
    for backbone in _backbones(model, freezes):
        off = SwitchedNames(run, [(switch, _path(switch, model, backbone)) for switch in freezes])
        below = [off.switch_of(name) for name in backbone.parameters_below()]
        if not any(below):
            continue  # These names are those of another model.
        if below[0] is None or not all(below) or not off.spares_a_layer(backbone):
            return None
        found.append(below[0])
    return found[0] if found else None


def _backbones(model: Value, freezes: list[GradientSwitch]) -> Iterator[Backbone]:
    """The families that ``model`` may be of: its own, or those that what freezes it names."""
    holder = _HOLDERS.get(family_of(model))
    named = {part for switch in freezes for part in _named_by(switch)}
    for backbone in BACKBONES:
        if backbone.holder == holder or (holder is None and backbone.holder in named):
            yield backbone


def _named_by(switch: GradientSwitch) -> Iterator[str]:
    """The attributes of a model that ``switch`` is written with: `bert` of `model.bert.embeddings`, or in a text."""
    yield from tuple(attributes(switch.module))[-1:]
    for guard in switch.place.guards:
        text = source_text(guard.test)
        yield from (it.holder for it in BACKBONES if any(f"{quote}{it.holder}." in text for quote in "\"'"))


def _path(switch: GradientSwitch, model: Value, backbone: Backbone) -> tuple[str, ...]:
    """The attributes that lead from ``model`` to what is switched."""
    path = path_in(switch.module, model)
    if path != (EMBEDDINGS,):
        return path
    tokens = (name.rpartition(".")[0] for name in backbone.below)
    name = next((it for it in tokens if it in INPUT_EMBEDDINGS or it.endswith(".word_embeddings")), EMBEDDINGS)
    return (backbone.holder, *name.split("."))


def path_in(module: Value, model: Value) -> tuple[str, ...]:
    """The attributes that lead from ``model`` to ``module``; none where it belongs to another one."""
    if owner_of_embeddings(module) is model:
        return (EMBEDDINGS,)
    path = tuple(attributes(module))[::-1] if root(module) is model else ()
    return path[:-1] if path[-1:] == ("weight",) else path


def owner_of_embeddings(module: Value) -> Value | None:
    """The model whose `get_input_embeddings()` gives ``module``; None for other modules."""
    match module:
        case Result(call) if call.method == EMBEDDINGS:
            return unwrapped(call.receiver)
        case Attr(base=Result() as embedding, name="weight"):
            return owner_of_embeddings(embedding)  # It has no other parameter.
    return None
