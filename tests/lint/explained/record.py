"""Runs scripts and notes which checkpoints they really make, each in a fork of a process that has the libraries.

Reads one JSON object of scripts by name, writes one line for each: ``{"name", "own", "library", "raised"}``. ``own`` and
``library`` are pairs of a line of the script and whether the checkpoint there was reentrant: made by a call that the
script itself writes, or by a library that it calls. ``raised`` is the line that raised, 0 when none did.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
import traceback
import warnings
from types import FrameType, SimpleNamespace
from typing import Any

import peft  # noqa: F401
import torch
import torch.utils.checkpoint as torch_checkpoint
import transformers

_SCRIPT = "script.py"
_TORCH = os.path.dirname(torch.__file__)


class Record:
    """The checkpoints of one run."""

    def __init__(self) -> None:
        self.own: set[tuple[int, bool]] = set()
        self.library: set[tuple[int, bool]] = set()

    def watch(self) -> None:
        """Note every checkpoint from here on, at torch/utils/checkpoint.py's two ways to make one."""
        reentrant = torch_checkpoint.CheckpointFunction
        other = torch_checkpoint._checkpoint_without_reentrant_generator

        def apply(*args: Any) -> Any:
            self._note(sys._getframe(1), True)
            return reentrant.apply(*args)

        def generator(*args: Any, **kwargs: Any) -> Any:
            self._note(sys._getframe(1), False)
            return other(*args, **kwargs)

        torch_checkpoint.CheckpointFunction = SimpleNamespace(apply=apply)  # type: ignore[assignment, misc]
        torch_checkpoint._checkpoint_without_reentrant_generator = generator

    def _note(self, frame: FrameType | None, reentrant: bool) -> None:
        asking = True
        while frame is not None:
            file = frame.f_code.co_filename
            if file == _SCRIPT:
                (self.own if asking else self.library).add((frame.f_lineno, reentrant))
                return
            asking = asking and file.startswith(_TORCH) and "checkpoint_wrapper" not in file
            frame = frame.f_back


def _run(text: str, record: Record) -> int:
    """Run ``text``; the line that raised, 0 when none did."""
    quiet = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        warnings.simplefilter("ignore")
        try:
            exec(compile(text, _SCRIPT, "exec"), {"__name__": "__main__"})
        except Exception as error:
            lines = [part.lineno for part in traceback.extract_tb(error.__traceback__) if part.filename == _SCRIPT]
            return lines[-1] or 0
    return 0


def _recorded(name: str, text: str) -> str:
    """What a run of ``text`` does, in a fork, as a line of JSON."""
    read, write = os.pipe()
    if os.fork() == 0:
        record = Record()
        record.watch()
        raised = _run(text, record)
        found = {"name": name, "own": sorted(record.own), "library": sorted(record.library), "raised": raised}
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        found_there = pipe.read()
    os.wait()
    return found_there


def main() -> None:
    """Answer script by script."""
    torch.set_num_threads(1)
    scripts: dict[str, str] = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        config = transformers.LlamaConfig(
            vocab_size=32,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            pad_token_id=0,
        )
        transformers.LlamaForCausalLM(config).save_pretrained("tiny")
        for used in ("Trainer", "TrainingArguments", "AutoModelForCausalLM"):
            getattr(transformers, used)
        for name, text in scripts.items():
            print(_recorded(name, text), flush=True)


if __name__ == "__main__":
    main()
