"""Checks: what a layer does after it read True or False off a tensor (DETR's layers ask whether all is finite).

No answer is assumed. The layer is traced with both, and what was recorded before the check is the same in both. The
trace holds where

- one of the answers raises an error: then there is no backward, and the forward goes on with the other answer; or
- the check is the last thing that matters: with one answer nothing is saved after it, with the other at most
  :data:`MOST_AFTER_A_CHECK` tensors, and neither writes to anything older than the check. A rebuild runs ops that come
  before the check. What is saved after it is held as it is.
"""

from __future__ import annotations

import dis
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import torch

from ..untraceable import UntraceableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from types import FrameType, TracebackType

    from torch._subclasses.fake_tensor import DataDependentOutputException

    from .ir import Buffer, Pack, TracedOp

#: The tensors that a layer may save after its check. A clamp saves one.
MOST_AFTER_A_CHECK = 2
_MOST_CHECKS = 4
_MOST_PATHS = 8
_RAISE = dis.opmap["RAISE_VARARGS"]

_R = TypeVar("_R", bound="Record")


class Record(Protocol):
    """What one run of a layer has recorded so far (see ``Recorder``)."""

    @property
    def ops(self) -> Sequence[TracedOp]:
        """In the order in which they ran."""

    @property
    def buffers(self) -> Sequence[Buffer]:
        """The versions of all storages."""

    @property
    def packs(self) -> Sequence[Pack]:
        """What autograd saved."""

    @property
    def written_slots(self) -> Collection[int]:
        """The parameters and module buffers that were written in place."""


@dataclass(frozen=True, slots=True)
class _Check:
    """One answer that was given, and how much had been recorded before it."""

    place: int
    answer: bool
    packs: int
    ops: int
    buffers: int
    slots_written: int


class Answers:
    """What one run of the layer is told: ``given`` first, then True, to at most ``most`` checks."""

    def __init__(self, given: tuple[bool, ...] = (), most: int = _MOST_CHECKS) -> None:
        self._given = given
        self._most = most
        self.checks: list[_Check] = []
        self._ops_since = 0
        self._frames: list[FrameType] = []

    @property
    def told(self) -> tuple[bool, ...]:
        """Every answer, in order."""
        return tuple(check.answer for check in self.checks)

    def op(self) -> None:
        """The layer calls an op."""
        self._ops_since += 1

    def next(self, recorder: Record, error: DataDependentOutputException) -> bool:
        """The answer to a check on a value that no trace knows. Raises ``error`` where a layer asks too often."""
        place = len(self.checks)
        if place >= self._most:  # a loop may ask forever
            raise error
        answer = self._given[place] if place < len(self._given) else True
        before = (len(made) for made in (recorder.packs, recorder.ops, recorder.buffers, recorder.written_slots))
        self.checks.append(_Check(place, answer, *before))
        self._ops_since = 0
        self._frames = list(_frames_from(sys._getframe(1)))
        return answer

    def raises(self, error: Exception) -> bool:
        """Whether the layer itself raised ``error`` because of the last answer, as it would on real tensors.

        An error of a kernel or of torch's fake tensors says nothing about a real run. So this must be a ``raise`` in a
        function that was running at the check (or in ``torch._check_with``, which such a function called), with no op
        and no other error in between.
        """
        if not self.checks or self._ops_since or isinstance(error, UntraceableError):
            return False
        if error.__context__ is not None or error.__cause__ is not None:
            return False
        trail = list(_trail(error.__traceback__))
        last = trail[-1]
        if last.tb_frame.f_code.co_code[last.tb_lasti] != _RAISE:
            return False
        if last.tb_frame.f_code is torch._check_with.__code__:
            last = trail[-2]
        return any(last.tb_frame is frame for frame in self._frames)

    def forget_frames(self) -> None:
        """Let go of what the layer's functions hold."""
        self._frames.clear()


@dataclass(frozen=True, slots=True)
class _End(Generic[_R]):
    """A run of the layer that came to its end."""

    answers: Answers
    recorder: _R


def recorded_with_every_answer(run: Callable[[Answers], _R]) -> tuple[_R, bool]:
    """The record that holds whatever the layer's checks say, and whether more may be saved after its end.

    ``run`` runs the layer once; the layer's inputs are the same each time, so that their guards are those of all runs.
    Raises what says why there is no such record.
    """
    ends: list[_End[_R]] = []
    for number, (answers, recorder) in enumerate(_paths(run, ())):
        if recorder is not None:
            ends.append(_End(answers, recorder))
        if number >= _MOST_PATHS or (len(ends) > 1 and not _is_last(ends)):
            return run(Answers(most=0)), False  # raises at the first check, from where the layer makes it
    if not ends:
        raise UntraceableError("it raises an error whatever it reads off its tensors")
    shortest = min(ends, key=lambda end: len(end.recorder.packs))
    if len(ends) > 1 and len(shortest.recorder.packs) != _parting(ends).packs:
        return run(Answers(most=0)), False
    return shortest.recorder, len(ends) > 1


def _paths(run: Callable[[Answers], _R], given: tuple[bool, ...]) -> Iterator[tuple[Answers, _R | None]]:
    """Every way through the layer that begins with the answers ``given``; without a record where it raised."""
    answers = Answers(given)
    recorder: _R | None = None
    try:
        recorder = run(answers)
    except Exception as error:
        if not answers.raises(error):
            raise
    finally:
        answers.forget_frames()
    yield answers, recorder
    told = answers.told
    for place in reversed(range(len(given), len(told))):
        yield from _paths(run, (*told[:place], not told[place]))


def _parting(ends: list[_End[_R]]) -> _Check:
    """The check at which these runs part, as the first of them met it."""
    told = [end.answers.told for end in ends]
    place = next(i for i in range(min(map(len, told))) if len({answers[i] for answers in told}) > 1)
    return ends[0].answers.checks[place]


def _is_last(ends: list[_End[_R]]) -> bool:
    """Whether nothing that a rebuild depends on comes after the check at which these runs part."""
    at = _parting(ends)
    for end in ends:
        recorder, check = end.recorder, end.answers.checks[at.place]
        after = recorder.packs[check.packs :]
        # A parameter is saved by its name elsewhere, as FSDP takes the tensor away between forward and backward.
        if any(recorder.buffers[pack.buffer].origin.kind == "parameter" for pack in after):
            return False
        # A later run may know more about sizes, and then an op takes fewer views; what is saved is the same.
        if len(after) > MOST_AFTER_A_CHECK or check.packs != at.packs or _writes_older(recorder, check):
            return False
    return True


def _writes_older(recorder: Record, check: _Check) -> bool:
    """Whether it writes in place, after the check, to what was there before."""
    written = (recorder.buffers[buffer].storage for op in recorder.ops[check.ops :] for buffer in op.writes)
    return len(recorder.written_slots) != check.slots_written or any(storage < check.buffers for storage in written)


def _frames_from(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _trail(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next
