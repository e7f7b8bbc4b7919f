"""The layers of transformers that it checkpoints, by class name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...facts.values import Attr, Element, Ref, Result, Value, options
from ..libraries.sharding import root
from ..names import canonical
from .model_families import family_of, loaded_family

if TYPE_CHECKING:
    from collections.abc import Iterable

_LAYER_ENDINGS = ("DecoderLayer", "EncoderLayer", "Layer", "Block")
#: What the layers of a family are called behind its name, where no other class of it is called like a layer.
#: Source: transformers 5.23, all classes of these models.
_OWN_ENDING = {
    **dict.fromkeys(("Llama", "Mistral", "Falcon", "Gemma", "Gemma2", "OPT", "Phi", "Qwen2", "Qwen3"), "DecoderLayer"),
    **dict.fromkeys(("Bloom", "GPT2", "GPTJ", "GPTNeo"), "Block"),
    **dict.fromkeys(("Bert", "Camembert", "Electra", "GPTNeoX", "Roberta", "XLMRoberta"), "Layer"),
}
#: Where models keep them.
_LISTS = frozenset(("layers", "layer", "h", "block", "blocks"))
#: Blocks whose name does not say what they are.
_BLOCKS = frozenset(
    (
        "BartEncoderLayer",
        "BertLayer",
        "BigBirdPegasusEncoderLayer",
        "BlenderbotEncoderLayer",
        "BlenderbotSmallEncoderLayer",
        "BloomBlock",
        "CLIPEncoderLayer",
        "CamembertLayer",
        "CodeGenBlock",
        "DebertaLayer",
        "DebertaV2Layer",
        "Dinov2Layer",
        "ElectraLayer",
        "FalconH1DecoderLayer",
        "GPT2Block",
        "GPTBigCodeBlock",
        "GPTJBlock",
        "GPTNeoBlock",
        "GPTNeoXLayer",
        "LEDEncoderLayer",
        "LongformerLayer",
        "M2M100EncoderLayer",
        "MBartEncoderLayer",
        "MT5Block",
        "MarianEncoderLayer",
        "ModernBertEncoderLayer",
        "MptBlock",
        "MvpEncoderLayer",
        "NemotronHBlock",
        "NllbMoeEncoderLayer",
        "PLBartEncoderLayer",
        "PegasusEncoderLayer",
        "PegasusXEncoderLayer",
        "ProphetNetEncoderLayer",
        "RobertaLayer",
        "SiglipEncoderLayer",
        "T5Block",
        "ViTLayer",
        "WhisperEncoderLayer",
        "XLMRobertaLayer",
    )
)
_DECODER = "DecoderLayer"
#: Families whose models keep nothing in these lists but layers that checkpoint themselves, the hidden states first.
#: Source: transformers 5.23, each of their models built.
_IN_LISTS = frozenset(
    (
        *("AST", "Beit", "DINOv3ViT", "Data2VecVision", "DeiT", "Dinov2", "Dinov2WithRegisters", "IJepa", "ImageGPT"),
        *("Pixio", "Radio", "Timesformer", "VJEPA2", "ViT", "ViTMAE", "ViTMSN", "VideoMAE", "Vivit", "Yolos"),
        *("Hubert", "SEW", "SEWD", "UniSpeech", "UniSpeechSat", "Wav2Vec2", "Wav2Vec2Bert", "Wav2Vec2Conformer"),
        *("WavLM", "Whisper", "BigBird", "Bros", "Canine", "ConvBert", "Data2VecText", "Ernie", "Esm", "LayoutLM"),
        *("LayoutLMv3", "Lilt", "Mamba", "Mamba2", "MarkupLM", "MegatronBert", "MobileBert", "NomicBert"),
        *("Nystromformer", "RemBert", "RoFormer", "RobertaPreLayerNorm", "Splinter", "SwitchTransformers", "Tapas"),
        *("UMT5", "XLMRobertaXL", "Xmod"),
    )
)
_HEADS = re.compile(
    r"(Model|Backbone|ForCTC|ForMaskedLM|ForCausalLM|ForPreTraining|ForQuestionAnswering|ForMaskedImageModeling"
    r"|ForConditionalGeneration|For(Image|Sequence|Token|Audio|Video)Classification)$"
)
#: Weights on the Hub of such a family of pictures, sound or proteins.
_WEIGHTS = {
    "AST": r"MIT/ast-finetuned-audioset-[\d-]+",
    "DeiT": r"facebook/deit-(tiny|small|base)-patch16-(224|384)",
    "Dinov2": r"facebook/dinov2-(small|base|large|giant)(-imagenet1k-1-layer)?",
    "Esm": r"facebook/esm2_t\d+_\d+[MB]_UR50D",
    "Hubert": r"facebook/hubert-(base-ls960|x?large-ll60k|x?large-ls960-ft)",
    "VideoMAE": r"MCG-NJU/videomae-(base|large)[\w-]*",
    "ViT": r"google/vit-(base|large|huge)-patch\d+-(224|384)(-in21k)?",
    "ViTMAE": r"facebook/vit-mae-(base|large|huge)",
    "Wav2Vec2": r"facebook/wav2vec2-(base|large)(-\d+h)?|facebook/wav2vec2-(large-xlsr-53|xls-r-(300m|1b|2b))",
    "WavLM": r"microsoft/wavlm-(base|base-plus|large)",
    "Whisper": r"openai/whisper-((tiny|base|small|medium)(\.en)?|large(-v[23])?(-turbo)?)",
}
#: Decoders whose families are named alike, and hold layers of their own alone.
_NAMED_ALIKE = frozenset(
    (
        *("Cohere", "Cohere2", "Cohere2Moe", "Gemma", "Gemma2", "Gemma3", "Glm", "Glm4", "Glm4Moe"),
        *("Granite", "GraniteMoe", "Lfm2", "Lfm2Moe", "Ministral", "Ministral3", "Olmo", "Olmo2", "Olmo3"),
        *("Phi", "Phi3", "Qwen2", "Qwen2Moe", "Qwen3", "Qwen3Moe"),
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
    is_decoder = kind.endswith(_DECODER) and not any(part in kind for part in _NOT_CHECKPOINTED)
    return kind in _BLOCKS or (is_decoder and kind != _DECODER)


def names_of_layers() -> Iterable[str]:
    """Texts of which one is in the name of every class that `is_checkpointed_layer` accepts."""
    return (_DECODER, *(name for name in _BLOCKS if _DECODER not in name))


def model_of_layer(value: Value) -> Value | None:
    """The model of transformers of which ``value`` is a layer that it checkpoints; None when that is not certain."""
    model = holder_of_layer(value)
    return model if model is not None and keeps_checkpointed_layers(model) else None


def holder_of_layer(value: Value) -> Value | None:
    """What keeps ``value`` in a list that models of transformers keep their layers in; None for all else."""
    while isinstance(value, Element) and isinstance(value.of, Element):
        value = value.of  # A part of the list: `model.layers[:4]`.
    if not isinstance(value, Element) or not isinstance(value.of, Attr) or value.of.name not in _LISTS:
        return None
    return root(value)


def keeps_checkpointed_layers(model: Value) -> bool:
    """Whether what ``model`` keeps in its lists is certainly checkpointed by transformers."""
    family = family_of(model)
    if family and any(is_checkpointed_layer(f"transformers.{family}{end}") for end in _LAYER_ENDINGS):
        return True
    return family in _IN_LISTS or _family_with_lists(model) in _IN_LISTS


def _family_with_lists(model: Value) -> str:
    """The family of a model of pictures, sound or proteins, by its class or its weights."""
    if not isinstance(model, Result) or not isinstance(model.call.func, Ref):
        return ""
    library, _, rest = canonical(model.call.name).partition(".")
    kind, _, loader = rest.partition(".")
    if library != "transformers":
        return ""
    head = _HEADS.search(kind)
    if kind.startswith("AutoModel"):
        return loaded_family(model.call, _WEIGHTS) if loader == "from_pretrained" and head is not None else ""
    return kind[: head.start()] if head is not None else ""


def is_misnamed_layer(model: Value, name: str) -> bool:
    """Whether ``name`` has the family of ``model`` and a usual ending, but its layers have another: `GPT2Layer`."""
    families = [family_of(option) for option in options(model)]
    return bool(families) and all(name in _misnamed(family) for family in families)


def _misnamed(family: str) -> frozenset[str]:
    """The names that a layer of ``family`` might have, and that no class of transformers has."""
    own = _OWN_ENDING.get(family)
    return frozenset(f"{family}{end}" for end in _LAYER_ENDINGS if end != own) if own is not None else frozenset()


def is_of_other_family(model: Value, cls: Value) -> bool:
    """Whether ``model`` certainly has no layer of class ``cls``: they are named after different families."""
    return isinstance(cls, Ref) and has_no_layer_named(model, canonical(cls.name))


def has_no_layer_named(model: Value, name: str) -> bool:
    """Whether the layer `transformers.LlamaDecoderLayer` (``name``) is of a family that ``model`` certainly is not."""
    if not is_checkpointed_layer(name):
        return False
    kind = name.rpartition(".")[2]
    other = next(kind.removesuffix(end) for end in _LAYER_ENDINGS if kind.endswith(end))
    families = [family_of(option) for option in options(model)]
    return all(family and not _may_share_layers(family, other) for family in families)


def _may_share_layers(family: str, other: str) -> bool:
    """Whether models of one family may hold layers of the ``other``: where one is named after both, unless known."""
    if family != other and {family, other} <= _NAMED_ALIKE:
        return False
    return family.lower().startswith(other.lower()) or other.lower().startswith(family.lower())
