"""Whether a model of transformers can be checkpointed at all."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...facts.objects.classes import ancestors
from ...facts.values import Instance, Ref, Result, options
from ..names import canonical
from ..types import bases, unwrapped
from .model_families import loaded_family
from .not_checkpointed import CLASSES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Value

#: Weights on the Hub, by the family of the model that each Auto class makes of them.
WEIGHTS = {
    "Albert": r"(albert/)?albert-(base|large|xlarge|xxlarge)-v[12]",
    "Bros": r"(naver-clova-ocr|jinho8345)/bros-(base|large)-uncased",
    "CTRL": r"(Salesforce/)?ctrl",
    "ConvNext": r"facebook/convnext-(tiny|small|base|large|xlarge)-(224|384)(-22k(-1k)?)?",
    "ConvNextV2": r"facebook/convnextv2-(atto|femto|pico|nano|tiny|base|large|huge)-(1k|22k)-(224|384|512)",
    "Cvt": r"microsoft/cvt-(13|21|w24)(-384)?(-22k)?",
    "EfficientNet": r"google/efficientnet-b[0-7]",
    "FSMT": r"facebook/wmt19-(en|de|ru)-(en|de|ru)",
    "Flaubert": r"flaubert/flaubert_(small_cased|base_uncased|base_cased|large_cased)",
    "Funnel": r"funnel-transformer/(small|medium|intermediate|large|xlarge)(-base)?",
    "GroundingDino": r"IDEA-Research/grounding-dino-(tiny|base)",
    "LayoutLMv2": r"microsoft/layoutlmv2-(base|large)-uncased",
    "LayoutLMv3": r"microsoft/layoutlmv3-(base|large)",
    "Levit": r"facebook/levit-(128S|128|192|256|384)",
    "Lxmert": r"unc-nlp/lxmert-base-uncased",
    "MPNet": r"microsoft/mpnet-base|sentence-transformers/(all|multi-qa|paraphrase)-mpnet-base[\w-]*",
    "MarkupLM": r"microsoft/markuplm-(base|large)",
    "Mask2Former": r"facebook/mask2former-swin-(tiny|small|base|large)-[\w-]+",
    "MobileNetV1": r"google/mobilenet_v1_[\d.]+_\d+",
    "MobileNetV2": r"google/mobilenet_v2_[\d.]+_\d+",
    "OpenAIGPT": r"(openai-community/)?openai-gpt",
    "PoolFormer": r"sail/poolformer_(s12|s24|s36|m36|m48)",
    "Pvt": r"Zetatech/pvt-(tiny|small|medium|large)-224",
    "RTDetr": r"PekingU/rtdetr_r(18|34|50|101)vd(_coco_o365)?",
    "RegNet": r"facebook/regnet-[xy]-\d{3}",
    "ResNet": r"microsoft/resnet-(18|26|34|50|101|152)",
    "SqueezeBert": r"squeezebert/squeezebert-(uncased|mnli|mnli-headless)",
    "TableTransformer": r"microsoft/table-transformer-(detection|structure-recognition)",
    "XLM": r"(FacebookAI/)?xlm-(mlm|clm)-[\w-]+",
    "XLNet": r"(xlnet/)?xlnet-(base|large)-cased",
}


def names_not_checkpointed() -> Iterator[str]:
    """What one of stands in every file with a model without support: its class, its configuration or its weights."""
    yield from CLASSES
    for family, pattern in WEIGHTS.items():
        yield f"{family}Config"
        yield from _literals(pattern)


def _literals(pattern: str) -> Iterator[str]:
    """For each alternative of ``pattern`` the text that its matches begin with, behind the owner if there is one."""
    whole = ""
    while whole != pattern:
        whole, pattern = pattern, re.sub(r"\([^()]*\)\??", " ", pattern)
    plain = re.sub(r"(?:\[[^]]*\]|\\.)(?:[*+]|\{\d+\})?", " ", pattern)
    for alternative in plain.split("|"):
        own = alternative.rpartition("/")[2].split()
        yield own[0] if own else alternative.split()[0]


def not_checkpointed(model: Value) -> str:
    """What ``model`` is called when its class certainly supports no checkpointing; empty for any other."""
    names = [_name_of(unwrapped(option)) for option in options(model)]
    return names[0] if all(names) else ""


def _name_of(model: Value) -> str:
    match model:
        case Result(call) if isinstance(call.func, Ref):
            library, _, rest = canonical(call.func.name).partition(".")
            kind, _, loader = rest.partition(".")
            if library != "transformers" or loader not in ("", "from_pretrained", "from_config", "_from_config"):
                return ""
            if not kind.startswith("AutoModel"):
                return kind if kind in CLASSES else ""
            return loaded_family(call, WEIGHTS) if loader else ""
        case Instance(cls):
            written = {name for owner in (cls, *ancestors(cls)) for name in (*owner.body, *owner.fields)}
            own = written & {"supports_gradient_checkpointing", "gradient_checkpointing_enable", "__getattr__"}
            kinds = [name.removeprefix("transformers.") for name in bases(cls)]
            return cls.name if kinds and kinds[0] in CLASSES and not own else ""
    return ""
