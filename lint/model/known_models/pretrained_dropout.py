"""The dropout of models that are loaded from well-known weights on the Hub."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import Absent, Const, Ref, Result
from ..names import canonical
from .model_families import family_of_weights, may_run_remote_code

if TYPE_CHECKING:
    from ...facts.values import Value

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
    name = canonical(model.call.func.name)
    loads = name.startswith("transformers.") and name.endswith(".from_pretrained")
    is_open = call.open_args or call.open_kwargs or len(call.args) > 1 or may_run_remote_code(call)
    if not loads or is_open or not isinstance(call.keyword("config"), Absent):
        return ""
    family = family_of_weights(call.argument(0, "pretrained_model_name_or_path"))
    kind = name.split(".")[1]
    if not kind.startswith(("AutoModel", family)):
        return ""
    return next((drop for drop in _DROPS.get(family, ()) if _is_left_on(call.keyword(drop))), "")


def _is_left_on(given: Value) -> bool:
    match given:
        case Absent():
            return True
        case Const(int() | float() as rate):
            return rate > 0
    return False
