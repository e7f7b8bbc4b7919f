"""What functions of torch and peft take, and whether a call fits: one that cannot be bound raises a TypeError."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...facts.values import is_given

if TYPE_CHECKING:
    from ...facts.values import Call

_WRAPPER = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper."


class Signature(NamedTuple):
    """The parameters of a function, in order; the first ``required`` have no default."""

    parameters: tuple[str, ...]
    required: int
    #: Other keywords are taken too, and handed on.
    open: bool = False
    #: Keywords that are handed on to a call which gives them itself.
    taken: tuple[str, ...] = ()
    #: The parameter that puts another function in the place of that call.
    replaces: str = ""


#: By canonical name, as torch 2.4 to 2.13 and peft 0.12 to 0.21 have them; `tests/lint/test_signatures.py` compares.
SIGNATURES = {
    "torch.utils.checkpoint.checkpoint_sequential": Signature(
        ("functions", "segments", "input", "use_reentrant"), 3, open=True
    ),
    f"{_WRAPPER}checkpoint_wrapper": Signature(
        ("module", "checkpoint_impl", "checkpoint_fn"), 1, open=True, taken=("use_reentrant",), replaces="checkpoint_fn"
    ),
    f"{_WRAPPER}offload_wrapper": Signature(("module",), 1),
    f"{_WRAPPER}apply_activation_checkpointing": Signature(
        ("model", "checkpoint_wrapper_fn", "check_fn", "auto_wrap_policy"), 1
    ),
    "torch.utils.checkpoint.create_selective_checkpoint_contexts": Signature(
        ("policy_fn_or_list", "allow_cache_entry_mutation"), 1
    ),
    "peft.prepare_model_for_kbit_training": Signature(
        ("model", "use_gradient_checkpointing", "gradient_checkpointing_kwargs", "auto_clear_cache"), 1
    ),
}


def misfit(call: Call, signature: Signature) -> str | None:
    """Why ``call`` cannot be bound to ``signature``, as the end of a sentence; None when it can, or that is open."""
    parameters = signature.parameters
    if not call.open_args and len(call.args) > len(parameters):
        return f"takes {len(parameters)} arguments by position, not {len(call.args)}"
    given = [name for name in call.kwargs if is_given(call, name)]
    twice = next((name for name in given if name in parameters[: len(call.args)]), None)
    if twice is not None:
        return f"gets `{twice}` twice"
    unknown = next((name for name in given if name not in parameters), None)
    if unknown is not None and not signature.open:
        return f"has no parameter `{unknown}`"
    own = next((name for name in given if name in signature.taken), None)
    if own is not None and not _may_give(call, signature, signature.replaces):
        return f"sets `{own}` itself"
    missing = [name for name in parameters[len(call.args) : signature.required] if name not in call.kwargs]
    if missing and not call.open_args and not call.open_kwargs:
        return f"needs `{missing[0]}`"
    return None


def _may_give(call: Call, signature: Signature, name: str) -> bool:
    by_position = name in signature.parameters[: len(call.args)] or call.open_args
    return bool(name) and (name in call.kwargs or by_position or call.open_kwargs)
