"""Keeps a script from writing checkpoints, models and logs: its output folder is one that is thrown away.

From its first step on it cannot save weights at all: a ``finally`` or a handler of the script's would write those of
two steps over the ones of a whole training.
"""

from __future__ import annotations

import functools
import os
import tempfile
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import safetensors.torch
import torch
from transformers import PreTrainedModel, Trainer, TrainingArguments
from transformers.utils import PushToHubMixin

if TYPE_CHECKING:
    from collections.abc import Iterator

#: What a script is examined without: everything that leaves the process, and an evaluation before the first step.
_OFF = {"report_to": [], "push_to_hub": False, "eval_on_start": False, "load_best_model_at_end": False}
_WRITERS = (
    (Trainer, ("save_model", "save_state", "_save_checkpoint", "push_to_hub", "create_model_card")),
    (PreTrainedModel, ("save_pretrained", "push_to_hub")),
)


@contextmanager
def nothing_written() -> Iterator[None]:
    """Inside, Trainers and models write nothing, and trackers are off."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="hf-ckpt-"))
        stack.enter_context(_environment("WANDB_MODE", "disabled"))
        stack.enter_context(replaced(Trainer, "__init__", _elsewhere(Trainer.__init__, folder)))
        for owner, names in _WRITERS:
            for name in names:
                if hasattr(owner, name):
                    stack.enter_context(replaced(owner, name, _writes_nothing))
        yield


@contextmanager
def nothing_saved() -> Iterator[None]:
    """Inside, torch, safetensors and whatever has a ``save_pretrained`` write nothing."""
    with ExitStack() as stack:
        for owner, names in ((torch, ("save",)), (safetensors.torch, ("save_file", "save_model"))):
            for name in names:
                stack.enter_context(replaced(owner, name, _writes_nothing))
        for kind in _kinds_of(PushToHubMixin):
            if "save_pretrained" in vars(kind):
                stack.enter_context(replaced(kind, "save_pretrained", _writes_nothing))
        yield


def _kinds_of(kind: type) -> set[type]:
    inner: list[type] = kind.__subclasses__()
    return {*inner, *(other for one in inner for other in _kinds_of(one))}


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """``value`` stands as this attribute of a class or a module inside."""
    before = vars(owner).get(name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def _elsewhere(begin: Any, folder: str) -> Any:
    """``Trainer.__init__`` with arguments that write into ``folder`` and report to nobody."""

    @functools.wraps(begin)
    def init(self: Any, model: Any = None, args: Any = None, *more: Any, **kwargs: Any) -> None:
        args = args or TrainingArguments(folder)
        vars(args).update({name: value for name, value in _OFF.items() if hasattr(args, name)}, output_dir=folder)
        begin(self, model, args, *more, **kwargs)

    return init


def _writes_nothing(*_: Any, **__: Any) -> None:
    """Stands as a method that writes."""
