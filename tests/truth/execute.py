"""Runs programs and notes what truly happens: each as written, and once more with every checkpoint taken out.

The libraries are imported once; each run is a fork of that process. Reads one JSON object (a program's ``text`` and
``arguments``) a line, writes one a line: ``{"written": ..., "plain": ...}``, both the fields of
:class:`tests.truth.outcome.Run`.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import io
import json
import os
import random
import signal
import sys
import tempfile
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import peft  # noqa: F401
import torch
import torch.distributed.algorithms._checkpoint.checkpoint_wrapper as wrappers
import torch.utils.checkpoint as torch_checkpoint
import transformers
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable

_SECONDS = 60


class Notes:
    """What one run does to gradients, weights and module state, and which checkpoints it asks for."""

    def __init__(self) -> None:
        self.steps: list[list[list[float] | None]] = []
        #: The texts that the program lets a model write.
        self.written: list[list[int]] = []
        self.modules: list[nn.Module] = []
        self.asked = 0
        #: Modules that ran again, for every backward pass.
        self.replays: list[int] = []

    def watch(self) -> None:
        """Listen to every optimizer, backward pass, module and checkpoint from here on."""
        self._watch_optimizers()
        self._watch_modules()
        self._watch_generation()
        backward = torch.autograd.backward

        def counted(*args: Any, **kwargs: Any) -> None:
            if torch._C._current_graph_task_id() == -1:  # the reentrant variant calls it again inside
                self.replays.append(0)
            backward(*args, **kwargs)

        torch.autograd.backward = counted

    def _watch_optimizers(self) -> None:
        make = torch.optim.Optimizer.__init__
        notes = self

        def noted(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            make(optimizer, *args, **kwargs)
            optimizer.register_step_pre_hook(lambda found, *_: notes.steps.append(_gradients(found)))

        torch.optim.Optimizer.__init__ = noted  # type: ignore[method-assign]

    def _watch_modules(self) -> None:
        make, call = nn.Module.__init__, nn.Module.__call__
        notes = self

        def made(module: nn.Module, *args: Any, **kwargs: Any) -> None:
            make(module, *args, **kwargs)
            notes.modules.append(module)

        def called(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch._C._current_graph_task_id() != -1 and notes.replays:
                notes.replays[-1] += 1
            return call(module, *args, **kwargs)

        nn.Module.__init__ = made  # type: ignore[method-assign]
        nn.Module.__call__ = called  # type: ignore[method-assign, assignment]

    def _watch_generation(self) -> None:
        generate = transformers.GenerationMixin.generate
        notes = self

        def noted(model: Any, *args: Any, **kwargs: Any) -> Any:
            text = generate(model, *args, **kwargs)
            if isinstance(text, torch.Tensor):
                notes.written.append(text.flatten().tolist())
            return text

        transformers.GenerationMixin.generate = noted

    def state(self) -> list[str]:
        """A digest of every buffer that training can change, in the order in which their modules were made."""
        return [
            hashlib.sha256(buffer.detach().double().mul(1e6).round().numpy().tobytes()).hexdigest()[:12]
            for module in self.modules
            for buffer in module._buffers.values()
            if buffer is not None and buffer.numel() < 4096
        ]


def _gradients(optimizer: torch.optim.Optimizer) -> list[list[float] | None]:
    """Three numbers of every gradient: enough to tell two runs apart, small enough to send."""
    found: list[list[float] | None] = []
    for group in optimizer.param_groups:
        for weight in group["params"]:
            grad = weight.grad
            found.append(None if grad is None else [float(grad.double().sum()), float(grad.double().norm()),
                                                    float((grad.double().flatten() * _ramp(grad.numel())).sum())])  # fmt: skip
    return found


def _ramp(size: int) -> torch.Tensor:
    return torch.linspace(-1, 1, size, dtype=torch.float64)


def _count_requests(notes: Notes) -> None:
    """Note every checkpoint that the program asks for, and do what it asks for."""

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            notes.asked += 1
            return function(*args, **kwargs)

        return call

    for module, name in _ENTRANCES:
        setattr(module, name, counted(getattr(module, name)))
    disable = transformers.PreTrainedModel.gradient_checkpointing_disable

    def disabled(model: Any) -> None:
        notes.asked = 0
        disable(model)

    transformers.PreTrainedModel.gradient_checkpointing_disable = disabled


def _take_out(notes: Notes) -> None:
    """Let every checkpoint run its function as if it were called by itself."""
    del notes
    ours = {"use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"}

    def plain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **{key: value for key, value in kwargs.items() if key not in ours})

    def sequential(functions: Any, segments: int, input: Any, **kwargs: Any) -> Any:
        del segments, kwargs
        for function in functions.children() if isinstance(functions, nn.Sequential) else functions:
            input = function(input)
        return input

    torch_checkpoint.checkpoint = plain
    torch_checkpoint.checkpoint_sequential = sequential
    wrappers.checkpoint_wrapper = lambda module, *_, **__: module  # type: ignore[assignment]
    wrappers.apply_activation_checkpointing = lambda *_, **__: None
    transformers.PreTrainedModel.gradient_checkpointing_enable = lambda *_, **__: None


_ENTRANCES: tuple[tuple[Any, str], ...] = (
    (torch_checkpoint, "checkpoint"),
    (torch_checkpoint, "checkpoint_sequential"),
    (wrappers, "checkpoint_wrapper"),
    (wrappers, "apply_activation_checkpointing"),
    (transformers.PreTrainedModel, "gradient_checkpointing_enable"),
)


def run(text: str, arguments: list[str], prepare: Callable[[Notes], None]) -> dict[str, Any]:
    """What ``text`` does as a main program with these command line ``arguments``, in a fork."""
    with tempfile.TemporaryDirectory() as folder:
        result = os.path.join(folder, "result.json")
        child = os.fork()
        if child == 0:
            sys.argv = ["program.py", *arguments]
            _become(text, folder, result, prepare)
        _, status = os.waitpid(child, 0)
        if not os.path.exists(result):
            return {"error": f"died with status {os.waitstatus_to_exitcode(status)}"}
        with open(result) as file:
            found: dict[str, Any] = json.load(file)
            return found


def _become(text: str, folder: str, result: str, prepare: Callable[[Notes], None]) -> None:
    signal.alarm(_SECONDS)
    os.chdir(folder)
    random.seed(0)  # Python seeds it anew in every fork, and the two runs must draw the same
    np.random.seed(0)
    notes, error, at = Notes(), "", 0
    notes.watch()
    prepare(notes)
    with (
        warnings.catch_warnings(record=True) as caught,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("always")
        try:
            exec(compile(text, "program.py", "exec"), {"__name__": "__main__"})
        except BaseException as raised:
            error = f"{type(raised).__name__}: {raised}"[:500]
            at = _line(raised)
    outcome = {
        "error": error,
        "line": at,
        "steps": notes.steps,
        "texts": notes.written,
        "state": notes.state(),
        "asked": notes.asked,
        "replays": notes.replays,
        "warnings": sorted({str(warning.message)[:200] for warning in caught}),
    }
    with open(result, "w") as file:
        json.dump(outcome, file)
    os._exit(0)


def _line(error: BaseException) -> int:
    """The line of the program that the error went through last, 0 when none."""
    found, frame = 0, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "program.py":
            found = frame.tb_lineno
        frame = frame.tb_next
    return found


def main() -> None:
    """Answer line by line."""
    torch.set_num_threads(1)
    for name in ("LlamaForCausalLM", "GPT2LMHeadModel", "AutoModelForCausalLM", "Trainer", "TrainingArguments"):
        getattr(transformers, name)
    # A collection in a fork would otherwise look at all that the libraries made, and copy its memory.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        program = json.loads(line)
        written, plain = (run(program["text"], program["arguments"], how) for how in (_count_requests, _take_out))
        print(json.dumps({"written": written, "plain": plain}), flush=True)


if __name__ == "__main__":
    main()
