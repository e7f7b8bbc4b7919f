"""Faults in a training loop of the user's own, under ``hf_ckpt.apply``."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

import hf_ckpt
from hf_ckpt import engine

from ..models import batch, step
from ..module_state import changed, model_state, thread_state
from .injectors import AtCall, AtOp, AtUse, out_of_memory
from .outcome import Outcome
from .subjects import LENGTHS, POLICIES, SUBJECTS, Subject, subject

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from torch import nn

Injector = AtOp | AtCall
ERRORS: tuple[Callable[[], BaseException], ...] = (
    out_of_memory,
    KeyboardInterrupt,
    lambda: RuntimeError("injected"),
)


def at_an_op(rng: Random) -> Outcome:
    """Out of memory, an error or an interrupt at any op of applying, forward, backward and replay."""
    error = rng.choice(ERRORS)()
    return _in_a_loop(rng, AtOp, error)


def at_a_call(rng: Random) -> Outcome:
    """An interrupt, or memory that is out, as any function of the package is called."""
    error = rng.choice((KeyboardInterrupt, KeyboardInterrupt, MemoryError))()
    return _in_a_loop(rng, AtCall, error)


def _in_a_loop(rng: Random, kind: type[Injector], error: BaseException) -> Outcome:
    where, (policy, chosen) = subject(rng.choice(SUBJECTS)), rng.choice(POLICIES)
    cold = rng.random() < 0.3
    phases = _phases(where.name, policy, chosen, kind, cold)
    first, last = rng.choice([pair for pair in phases if pair[0] < pair[1]])
    injector = kind(rng.randrange(first, last), error)
    outcome = Outcome(
        f"{type(error).__name__} at {kind.__name__[2:].lower()} {injector.at} of {last} in phase "
        f"{phases.index((first, last))}, {where.name} under {policy}, engine {chosen}, traces {'cold' if cold else 'warm'}"
    )
    _judge(outcome, where, where.fresh(), injector, (policy, chosen), cold=cold, restores=rng.random() < 0.5)
    return outcome


def in_a_hook(rng: Random) -> Outcome:
    """A hook of the user's on some module raises, in forward or backward."""
    where, (policy, chosen) = subject(rng.choice(SUBJECTS)), rng.choice(POLICIES)
    kind, model = rng.choice(HOOKS), where.fresh()
    name = rng.choice([name for name, module in model.named_modules() if name and not list(module.children())])
    error = rng.choice((KeyboardInterrupt, out_of_memory, lambda: ValueError("injected")))()
    hook = AtUse(rng.randrange(3), error)
    getattr(model.get_submodule(name), kind)(hook)
    where = where.after(lambda plain: getattr(plain.get_submodule(name), kind)(_looks))
    outcome = Outcome(f"{type(error).__name__} at use {hook.at} of a {kind[9:]} of {name}, {where.name} under {policy}")
    _judge(outcome, where, model, hook, (policy, chosen), cold=False, restores=rng.random() < 0.5)
    return outcome


def _looks(*_: Any) -> None:
    """A hook that does nothing."""


#: Hooks on tensors are those that ``register_full_backward_hook`` puts on a module's inputs and outputs.
HOOKS = (
    "register_forward_pre_hook",
    "register_forward_hook",
    "register_full_backward_pre_hook",
    "register_full_backward_hook",
)


def in_a_weight_hook(rng: Random) -> Outcome:
    """A hook on a gradient raises: hooks of a tensor, and those behind its accumulation (clipping, fused optimizers)."""
    where, (policy, chosen) = subject(rng.choice(SUBJECTS)), rng.choice(POLICIES)
    kind, model = rng.choice(("register_hook", "register_post_accumulate_grad_hook")), where.fresh()
    name, weight = rng.choice([(n, p) for n, p in model.named_parameters() if p.requires_grad])
    error = rng.choice((KeyboardInterrupt, lambda: ValueError("injected")))()
    hook = AtUse(rng.randrange(3), error)
    getattr(weight, kind)(hook)
    outcome = Outcome(f"{type(error).__name__} at use {hook.at} of a {kind[9:]} of {name}, {where.name} under {policy}")
    _judge(outcome, where, model, hook, (policy, chosen), cold=False, restores=rng.random() < 0.5)
    return outcome


def in_a_layers_forward(rng: Random) -> Outcome:
    """A module inside a layer raises by itself."""
    where, (policy, chosen) = subject(rng.choice(SUBJECTS)), rng.choice(POLICIES)
    model = where.fresh()
    name = rng.choice([name for name, module in model.named_modules() if type(module) is torch.nn.Linear])
    error = rng.choice((KeyboardInterrupt, out_of_memory, lambda: ValueError("injected")))()
    module = model.get_submodule(name)
    module.forward = forward = AtUse(rng.randrange(4), error, module.forward)
    outcome = Outcome(f"{type(error).__name__} in call {forward.at} of {name}, {where.name} under {policy}")
    _judge(outcome, where, model, forward, (policy, chosen), cold=False, restores=rng.random() < 0.5)
    return outcome


def not_a_number(rng: Random) -> Outcome:
    """A weight is NaN or infinite: loss and gradients are as they are without a policy, and so is the step after it."""
    where, (policy, chosen) = subject(rng.choice(SUBJECTS)), rng.choice(POLICIES)
    value = rng.choice((float("nan"), float("inf")))
    plain, model = where.fresh(), where.fresh()
    names = [name for name, _ in model.named_parameters()]
    name, at = rng.choice(names), rng.randrange(3)
    outcome = Outcome(f"{value} in {name} at step {at}, {where.name} under {policy}, engine {chosen}")
    before = model_state(model)
    handle = hf_ckpt.apply(model, policy, engine=chosen)
    for number, length in enumerate(LENGTHS):
        ours, theirs = (_with(value if number == at else None, m, name, length) for m in (model, plain))
        outcome.check(all(map(_bits_equal, ours, theirs)), f"gradients differ in step {number}")
    handle.restore()
    outcome.check(not (left := changed(before, model_state(model))), f"restore left {left[:3]}")
    return outcome


