"""Checks: what a layer does after it read True or False off a tensor (DETR's layers ask whether all is finite).

No answer is assumed. The layer is traced with both, and what was recorded before the check is the same in both. The
trace holds where

- one of the answers raises an error, and nothing but the answer decides that: then there is no backward, and the
  forward goes on with the other answer; or
- the check is the last thing that matters: with one answer nothing is saved after it, with the other at most
  :data:`MOST_AFTER_A_CHECK` tensors, and neither writes to anything older than the check. A rebuild runs ops that come
  before the check. What is saved after it is held as it is, and must be what one of the answers saves.
"""

from __future__ import annotations

import dis
import signal
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NoReturn, Protocol, TypeVar

import torch

from ..untraceable import UntraceableError
from .ir import Saved

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from types import CodeType, FrameType, TracebackType

    from torch._subclasses.fake_tensor import DataDependentOutputException

    from .ir import Buffer, Pack, TracedOp, Value

#: The tensors that a layer may save after its check. A clamp saves one.
MOST_AFTER_A_CHECK = 2
_MOST_CHECKS = 4
_MOST_PATHS = 8
_RAISE = dis.opmap["RAISE_VARARGS"]
#: The modules of the functions between a layer that asks and here (torch keeps Dynamo out of dispatch modes).
_BETWEEN = (f"{__package__}.recorder", "torch._compile", "torch._dynamo.eval_frame", "torch.overrides")
#: The functions of modes, whose modules are anybody's.
_OF_MODES = ("__torch_function__", "__torch_dispatch__")
_JUMPS = {*dis.hasjrel, *dis.hasjabs}

_R = TypeVar("_R", bound="Record")


class RefusedError(Exception):
    """The layer raises ``error`` by itself after it was told an answer, and more than the answer may decide that."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class Record(Protocol):
    """What one run of a layer has recorded so far (see ``Recorder``)."""

    @property
    def ops(self) -> Sequence[TracedOp]:
        """In the order in which they ran."""

    @property
    def buffers(self) -> Sequence[Buffer]:
        """The versions of all storages."""

    @property
    def values(self) -> Sequence[Value]:
        """All tensors."""

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
        #: The function that asked last, and where in its code it did.
        self._asker: tuple[FrameType, int] | None = None
        self._failure: BaseException | None = None

    @property
    def told(self) -> tuple[bool, ...]:
        """Every answer, in order."""
        return tuple(check.answer for check in self.checks)

    def op(self) -> None:
        """The layer calls an op."""
        self._ops_since += 1

    def failed(self, error: BaseException) -> None:
        """The layer is told ``error`` by an op: it may catch it, and then go on as it never does on real tensors."""
        self._failure = self._failure or error

    def check(self) -> None:
        """Raise what the layer caught."""
        if self._failure is not None:
            raise self._failure

    def next(self, recorder: Record, error: DataDependentOutputException) -> bool:
        """The answer to a check on a value that no trace knows. Raises ``error`` where a layer asks too often."""
        place = len(self.checks)
        if place >= self._most:  # a loop may ask forever
            raise error
        answer = self._given[place] if place < len(self._given) else True
        before = (len(made) for made in (recorder.packs, recorder.ops, recorder.buffers, recorder.written_slots))
        self.checks.append(_Check(place, answer, *before))
        self._ops_since = 0
        asker = next(frame for frame in _frames_from(sys._getframe(1)) if not _is_between(frame))
        self._asker = asker, asker.f_lasti
        return answer

    def raises(self, error: BaseException) -> bool:
        """Whether the last answer alone made the layer raise ``error``, as it would on real tensors.

        An error of a kernel or of torch's fake tensors says nothing about a real run, nor does a ``raise`` that the
        layer comes to because a size is a symbol or a tensor is fake. So what asked goes straight to its ``raise``:
        with no op, no branch and no other error in between. Nor does the error bring a tensor to who catches it.
        """
        if self._asker is None or self._ops_since or self._failure is not None or not _brings_nothing(error):
            return False
        asker, asked_at = self._asker
        trail = list(_trail(error.__traceback__))
        last = trail[-1]
        if last.tb_frame.f_code is torch._check_with.__code__:  # it decides by what it is given
            return asker.f_code is torch._check_tensor_all_with.__code__ and trail[-2].tb_frame is asker
        return last.tb_frame is asker and _goes_straight(asker.f_code, asked_at, last.tb_lasti)

    def refuses(self, error: BaseException) -> bool:
        """Whether what asked, or a function in the same file, raised ``error``: it would in any other trace too."""
        if self._asker is None or self._failure is not None:
            return False
        *_, last = _trail(error.__traceback__)
        code = last.tb_frame.f_code
        return code.co_filename == self._asker[0].f_code.co_filename and code.co_code[last.tb_lasti] == _RAISE

    def forget_frames(self) -> None:
        """Let go of what the layer's functions hold."""
        self._asker = self._failure = None


