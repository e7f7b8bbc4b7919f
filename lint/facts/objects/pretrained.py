"""Models of transformers by the names that build them, and the methods that all of them have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..values import Instance, Ref, Result, options
from .classes import method_of

if TYPE_CHECKING:
    from ..values import Value

#: The methods of classes of models that build one.
_LOADERS = frozenset(
    ("from_pretrained", "from_config", "_from_config", "from_encoder_decoder_pretrained", "from_vision_text_pretrained")
)
#: The methods that give the object itself.
_RETURN_SELF = frozenset(("to", "cuda", "cpu", "half", "bfloat16", "float", "train", "eval", "requires_grad_"))
#: Methods of `PreTrainedModel` (transformers 4.18 to 5.23, `modeling_utils.py`), which adapters hand on.
_METHODS = frozenset(
    ("gradient_checkpointing_enable", "gradient_checkpointing_disable", "enable_input_require_grads", "save_pretrained")
)


def names_model(name: str) -> bool:
    """Whether a call of what is imported as ``name`` builds a model of transformers."""
    parts = name.split(".")
    if parts[0] not in ("transformers", "peft", "trl") or len(parts) < 2:
        return False
    kind = parts[1]
    built = len(parts) == 2 or parts[2] in _LOADERS
    if kind.endswith(("Tokenizer", "Processor", "Config", "TokenizerFast", "Trainer", "Arguments")):
        return False
    return built and (
        kind.startswith("AutoModel")
        or kind in ("PreTrainedModel", "PeftModel")
        or kind.endswith(("Model", "LMHeadModel"))
        or "For" in kind
        or "WithValueHead" in kind
    )


def has_method(value: Value, name: str) -> bool:
    """Whether ``value`` certainly has a method ``name``: a model of transformers, or an object of a class that does."""
    return all(_has_method(option, name) for option in options(value))


def _has_method(value: Value, name: str) -> bool:
    match value:
        case Instance(cls):
            return method_of(cls, name) is not None
        case Result(call) if isinstance(call.func, Ref):
            if call.name == "peft.get_peft_model":
                return has_method(call.argument(0, "model"), name)
            return name in _METHODS and "WithValueHead" not in call.name and names_model(call.name)
        case Result(call) if call.method in _RETURN_SELF:
            return has_method(call.receiver, name)
    return False
