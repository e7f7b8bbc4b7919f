"""Runs a script as ``python`` would, up to the end of its first training's first steps."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from torch.optim.optimizer import register_optimizer_step_post_hook
from transformers import Trainer

from ..doctor.place import is_users, waiting_place
from ..errors import CkptError, ScriptError
from .examination import STEPS
from .nothing_written import nothing_saved, nothing_written, replaced
from .trainers import put_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from ..doctor.place import Place
    from ..policy import Policy
    from .examination import Examination
    from .trainers import Examined


class _SeenEnough(BaseException):
    """Ends the script; no handler of Exceptions stops it."""


def examine_script(path: str, arguments: Sequence[str], policy: Policy | None) -> Examination:
    """Run a training script until its first Trainer has made two optimizer steps.

    Args:
        path: The script.
        arguments: Its arguments.
        policy: The policy instead of the script's own; None: the script's.

    Returns:
        What was seen.

    Raises:
        ScriptError: It cannot be run, fails, ends before it trains, or trains with a loop of its own.
        CkptError: What SelectiveCkpt raises.
    """
    if not os.path.isfile(path):
        raise ScriptError(f"there is no script {path}: give the file that you run with python")
    stage = _Stage(policy)
    with ExitStack() as stack:
        stack.enter_context(_as_main(path, arguments))
        stack.enter_context(nothing_written())
        stack.enter_context(stage.set())
        left = _left_by(path, stage)
    if stage.examined is not None:
        return stage.examined.read()
    raise ScriptError(_no_trainer(path, stage, left))


def _left_by(path: str, stage: _Stage) -> str:
    """How the script ended: by us, or by itself; by an error that is no diagnosis of ours, with that."""
    try:
        runpy.run_path(path, run_name="__main__")
    except _SeenEnough:
        return ""
    except SystemExit as leave:
        return f"left with exit code {leave.code or 0}"
    except Exception as error:
        if stage.seen_enough:  # on its way out, in a handler of its own
            return ""
        if isinstance(error, CkptError):
            raise
        traceback.print_exception(error.with_traceback(_in_script(error)))
        if stage.examined is not None and stage.examined.callback.diagnosis is not None:
            return "ran out of memory"
        raise ScriptError(f"{path} ended with {type(error).__name__} before its second step") from error
    return "came to its end"


def _in_script(error: BaseException) -> TracebackType | None:
    """The traceback from the script on: what runs it is no part of it."""
    trace = error.__traceback__
    while trace is not None and not is_users(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return trace or error.__traceback__


def _no_trainer(path: str, stage: _Stage, left: str) -> str:
    if not stage.own_steps:
        return f"{path} {left} without a training step: give the arguments with which it trains"
    at = path if stage.own_loop is None else str(stage.own_loop)
    return (
        f"{at} steps the optimizer in a loop of its own, which no callback reaches, so {path} was stopped after "
        f"{stage.own_steps} steps and nothing was verified: write `hf_ckpt.apply(model, 'budget=0.5')` before the "
        "loop, and prove it with `print(hf_ckpt.verify(model, lambda: model(**batch).loss, 'budget=0.5'))`"
    )


@contextmanager
def _as_main(path: str, arguments: Sequence[str]) -> Iterator[None]:
    """``sys.argv`` and ``sys.path`` as the script expects them."""
    before = sys.argv, list(sys.path)
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before


class _Stage:
    """Stands around the script's trainings."""

    def __init__(self, policy: Policy | None) -> None:
        self.policy = policy
        self.examined: Examined | None = None
        self.own_steps = 0
        self.own_loop: Place | None = None
        #: Whether the script was told to stop.
        self.seen_enough = False
        self.saving = ExitStack()

    @contextmanager
    def set(self) -> Iterator[None]:
        """Every Trainer that trains inside is examined, and every other loop is stopped."""
        train, stage = Trainer.train, self

        def examined(trainer: Trainer, *_: Any, **__: Any) -> None:
            if stage.examined is None:
                stage.examined = put_in(trainer, stage.policy)
                stage.saving.enter_context(nothing_saved())
                train(trainer)  # from the start, whatever checkpoint the script resumes from
            stage.stop()

        hook = register_optimizer_step_post_hook(self._stepped)
        try:
            with self.saving, replaced(Trainer, "train", examined):
                yield
        finally:
            hook.remove()

    def stop(self) -> NoReturn:
        """End the script."""
        self.seen_enough = True
        raise _SeenEnough

    def _stepped(self, *_: Any) -> None:
        if self.examined is not None:
            return
        if not self.own_steps:
            self.saving.enter_context(nothing_saved())
        self.own_steps += 1
        self.own_loop = waiting_place(sys._getframe(1))
        if self.own_steps >= STEPS:
            self.stop()
