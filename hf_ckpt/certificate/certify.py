"""Certifies a step: the same micro-batch with and without checkpointing, from the same state."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch
from torch import distributed as dist
from torch.utils.checkpoint import CheckpointError

from ..anatomy import read_anatomy
from ..doctor.harmless import harmless
from ..errors import ModelStructureError
from ..planner.ranks import Ranks
from .bypass import without_checkpointing
from .certificate import Certificate, Verdict
from .culprit import of_buffers, of_chunks, of_gradients, of_loss, of_lost_gradients, of_recompute
from .outcome import Outcome, changed_buffers, differences, read_outcome, same_loss
from .recompute_log import RecomputeLog
from .standing import Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..handle import Handle
    from ..measuring.report import Report
    from .culprit import Culprit


def certify(
    model: torch.nn.Module,
    step: Callable[[], torch.Tensor],
    put_on: Callable[[], Handle] | None = None,
    owners: Iterable[object] = (),
) -> Certificate:
    """Run a step without any checkpointing, then as it is, or under a policy, and compare.

    Model, random numbers and gradients are afterwards what they were. What is kept of each run is kept on the host.

    Args:
        model: A model in training mode without a policy.
        step: Runs a forward and its backward, and returns the loss; every call must do the same.
        put_on: Puts a policy on the model; None: the step is certified as it is.
        owners: Objects whose plain attributes the step writes, such as a Trainer.

    Returns:
        The certificate.
    """
    runs = _Runs(model, step, Standing(model, owners))
    try:
        return _certify(runs, put_on)
    finally:
        runs.standing.bring_back()


def _certify(runs: _Runs, put_on: Callable[[], Handle] | None) -> Certificate:
    reference, problem = _reference(runs)
    if reference is None:
        return Certificate(Verdict.UNPROVEN, reason=problem)
    handle = None if put_on is None else put_on()
    try:
        result, report = _under(runs, handle)
        culprit = _culprit(runs, reference, result, report)
    finally:
        if handle is not None:
            handle.restore()
    return Certificate(
        Verdict.EQUAL if _is_equal(reference, result) else Verdict.DIFFERENT,
        compared=len(reference.gradients),
        same_loss=same_loss(reference, result),
        differences=differences(reference, result),
        culprit=culprit,
        report=report,
    )


class _Runs:
    """Runs the step, each time from the same state."""

    def __init__(self, model: torch.nn.Module, step: Callable[[], torch.Tensor], standing: Standing) -> None:
        self.model = model
        self.step = step
        self.standing = standing
        shared = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        self.ranks = Ranks(next(model.parameters()).device, together=shared)

    def run(self) -> Outcome:
        """One run; an error of torch's checkpoint, whose recompute is not its forward, is an outcome too."""
        self.standing.begin_run()
        try:
            return read_outcome(self.model, self.step().detach())
        except CheckpointError as error:
            return Outcome(None, error=error)


def _reference(runs: _Runs) -> tuple[Outcome | None, str]:
    """The step without checkpointing; None, and why, where there is none to compare with."""
    with without_checkpointing():
        try:
            first, second = runs.run(), runs.run()
        except torch.OutOfMemoryError:
            if runs.ranks.together:  # the other ranks wait in this run: to go on alone would pair it with another one
                raise
            return None, "without checkpointing this micro-batch does not fit into memory: verify with a smaller one"
    if runs.ranks.any(not _is_equal(first, second)):
        names = [difference.parameter for difference in differences(first, second)]
        where = f", `{names[0]}` among them" if names else ""
        return None, (
            f"two runs without checkpointing differ already{where}: the step is nondeterministic (a kernel, or random "
            "numbers and state that a module or a Function keeps to itself)"
        )
    return first, ""


def _under(runs: _Runs, handle: Handle | None) -> tuple[Outcome, Report | None]:
    """The step as it is: its second run, as a ``budget`` policy and the engine learn in their first."""
    first = runs.run()
    if handle is None or first.error is not None:
        return first, None
    with handle.measure():
        result = runs.run()
    return result, handle.report()


def _is_equal(reference: Outcome, result: Outcome) -> bool:
    same = same_loss(reference, result) and not differences(reference, result)
    return same and not changed_buffers(reference, result)


def _culprit(runs: _Runs, reference: Outcome, result: Outcome, report: Report | None) -> Culprit | None:
    """Where the result first went another way; on every rank or on none, as it takes one run more."""
    if not runs.ranks.any(not _is_equal(reference, result)):
        return None
    log = RecomputeLog(runs.model)
    with harmless("culprit of this step"), log.taken():
        runs.run()
    found, changed = differences(reference, result), changed_buffers(reference, result)
    same = same_loss(reference, result)
    if changed and same and not found:
        return of_buffers(changed)
    seen = of_recompute(log)
    if seen is None and reference.gradients.keys() - result.gradients.keys():
        seen = of_lost_gradients(log)
    if seen is None and result.error is None:
        seen = of_chunks(report)
    if seen is not None:
        return seen
    return of_gradients(_layers(runs.model), found, log) if same or result.error is not None else of_loss()


def _layers(model: torch.nn.Module) -> list[str]:
    with contextlib.suppress(ModelStructureError):
        return [layer.info.name for layer in read_anatomy(model).layers]
    return []