@dataclass(frozen=True, slots=True)
class _End(Generic[_R]):
    """A run of the layer that came to its end."""

    answers: Answers
    recorder: _R


def recorded_with_every_answer(run: Callable[[Answers], _R]) -> tuple[_R, tuple[tuple[Saved, ...], ...]]:
    """The record that holds whatever the layer's checks say, and what else it may save after its end.

    ``run`` runs the layer once; the layer's inputs are the same each time, so that their guards are those of all runs.
    Raises what says why there is no such record.
    """
    ends: list[_End[_R]] = []
    for number, (answers, recorder) in enumerate(_paths(run, ())):
        if recorder is not None:
            ends.append(_End(answers, recorder))
        if number >= _MOST_PATHS or (len(ends) > 1 and not _is_last(ends)):
            return _refused(run)
    if not ends:
        raise UntraceableError("it raises an error whatever it reads off its tensors")
    shortest = min(ends, key=lambda end: len(end.recorder.packs)).recorder
    if len(ends) == 1:
        return shortest, ()
    count = _parting(ends).packs
    if len(shortest.packs) != count:
        return _refused(run)
    endings = (tuple(_saved_from(count, end.recorder)) for end in ends)
    return shortest, tuple(dict.fromkeys(ending for ending in endings if ending))


def _refused(run: Callable[[Answers], _R]) -> NoReturn:
    """Raise at the first check, from where the layer makes it."""
    answers = Answers(most=0)
    try:
        run(answers)
    finally:
        answers.forget_frames()
    raise UntraceableError("it does not do the same each time")


def _saved_from(position: int, recorder: Record) -> Iterator[Saved]:
    """What was saved from the pack at ``position`` on."""
    for pack in recorder.packs[position:]:
        value = recorder.values[pack.value]
        here = recorder.buffers[pack.buffer].storage
        shares = pack.position > 0 and recorder.buffers[recorder.packs[pack.position - 1].buffer].storage == here
        yield Saved(value.shape, value.dtype, shares)


def _paths(run: Callable[[Answers], _R], given: tuple[bool, ...]) -> Iterator[tuple[Answers, _R | None]]:
    """Every way through the layer that begins with the answers ``given``; without a record where it raised."""
    answers = Answers(given)
    recorder: _R | None = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about values that nobody has seen
            recorder = run(answers)
    except Exception as error:
        if not answers.raises(error):
            if answers.refuses(error):
                raise RefusedError(error) from error
            raise
    except BaseException as error:
        if not answers.checks or _is_of_a_signal(error):
            raise
        raise UntraceableError(f"it raises {type(error).__name__} after it read a value off a tensor") from error
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


def _is_between(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") in _BETWEEN or frame.f_code.co_name in _OF_MODES


def _brings_nothing(error: BaseException) -> bool:
    """Whether it is an error of Python's own that has a text only."""
    if error.__context__ is not None or error.__cause__ is not None or type(error).__module__ != "builtins":
        return False
    return not error.__dict__ and all(isinstance(arg, str) for arg in error.args)


def _goes_straight(code: CodeType, asked: int, raised: int) -> bool:
    """Whether what asked at one place of ``code`` is the branch that leads to the ``raise`` at another, and alone."""
    steps = list(dis.get_instructions(code))
    place = {instruction.offset: number for number, instruction in enumerate(steps)}
    branch, end = place[asked], place[raised]
    if steps[branch].opname == "TO_BOOL":
        branch += 1
    if not steps[branch].opname.startswith("POP_JUMP") or steps[end].opcode != _RAISE or end <= branch:
        return False
    straight = steps[branch + 1 : end + 1]
    return not any(step.is_jump_target or step.opcode in _JUMPS for step in straight)


def _is_of_a_signal(error: BaseException) -> bool:
    """Whether the handler of a signal raised it, on the way of the layer by chance."""
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()} - {None}
    return any(step.tb_frame.f_code in handlers for step in _trail(error.__traceback__))


def _trail(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next
