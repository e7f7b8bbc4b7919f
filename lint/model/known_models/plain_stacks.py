"""Models of pictures and sound whose encoder and decoder do not read the flag of checkpointing: their layers do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...facts.values import Ref, Result
from ..names import canonical
from .model_families import loaded_family

if TYPE_CHECKING:
    from ...facts.values import Value

#: Read in transformers 4.53 and 5.23: `forward` of the stack never asks for the flag, but to warn about a cache.
_FAMILIES = (
    *("Data2VecVision", "Dinov2", "Dinov2WithRegisters", "Hiera", "PvtV2", "Swin", "Swinv2", "VideoMAE", "Yolos"),
    *("Hubert", "WavLM", "Wav2Vec2", "Whisper"),
)
_CLASSES = re.compile(rf"transformers\.(?:{'|'.join(_FAMILIES)})(?:Model|For\w+)\b")
#: Under which name a model with a head of these families keeps the model itself; for Whisper it is `model`.
BASES = frozenset(
    (
        *("data2vec_vision", "dinov2", "dinov2_with_registers", "hiera", "pvt_v2", "swin", "swinv2", "videomae"),
        *("hubert", "wavlm", "wav2vec2"),
    )
)
#: Weights on the Hub that an Auto class makes such a model of.
_WEIGHTS = {
    "Dinov2": r"facebook/dinov2-(small|base|large|giant)",
    "Dinov2WithRegisters": r"facebook/dinov2-with-registers-(small|base|large|giant)",
    "Swin": r"microsoft/swin-(tiny|small|base|large)-[\w-]+",
    "Swinv2": r"microsoft/swinv2-(tiny|small|base|large)-[\w-]+",
    "Wav2Vec2": r"facebook/wav2vec2-(base|large)(-960h)?",
    "Whisper": r"openai/whisper-(tiny|base|small|medium|large)(\.en|-v[23])?",
}
_AUTO = ("transformers.AutoModel.from_pretrained", "transformers.AutoModel.from_config")


def has_plain_stacks(model: Value) -> bool:
    """Whether ``model`` is one of these, by its class or by its weights."""
    if not isinstance(model, Result) or not isinstance(model.call.func, Ref):
        return False
    name = canonical(model.call.name)
    return _CLASSES.match(name) is not None or (name in _AUTO and bool(loaded_family(model.call, _WEIGHTS)))
