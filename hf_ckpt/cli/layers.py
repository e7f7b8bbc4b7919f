"""Gives a config another number of layers."""

from __future__ import annotations

import re
from typing import Any

_PER_LAYER = re.compile(r"layer|block|types|modes")
_DECODER_COUNTS = ("num_decoder_layers", "decoder_layers")


def set_layers(config: Any, layers: int) -> None:
    """Set the number of layers, on both sides of an encoder-decoder.

    A list with an entry for each layer (``layer_types``) is cut, or repeated from its start, to agree.
    """
    text = config.get_text_config()
    before = text.num_hidden_layers
    for name, value in list(vars(text).items()):
        if isinstance(value, list) and len(value) == before and _PER_LAYER.search(name):
            setattr(text, name, [value[index % before] for index in range(layers)])
    text.num_hidden_layers = layers
    for name in _DECODER_COUNTS if config.is_encoder_decoder else ():
        if hasattr(text, name):
            setattr(text, name, layers)
