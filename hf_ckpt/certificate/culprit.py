"""Names the first layer, the operator and the cause of a step that is not the one without checkpointing."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..doctor.place import Place, is_users
from .divergence import Divergence, Op, Way, first_divergence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..measuring.report import Report
    from .outcome import Difference
    from .recompute_log import LoggedCall, RecomputeLog


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of ckpt-lint about the same mistake."""

    code: str
    name: str


@dataclass(frozen=True, slots=True)
class Culprit:
    """Where a step first went another way.

    Attributes:
        layer: The layer, or the module, that it is in; "" where none is known.
        op: The operator; "" where none is known.
        cause: Why, and what to do: a clause each.
        rule: The linter's rule about it; None where it has none.
        place: The line of the user's code.
    """

    layer: str
    op: str
    cause: str
    rule: Rule | None = None
    place: Place | None = None


_CUT_OFF = Rule("CKPT104", "reentrant-without-grad-input")
_BINDING = Rule("CKPT105", "late-binding-checkpointed-function")
_STATISTICS = Rule("CKPT106", "running-statistics-in-checkpoint")
_STATE = Rule("CKPT107", "forward-updated-state-in-checkpoint")
_RNG = Rule("CKPT108", "unpreserved-rng-state")
_CHANGE = Rule("CKPT114", "state-change-before-backward")
_FOREIGN = Rule("CKPT115", "foreign-randomness-in-checkpoint")

_ROUTES = ("topk", "sort", "argmax", "multinomial")


def of_recompute(log: RecomputeLog) -> Culprit | None:
    """The first checkpointed function, in forward order, whose recompute is not its forward; None where all are."""
    for call in log.calls:
        found = None if call.again is None else first_divergence(call.forward, call.again)
        if found is not None:
            return _culprit(call, found)
    return None


def _culprit(call: LoggedCall, found: Divergence) -> Culprit:
    op, (rule, cause) = found.forward, _cause(call, found)
    if _decides_routes(call.forward, op):
        cause += "; the experts that the router picks after it are picked anew"
    return Culprit(op.module, op.name, cause, rule, op.place or call.place)


def _cause(call: LoggedCall, found: Divergence) -> tuple[Rule | None, str]:
    if found.way is Way.DRAWN and not call.preserves_rng:
        return _RNG, "the recompute draws other random numbers, as preserve_rng_state=False asks: leave it at True"
    if found.way is Way.DRAWN or call.draws_elsewhere:
        return _FOREIGN, (
            "the function draws from random numbers that torch does not bring back (Python's, NumPy's, a Generator of "
            "its own): draw outside of the checkpoint and pass them in"
        )
    if found.way is Way.PARAMETER:
        return _BINDING, (
            f"the forward read {_parameters(found.forward)} and the recompute {_parameters(found.again)}: bind the "
            "module as a default argument, or pass it"
        )
    if call.moves_itself:
        why, what = "the forward changes state that it computes with", "move the update out of the checkpoint"
        return _STATE, f"{why}, so in the recompute {_went(found)}: {what}"
    if found.way is Way.RESULT:
        return None, "the operator gives another result for the same arguments: it is nondeterministic, or keeps state"
    if call.has_cells:
        why, what = "a variable that the function closes over has changed", "bind it as a default argument, or pass it"
        return _BINDING, f"{why}, so in the recompute {_went(found)}: {what}"
    why, what = "something changed between forward and backward", "change it after the backward"
    return _CHANGE, f"{why}, so in the recompute {_went(found)}: {what}"


def _went(found: Divergence) -> str:
    before, after = found.forward, found.again
    match found.way:
        case Way.PATH:
            return f"another branch runs, {after.name if after is not None else 'with more operators'}"
        case Way.TENSOR:
            pairs = zip(before.outside, after.outside if after is not None else (), strict=False)
            names = [a.name for a, b in pairs if a.contents != b.contents]
            return f"{names[0] or 'a tensor that it was given'} holds other values"
    pairs_of = zip(before.values, after.values if after is not None else (), strict=False)
    old, new = next(((a, b) for a, b in pairs_of if a != b), ("one value", "another"))
    return f"{old} is {new}"


