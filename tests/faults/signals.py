"""A real interrupt from the keyboard, somewhere in a training loop of a process of its own."""

from __future__ import annotations

import json
import os
import signal
import time
from typing import TYPE_CHECKING

import hf_ckpt

from ..models import batch, step
from ..module_state import changed, model_state, thread_state
from .outcome import Outcome
from .subjects import LENGTHS, POLICIES, SUBJECTS, Subject, subject

if TYPE_CHECKING:
    from random import Random


def interrupted(rng: Random) -> Outcome:
    """SIGINT after a while; the process goes on with its model, or restores it, and judges itself."""
    where, (policy, chosen) = subject(rng.choice(SUBJECTS)), rng.choice(POLICIES)
    wait, restores = rng.uniform(0.0, 0.3), rng.random() < 0.5
    outcome = Outcome(f"SIGINT after {wait:.3f} s, {where.name} under {policy}, engine {chosen}")
    ready, said = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        _become(where, (policy, chosen), ready[1], said[1], restores=restores)
    for end in (ready[1], said[1]):
        os.close(end)
    os.read(ready[0], 1)
    time.sleep(wait)
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        # An interrupt may come up in a destructor, where Python drops it: the user presses the keys again.
        os.kill(child, signal.SIGINT)
        time.sleep(0.2)
    with os.fdopen(said[0]) as stream:
        text = stream.read()
    os.close(ready[0])
    outcome.problems += json.loads(text) if text else ["the process ended without a word"]
    return outcome


def _become(where: Subject, applied: tuple[str, str], ready: int, said: int, *, restores: bool) -> None:
    outcome = Outcome("")
    try:
        model = where.fresh()
        before, thread = model_state(model), thread_state()
        handle = hf_ckpt.apply(model, applied[0], engine=applied[1])
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(ready, b"!")
        try:
            while True:
                for length in LENGTHS:
                    step(model, batch(length=length))
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if not restores:
            outcome.check(not (wrong := where.wrong_steps(model)), f"wrong gradients while applied, lengths {wrong}")
        handle.restore()
        outcome.same_state(thread, thread_state(), "restored")
        outcome.check(not (left := changed(before, model_state(model))), f"restore left {left[:3]}")
        outcome.check(not (wrong := where.wrong_steps(model)), f"wrong gradients after restore, lengths {wrong}")
    except BaseException as error:
        outcome.problems.append(f"{type(error).__name__}: {error}")
    finally:
        with os.fdopen(said, "w") as stream:
            json.dump(outcome.problems, stream)
        os._exit(0)