def _with(value: float | None, model: nn.Module, name: str, length: int) -> list[torch.Tensor | None]:
    weight = model.get_parameter(name)
    kept = weight.detach().clone()
    if value is not None:
        with torch.no_grad():
            weight.view(-1)[0] = value
    loss, gradients = step(model, batch(length=length))
    with torch.no_grad():
        weight.copy_(kept)
    return [loss, *gradients]


def _bits_equal(a: torch.Tensor | None, b: torch.Tensor | None) -> bool:
    if a is None or b is None:
        return a is None and b is None
    return torch.equal(a.contiguous().view(torch.int32), b.contiguous().view(torch.int32))


def calibrating(rng: Random) -> Outcome:
    """The benchmark of the device is cut off: nothing of it stays, and the next one is whole.

    A device that is out of memory is planned for by ordinary rates.
    """
    from hf_ckpt.planner.calibration.calibrate import describe, measure
    from hf_ckpt.planner.calibration.store import cache_folder, file_name, load

    device, error = torch.device("cpu"), rng.choice(ERRORS)()
    file = cache_folder() / file_name(describe(device))
    file.unlink(missing_ok=True)
    injector = AtOp(rng.randrange(_benchmark_ops()), error)
    outcome = Outcome(f"{type(error).__name__} at op {injector.at} of the calibration")
    model = subject("llama").fresh()
    before, thread = model_state(model), thread_state()
    handles: list[hf_ckpt.Handle] = []
    raised = _raised(lambda: handles.append(hf_ckpt.apply(model, "budget=0.5")), injector)
    expected = None if isinstance(error, torch.OutOfMemoryError) else error
    outcome.check(raised is expected, f"raised {raised!r}")
    for handle in handles:
        handle.restore()
    outcome.check(not (left := changed(before, model_state(model))), f"apply left {left[:3]}")
    outcome.check(not file.exists(), "half a calibration is stored")
    outcome.same_state(thread, thread_state(), "after")
    hf_ckpt.apply(model, "budget=0.5").restore()
    outcome.check(load(describe(device), cache_folder()) is not None, "the next calibration is not stored")
    assert measure
    return outcome


@cache
def _benchmark_ops() -> int:
    from hf_ckpt.planner.calibration.calibrate import measure

    with AtOp(None, RuntimeError()) as counter:
        measure(torch.device("cpu"))
    return counter.seen


def _judge(
    outcome: Outcome,
    where: Subject,
    model: nn.Module,
    injector: Injector | AtUse,
    applied: tuple[str, str],
    *,
    cold: bool,
    restores: bool,
) -> None:
    before, thread = model_state(model), thread_state()
    if cold:
        engine.clear_traces()
    handles: list[hf_ckpt.Handle] = []
    raised = _raised(lambda: _train(model, applied, handles), injector)
    outcome.met = injector.met
    if isinstance(injector, AtUse):
        injector.armed = False
    outcome.check(raised is injector.error or raised is None, f"raised {raised!r}")
    if not isinstance(raised, KeyboardInterrupt):
        # torch runs no hook of a module behind an interrupt (torch/nn/modules/module.py): what is open then is closed
        # by the next forward, or by restore.
        outcome.same_state(thread, thread_state(), "after the fault")
    if handles and not restores:
        outcome.check(not (wrong := where.wrong_steps(model)), f"wrong gradients while applied, lengths {wrong}")
    for handle in handles:
        handle.restore()
    outcome.same_state(thread, thread_state(), "restored")
    outcome.check(not (left := changed(before, model_state(model))), f"restore left {left[:3]}")
    outcome.check(not (wrong := where.wrong_steps(model)), f"wrong gradients after restore, lengths {wrong}")


def _raised(run: Callable[[], Any], injector: Injector | AtUse) -> BaseException | None:
    """What came out of ``run``, without the frames that it came through."""
    with injector if not isinstance(injector, AtUse) else nullcontext():
        try:
            run()
        except BaseException as error:
            caught = error.with_traceback(None)
        else:
            return None
    return caught


def _train(
    model: nn.Module, applied: tuple[str, str], handles: list[hf_ckpt.Handle], marks: Any = lambda: None
) -> None:
    marks()
    handles.append(hf_ckpt.apply(model, applied[0], engine=applied[1]))
    for length in LENGTHS:
        ids = batch(length=length)
        model.zero_grad()
        torch.manual_seed(1)
        marks()
        loss = model(input_ids=ids, labels=ids).loss
        marks()
        loss.backward()
    marks()


@cache
def _phases(name: str, policy: str, chosen: str, kind: type[Injector], cold: bool) -> list[tuple[int, int]]:
    """How many ops or calls there were when applying, and each forward and backward, began and ended."""
    model, marks, handles = subject(name).fresh(), [], []
    if not cold:  # traced by others already
        _train(subject(name).fresh(), (policy, chosen), [])
    else:
        engine.clear_traces()
    with kind(None, RuntimeError()) as counter:
        _train(model, (policy, chosen), handles, lambda: marks.append(counter.seen))
    return list(itertools.pairwise(marks))
