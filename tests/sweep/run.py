"""Runs the sweep: each class in a process of its own, with a time limit, results as JSON lines."""

from __future__ import annotations

import gc
import json
import multiprocessing
import resource
import signal
import time
from typing import TYPE_CHECKING, Any

import torch
import transformers

from .classes import Subject
from .judge import POLICIES, ClassResult, judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


#: CPU time that a class may take, and the time by the clock after which it hangs, on however busy a machine.
_CPU_SECONDS = 60
_SECONDS = 1800


def sweep(subjects: Iterable[Subject], policies: tuple[str, ...] = POLICIES) -> Iterator[dict[str, Any]]:
    """Judge each class in a forked process; one that hangs or dies is a result like any other."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    _warm_up()
    # A collection in a fork would otherwise look at all that the libraries made, and copy its memory.
    gc.collect()
    gc.freeze()
    context = multiprocessing.get_context("fork")
    for subject in subjects:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_judge_into, args=(sender, subject, policies))
        process.start()
        sender.close()
        yield _result_of(receiver, subject, process)


def _warm_up() -> None:
    """What torch loads at its first trace, once instead of in every fork."""
    judge(Subject("LlamaForCausalLM", "LlamaConfig", "causal_lm"), ("full", "budget=0.5", "segments(2)"))


def _judge_into(sender: Any, subject: Subject, policies: tuple[str, ...]) -> None:
    used = int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (used + _CPU_SECONDS, resource.RLIM_INFINITY))
    sender.send(judge(subject, policies).as_dict())


def _result_of(receiver: Any, subject: Subject, process: Any) -> dict[str, Any]:
    try:
        if receiver.poll(_SECONDS):
            result: dict[str, Any] = receiver.recv()
            return result
        reason = f"took more than {_SECONDS} s"
    except EOFError:
        process.join()
        slow = process.exitcode == -signal.SIGXCPU
        reason = f"took more than {_CPU_SECONDS} s of CPU time" if slow else _death(process.exitcode)
    finally:
        process.kill()
        process.join()
    return ClassResult(subject.model_class, subject.kind, built=False, reason=reason).as_dict()


def _death(exit_code: int) -> str:
    """How a process ended that sent no result."""
    return f"its process died of {signal.Signals(-exit_code).name}" if exit_code < 0 else f"it ended with {exit_code}"


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    """The newest result of each class in a file of JSON lines."""
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return {line["model_class"]: line for line in lines}
