"""The family of a model of transformers, by its class or by the name of its weights on the Hub."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...facts.values import Absent, Const, Ref, Result, equals
from ..names import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...facts.values import Call, Value

#: A plain text decoder of one family, which holds no layers of another.
_MODEL_ENDINGS = ("ForCausalLM", "LMHeadModel")
#: Other models, of the families below only: elsewhere they may hold a second tower.
_OTHER_ENDINGS = (
    *("Model", "ForConditionalGeneration", "ForMaskedLM", "ForQuestionAnswering"),
    *("ForSequenceClassification", "ForTokenClassification", "ForImageClassification"),
    # One of the two towers, whose layers are of the same class.
    *("VisionModel", "TextModel", "VisionModelWithProjection", "TextModelWithProjection"),
)
#: More families whose models, but for those that only generate, hold layers of their own alone.
_OWN_LAYERS = frozenset(
    (
        *(
            "BigBird",
            "BigBirdPegasus",
            "Blenderbot",
            "BlenderbotSmall",
            "CLIP",
            "Data2VecText",
            "Deberta",
            "DistilBert",
        ),
        *("Ernie", "Esm", "EuroBert", "FNet", "GPTBigCode", "GPTNeo", "LED", "LongT5", "Longformer", "Luke"),
        *("M2M100", "MBart", "MegatronBert", "Mpt", "Mvp", "NllbMoe", "Nystromformer", "PLBart", "Pegasus", "PegasusX"),
        *("Qwen2Moe", "Qwen3Moe", "RemBert", "RoFormer", "RobertaPreLayerNorm", "Siglip", "Starcoder2"),
        *("Phi3", "SwitchTransformers", "UMT5", "XLMRobertaXL", "Xmod"),
    )
)
_LOADERS = ("from_pretrained", "from_config", "_from_config")
_NAME = "pretrained_model_name_or_path"
#: Weights on the Hub whose model has layers of one family only: vision and audio models beside them do not match.
_WEIGHTS = {
    "Bart": r"facebook/bart-(base|large)",
    "Bert": (
        r"(google-bert/)?bert-base-(un)?cased|(google-bert/)?bert-base-(multilingual-(un)?cased|chinese|german-cased)"
        r"|(google-bert/)?bert-large-(un)?cased(-whole-word-masking)?|klue/bert-base|hfl/chinese-(bert|roberta)-wwm-ext"
        r"|dbmdz/bert-base-(german|italian|turkish)-(un)?cased|neuralmind/bert-(base|large)-portuguese-cased"
    ),
    "Camembert": r"(almanach/)?camembert-(base|large)",
    "DistilBert": r"(distilbert/)?distilbert-base-(multilingual-cased|(un)?cased)",
    "DebertaV2": r"microsoft/deberta-v(2-x{1,2}large|3-(xsmall|small|base|large))|microsoft/mdeberta-v3-base",
    "Electra": r"google/electra-(small|base|large)-(discriminator|generator)",
    "MT5": r"google/mt5-(small|base|large|xl|xxl)",
    "ModernBert": r"answerdotai/ModernBERT-(base|large)",
    "XLMRoberta": r"(FacebookAI/)?xlm-roberta-(base|large)",
    "Bloom": r"bigscience/bloomz?(-\d+(m|b\d?))?",
    "Falcon": r"tiiuae/falcon-(7b|40b)(-instruct)?",
    "GPT2": r"(openai-community/)?gpt2(-medium|-large|-xl)?|(distilbert/)?distilgpt2",
    "GPTJ": r"EleutherAI/gpt-j-6[bB]",
    "GPTNeoX": r"EleutherAI/(gpt-neox-20b|pythia-[\d.]+[mb](-deduped)?)",
    "Gemma": r"google/gemma-[27]b(-it)?",
    "Gemma2": r"google/gemma-2-\d+b(-it)?",
    "Llama": (
        r"meta-llama/(Llama-2-\d+b(-chat)?-hf|(Meta-)?Llama-3(\.1|\.3)?-\d+B(-Instruct)?|Llama-3\.2-[13]B(-Instruct)?)"
        r"|huggyllama/llama-\d+b|TinyLlama/TinyLlama[-_][\w.-]+|NousResearch/(Meta-)?Llama-[23](?![\w.-]*[Vv]ision)[\w.-]*"
        r"|HuggingFaceTB/SmolLM2?-[\d.]+[MB](-Instruct)?|deepseek-ai/DeepSeek-R1-Distill-Llama-\d+B"
    ),
    "Mistral": (
        r"mistralai/Mistral-(7B(-Instruct)?-v0\.\d|Nemo-(Base|Instruct)-2407)|HuggingFaceH4/zephyr-7b-(alpha|beta)"
    ),
    "Mixtral": r"mistralai/Mixtral-8x(7|22)B(-Instruct)?-v0\.1",
    "OPT": r"facebook/opt-[\d.]+[mb]",
    "Phi": r"microsoft/phi-(1|1_5|2)",
    "Qwen2": (
        r"Qwen/Qwen(1\.5|2|2\.5)(-Coder|-Math)?-[\d.]+B(-Instruct|-Chat|-Base)?"
        r"|deepseek-ai/DeepSeek-R1-Distill-Qwen-[\d.]+B"
    ),
    "Qwen3": r"Qwen/Qwen3-[\d.]+B(-Base)?",
    "Roberta": r"((FacebookAI/|distilbert/)?(distil)?roberta|klue/roberta)-(small|base|large)",
    "T5": r"(google-t5/)?t5-(small|base|large|3b|11b)|google/flan-t5-(small|base|large|xl|xxl)",
}


def family_of(model: Value) -> str:
    """`Llama` for `LlamaForCausalLM(...)` and what an Auto class makes of weights of Llama; empty when not known."""
    if not isinstance(model, Result) or not isinstance(model.call.func, Ref):
        return ""
    library, _, rest = canonical(model.call.name).partition(".")
    kind, _, loader = rest.partition(".")
    if library != "transformers":
        return ""
    if kind.startswith("AutoModel"):
        return loaded_family(model.call, _WEIGHTS) if loader in _LOADERS else ""
    plain = next((kind.removesuffix(end) for end in _MODEL_ENDINGS if kind.endswith(end)), "")
    others = (kind.removesuffix(end) for end in _OTHER_ENDINGS if kind.endswith(end))
    return plain or next((other for other in others if other in _WEIGHTS or other in _OWN_LAYERS), "")


def loaded_family(call: Call, weights: Mapping[str, str]) -> str:
    """The family that an Auto class finds in the configuration: the one that is given, else that of the weights.

    Args:
        call: The call of the Auto class's loader.
        weights: The families that are looked for, each with a pattern of the names of its weights.
    """
    if call.open_args or call.open_kwargs or may_run_remote_code(call):
        return ""
    given = call.keyword("config")
    if isinstance(given, Absent):
        given = call.argument(0, _NAME)
    match given:
        case Result(made) if canonical(made.name) == "transformers.AutoConfig.from_pretrained":
            remote = made.keyword("trust_remote_code")
            return family_of_weights(made.argument(0, _NAME), weights) if isinstance(remote, Absent) else ""
        case Result(made) if (name := canonical(made.name)).startswith("transformers.") and not made.method:
            kind = name.split(".")[1]
            return kind.removesuffix("Config") if kind.removesuffix("Config") in weights else ""
    return family_of_weights(given, weights)


def may_run_remote_code(call: Call) -> bool:
    """Whether a loader may build a class that comes with the weights and not with transformers."""
    given = call.keyword("trust_remote_code")
    return not (isinstance(given, Absent) or equals(given, False) is True)


def family_of_weights(name: Value, weights: Mapping[str, str] = _WEIGHTS) -> str:
    """The family of the weights called ``name`` on the Hub, one of ``weights``; empty when not known."""
    if not isinstance(name, Const) or not isinstance(name.value, str):
        return ""
    return next((family for family, pattern in weights.items() if re.fullmatch(pattern, name.value)), "")
