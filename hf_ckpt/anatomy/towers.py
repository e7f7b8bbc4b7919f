"""Tells the towers of a multimodal model apart: by what the module around a stack takes, by its config, by names."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any

from ..policy.decision import Tower

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

#: Inputs of a forward by the tower that consumes them.
_INPUTS = {
    Tower.LANGUAGE: frozenset({"input_ids", "decoder_input_ids"}),
    Tower.VISION: frozenset({"pixel_values", "pixel_values_videos"}),
    Tower.AUDIO: frozenset({"input_features", "input_values"}),
}
#: transformers' own words for what a model takes (`input_modalities`), and for which config is whose.
_WORDS = {
    "text": Tower.LANGUAGE,
    "image": Tower.VISION,
    "video": Tower.VISION,
    "vision": Tower.VISION,
    "audio": Tower.AUDIO,
}
_VISION = re.compile(r"vision|visual|image|vit\b|\bvit|swin|siglip|dino|clip_?v|patch|pixel", re.IGNORECASE)
_AUDIO = re.compile(r"audio|speech|sound|whisperencoder|wav2vec|hubert|conformer", re.IGNORECASE)


def tower_of(owner: nn.Module, names: Iterable[str]) -> Tower:
    """The tower of the stack that ``owner`` runs; ``names`` (of the stack, of classes) decide where nothing else does.

    A model that takes several kinds of input does not say which of them a stack of its own sees.
    """
    for evidence in (_by_inputs(owner), _by_modalities(owner), _by_config(owner)):
        if len(evidence) == 1:
            return next(iter(evidence))
    return tower_by_names((*names, type(owner).__name__))


def _by_inputs(owner: nn.Module) -> set[Tower]:
    parameters = set(inspect.signature(type(owner).forward).parameters)
    return {tower for tower, inputs in _INPUTS.items() if inputs & parameters}


def _by_modalities(owner: nn.Module) -> set[Tower]:
    modalities: Any = getattr(owner, "input_modalities", ())
    words = (modalities,) if isinstance(modalities, str) else modalities
    return {_WORDS[word] for word in words if word in _WORDS}


def _by_config(owner: nn.Module) -> set[Tower]:
    key = getattr(getattr(owner, "config", None), "base_config_key", "")
    word = str(key).removesuffix("_config")
    return {_WORDS[word]} if word in _WORDS else set()


def tower_by_names(names: Iterable[str]) -> Tower:
    """The tower that the first telling name is of; language without one."""
    for text in names:
        if _AUDIO.search(text):
            return Tower.AUDIO
        if _VISION.search(text):
            return Tower.VISION
    return Tower.LANGUAGE
