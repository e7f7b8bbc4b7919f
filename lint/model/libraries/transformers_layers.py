"""The layers of transformers that it checkpoints, by class name."""

from __future__ import annotations

from ...facts.values import Ref, Result, Value
from ..names import canonical

_LAYER_ENDINGS = ("DecoderLayer", "EncoderLayer", "Layer", "Block")
#: A plain text decoder of one family, which holds no layers of another.
_MODEL_ENDINGS = ("ForCausalLM", "LMHeadModel")
#: Blocks whose name does not say what they are.
_BLOCKS = frozenset(
    (
        "BertLayer",
        "BloomBlock",
        "CLIPEncoderLayer",
        "CodeGenBlock",
        "Dinov2Layer",
        "FalconH1DecoderLayer",
        "GPT2Block",
        "GPTBigCodeBlock",
        "GPTJBlock",
        "GPTNeoBlock",
        "GPTNeoXLayer",
        "MptBlock",
        "NemotronHBlock",
        "RobertaLayer",
        "SiglipEncoderLayer",
        "T5Block",
        "ViTLayer",
        "WhisperEncoderLayer",
        "XLMRobertaLayer",
    )
)
#: Detectors, diffusion and hybrid parts named alike that transformers does not checkpoint.
_NOT_CHECKPOINTED = (
    "Detr",
    "Dino",
    "DFine",
    "Deim",
    "PPDoc",
    "OneFormer",
    "DiT",
    "Clvp",
    "TimesFm",
    "Tokenizer",
    "Zamba",
)


def is_checkpointed_layer(name: str) -> bool:
    """Whether a canonical name (``transformers.LlamaDecoderLayer``) is that of a layer class transformers checkpoints.

    Source: transformers 5.23, subclasses of ``GradientCheckpointingLayer``.
    """
    library, _, kind = name.rpartition(".")
    if library != "transformers":
        return False
    is_decoder = kind.endswith("DecoderLayer") and not any(part in kind for part in _NOT_CHECKPOINTED)
    return kind in _BLOCKS or (is_decoder and kind != "DecoderLayer")


def is_of_other_family(model: Value, cls: Value) -> bool:
    """Whether ``model`` certainly has no layer of class ``cls``: they are named after different families."""
    if not (isinstance(model, Result) and isinstance(cls, Ref)):
        return False
    kind, layer = canonical(model.call.name).split("."), canonical(cls.name)
    family = next((kind[1].removesuffix(end) for end in _MODEL_ENDINGS if len(kind) > 1 and kind[1].endswith(end)), "")
    if kind[0] != "transformers" or not family or family.startswith("Auto") or not is_checkpointed_layer(layer):
        return False
    name = layer.rpartition(".")[2]
    other = next(name.removesuffix(end) for end in _LAYER_ENDINGS if name.endswith(end))
    return not (family.lower().startswith(other.lower()) or other.lower().startswith(family.lower()))