def _parameters(op: Op | None) -> str:
    named = [] if op is None else [outside.name for outside in op.outside if outside.name]
    return " and ".join(f"`{name}`" for name in named) or "another tensor"


def _decides_routes(ops: Sequence[Op], first: Op) -> bool:
    if first not in ops:
        return False
    return any(op.name.split(".")[1] in _ROUTES for op in ops[ops.index(first) :] if op.name.count(".") > 1)


def of_buffers(names: Sequence[str]) -> Culprit:
    """Buffers that hold something else after the step."""
    statistics = all(name.rpartition(".")[2].startswith(("running_", "num_batches")) for name in names)
    return Culprit(
        names[0].rpartition(".")[0], "",
        f"{', '.join(f'`{name}`' for name in names[:3])}{' and more' if len(names) > 3 else ''} "
        f"{'is' if len(names) == 1 else 'are'} updated once more by the recompute: leave this layer out of "
        "the checkpoint, or freeze what it updates",
        _STATISTICS if statistics else _STATE,
    )  # fmt: skip


def of_chunks(report: Report | None) -> Culprit | None:
    """The loss head or parts of layers in chunks, which change the last bits of a step; None where none ran so."""
    if report is None:
        return None
    chunks = next((head.chunks for head in report.heads if head.losses), None)
    if chunks is not None:
        return Culprit(
            "", "", f"the loss is summed in {chunks} chunks, in another order: leave `head` out of the policy"
        )
    parts = next((parts for parts in report.chunked if parts.ran_in_chunks), None)
    if parts is not None:
        how = f"{parts.called} run in {parts.chunks} chunks"
        return Culprit("", "", f"{how}, which rounds otherwise: leave the chunks out")
    return None


def of_loss() -> Culprit:
    """The forward itself computes something else."""
    return Culprit(
        "", "", "the forward computes another loss where it is checkpointed: look for a branch on "
        "torch.is_grad_enabled(), or on the switch of activation checkpointing",
    )  # fmt: skip


def of_lost_gradients(log: RecomputeLog) -> Culprit | None:
    """The first checkpointed function that no gradient reaches; None where every one is reached."""
    for call in log.calls:
        if call.cuts_off:
            layer = next((op.module for op in call.forward if op.module), "")
            return Culprit(
                layer, "",
                "none of the tensors that this reentrant checkpoint is given requires a gradient, so its parameters "
                "get none: pass use_reentrant=False",
                _CUT_OFF, call.place,
            )  # fmt: skip
    return None


def of_gradients(layers: Sequence[str], found: Iterable[Difference], log: RecomputeLog) -> Culprit:
    """No recompute went another way: the layer whose backward did first, and the autograd Functions in it."""
    names = [difference.parameter for difference in found]
    layer = next((layer for layer in reversed(layers) if any(_is_in(name, layer) for name in names)), "")
    layer = layer or (names[0].rpartition(".")[0] if names else "")
    own = _own_functions(log, layer) or _own_functions(log, "")
    if not own:
        return Culprit(layer, "", "its gradients differ while every operator of the recompute agrees with the forward")
    kind = own[0]
    return Culprit(
        layer, kind.__name__,
        f"every operator of the recompute agrees with the forward, so look at the backward of `{kind.__name__}`: "
        "state that this autograd Function keeps outside of its ctx is that of another forward by then; save it on ctx",
        None, _place_of(kind),
    )  # fmt: skip


def _own_functions(log: RecomputeLog, layer: str) -> list[type]:
    found = (kind for module, kinds in log.functions.items() if _is_in(module, layer) for kind in kinds)
    return [
        kind
        for kind in found
        if not kind.__module__.startswith("torch.") and not kind.__module__.startswith("hf_ckpt.")
    ]


def _is_in(name: str, layer: str) -> bool:
    return not layer or name == layer or name.startswith(f"{layer}.")


def _place_of(kind: type) -> Place | None:
    try:
        filename, line = inspect.getfile(kind), inspect.getsourcelines(kind)[1]
    except (OSError, TypeError):
        return None
    return Place(filename, line) if is_users(filename) else None
