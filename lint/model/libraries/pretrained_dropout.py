"""The dropout of models that are loaded from well-known weights on the Hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import Absent, Const, Ref, Result, equals
from ..names import canonical
from .model_families import family_of_weights

if TYPE_CHECKING:
    from ...facts.values import Call, Value

#: Families whose configuration on the Hub drops 10 % in each layer, with the arguments that say how much.
_DROPS = {
    "Bart": ("dropout",),
    "Bert": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "GPT2": ("resid_pdrop", "attn_pdrop"),
    "OPT": ("dropout",),
    "Roberta": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "T5": ("dropout_rate",),
}


def dropout_of_weights(model: Value) -> str:
    """The argument by which the layers of ``model``, loaded from the Hub, drop; empty when they may not."""
    if not isinstance(model, Result) or not isinstance(model.call.func, Ref):
        return ""
    call = model.call
    name = canonical(call.func.name) if isinstance(call.func, Ref) else ""
    loads = name.startswith("transformers.") and name.endswith(".from_pretrained")
    if not loads or call.open_args or call.open_kwargs or len(call.args) > 1 or not _is_plain(call):
        return ""
    family = family_of_weights(call.argument(0, "pretrained_model_name_or_path"))
    kind = name.split(".")[1]
    if not kind.startswith(("AutoModel", family)):
        return ""
    return next((drop for drop in _DROPS.get(family, ()) if _is_left_on(call.keyword(drop))), "")


def _is_plain(call: Call) -> bool:
    """Whether nothing but the weights says what is built."""
    remote = call.keyword("trust_remote_code")
    config = call.keyword("config")
    return isinstance(config, Absent) and (isinstance(remote, Absent) or equals(remote, False) is True)


def _is_left_on(given: Value) -> bool:
    match given:
        case Absent():
            return True
        case Const(int() | float() as rate):
            return rate > 0
    return False
