"""The layers of transformers that it checkpoints, by class name."""

from __future__ import annotations

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
