"""Imports torch, transformers and peft once, then runs each script it is told about in a fork of itself.

Reads one path a line, writes one JSON object a line: ``{"status": int, "stdout": str, "stderr": str}``.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import tempfile
from pathlib import Path

import accelerate  # noqa: F401
import peft  # noqa: F401
import torch
import transformers


def _warm() -> None:
    """Load what transformers would load lazily in every fork again."""
    torch.set_num_threads(1)
    for name in ("LlamaForCausalLM", "GPT2LMHeadModel", "Trainer", "TrainingArguments"):
        getattr(transformers, name)


def run(script: str) -> dict[str, object]:
    """Run ``script`` as the main program in a child process."""
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("stdout", "stderr")]
        child = os.fork()
        if child == 0:
            _become(script, folder, streams)
        _, status = os.waitpid(child, 0)
        texts = [stream.read_text() for stream in streams]
    return {"status": os.waitstatus_to_exitcode(status), "stdout": texts[0], "stderr": texts[1]}


def _become(script: str, folder: str, streams: list[Path]) -> None:
    status = 1
    try:
        for descriptor, stream in enumerate(streams, 1):
            os.dup2(os.open(stream, os.O_WRONLY | os.O_CREAT), descriptor)
        sys.stdout, sys.stderr = (os.fdopen(descriptor, "w", buffering=1) for descriptor in (1, 2))
        os.chdir(folder)
        sys.argv[:] = [script]
        sys.path[0] = str(Path(script).parent)
        runpy.run_path(script, run_name="__main__")
        status = 0
    except SystemExit as leave:
        status = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        if isinstance(leave.code, str):
            print(leave.code, file=sys.stderr)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _warm()
    for line in sys.stdin:
        print(json.dumps(run(line.rstrip("\n"))), flush=True)
