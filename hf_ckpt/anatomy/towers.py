"""Tells the towers of a multimodal model apart."""

from __future__ import annotations

import re

from ..policy.decision import Tower

_VISION = re.compile(r"vision|visual|image|vit\b|\bvit|swin|siglip|dino|clip_?v|patch|pixel", re.IGNORECASE)
_AUDIO = re.compile(r"audio|speech|sound|whisperencoder|wav2vec|hubert|conformer", re.IGNORECASE)


def tower_of(stack_name: str, owner_class: str, layer_class: str) -> Tower:
    """The tower of a stack, from its place in the model and the classes around it."""
    for text in (stack_name, owner_class, layer_class):
        if _AUDIO.search(text):
            return Tower.AUDIO
        if _VISION.search(text):
            return Tower.VISION
    return Tower.LANGUAGE
