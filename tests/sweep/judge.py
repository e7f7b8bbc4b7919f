"""Judges one policy on one model: bitwise gradients, proven replay, fewer bytes, and a model left as it was."""

from __future__ import annotations

import copy
import warnings
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_iter
from transformers import Cache
from transformers.modeling_outputs import ModelOutput

from hf_ckpt import apply
from hf_ckpt.errors import BudgetError, CkptError, ModelStructureError
from hf_ckpt.measuring.verdict import check_effect

from .build import Built, CannotBuildError, build
from .inputs import seed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn

    from hf_ckpt import Handle

    from .classes import Subject

POLICIES = ("full", "attention", "mlp", "norm", "balanced", "budget=0.5", "segments(2)", "dots_saveable")

_NONE_THERE = "names no layer of this model"
#: Verdicts that are as they should be.
GOOD = frozenset({"passed", "none there"})

Gradients = list[torch.Tensor | None]
#: Module name -> attribute -> what stands there.
Attributes = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Plain:
    """What the model does by itself: gradients and buffers after every step, bytes held, attributes that it writes."""

    gradients: list[Gradients]
    buffers: list[torch.Tensor]
    held: int
    writes: frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """What one policy did.

    ``passed``, ``none there`` (the model has no sublayer of that role, and the policy says so), ``refused`` (and why),
    ``no effect``, ``wrong``, ``error`` or ``more bytes``.
    """

    verdict: str
    reason: str = ""
    held_share: float | None = None
    modes: dict[str, int] = field(default_factory=dict)
    whole_because: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ClassResult:
    """One line of the sweep."""

    model_class: str
    kind: str
    built: bool
    reason: str = ""
    inputs: list[str] = field(default_factory=list)
    layers: int = 0
    policies: dict[str, PolicyResult] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For one JSON line."""
        return asdict(self)


def judge(subject: Subject, policies: tuple[str, ...] = POLICIES) -> ClassResult:
    """Build a class and try every policy on it."""
    name, kind = subject.model_class, subject.kind
    try:
        built = build(subject)
    except CannotBuildError as error:
        return ClassResult(name, kind, built=False, reason=str(error))
    try:
        plain = _plain(built)
    except CannotBuildError as error:
        return ClassResult(name, kind, built=False, reason=str(error))
    results = {policy: _judge_policy(built, policy, plain) for policy in policies}
    layers = sum(next(iter(results.values())).modes.values()) if results else 0
    return ClassResult(name, kind, True, "", sorted(built.batches[0]), layers, results)


def _plain(built: Built) -> Plain:
    """Train a copy without any policy. Raises CannotBuildError when it does not, or never twice the same."""
    model = copy.deepcopy(built.model)
    before = _attributes(model)
    try:
        gradients = [_step(model, batch) for batch in built.batches * 2]
    except Exception as error:
        raise CannotBuildError(f"does not train plainly: {_short(error)}") from error
    count = len(built.batches)
    if not _same(gradients[:count], gradients[count:]):
        raise CannotBuildError("two equal plain steps differ: it keeps state of its own")
    if not any(gradient is not None and gradient.any() for step in gradients for gradient in step):
        raise CannotBuildError("no parameter gets a gradient")
    buffers = [buffer.clone() for buffer in model.buffers()]
    try:
        held = _held(model, built.batches)
    except ModelStructureError as error:
        raise CannotBuildError(f"is refused under every policy: {_short(error)}") from error
    return Plain(gradients, buffers, held, _changed(before, _attributes(model)))


def _step(model: nn.Module, batch: dict[str, Any]) -> Gradients:
    model.zero_grad()
    seed(1)
    _loss(model(**batch)).backward()
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def _loss(outputs: Any) -> torch.Tensor:
    """A loss of everything the model returns, whatever its task."""
    total = torch.zeros(())
    for tensor in _tensors(outputs):
        weight = torch.linspace(-1, 1, tensor.numel()).view(tensor.shape)
        total = total + (torch.tanh(tensor.float()) * weight).sum()
    return total


def _tensors(outputs: Any) -> list[torch.Tensor]:
    if isinstance(outputs, ModelOutput):
        return [t for value in outputs.values() for t in _tensors(value)]
    if isinstance(outputs, Cache):
        return []
    leaves = [leaf for leaf in tree_iter(outputs) if isinstance(leaf, torch.Tensor)]
    return [leaf for leaf in leaves if leaf.is_floating_point() and leaf.requires_grad]


def _same(a: list[Gradients], b: list[Gradients]) -> bool:
    return all(_equal(x, y) for left, right in zip(a, b, strict=True) for x, y in zip(left, right, strict=True))


def _equal(x: torch.Tensor | None, y: torch.Tensor | None) -> bool:
    if x is None or y is None:
        return x is None and y is None
    return torch.equal(x.nan_to_num(nan=7.0), y.nan_to_num(nan=7.0))


def _judge_policy(built: Built, policy: str, plain: Plain) -> PolicyResult:
    model = copy.deepcopy(built.model)
    before, keys = _attributes(model), list(model.state_dict())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            handle = apply(model, policy)
    except CkptError as error:
        return PolicyResult("none there" if _NONE_THERE in str(error) else "refused", str(error))
    except Exception as error:
        return PolicyResult("error", _short(error))
    try:
        result = _under(handle, built, plain)
        if list(model.state_dict()) != keys:
            result = PolicyResult("wrong", "state-dict keys changed")
    except BudgetError as error:
        result = PolicyResult("refused", str(error))
    except CkptError as error:
        result = PolicyResult("no effect", str(error))
    except Exception as error:
        result = PolicyResult("error", _short(error))
    handle.restore()
    left = _changed(before, _attributes(model)) - plain.writes
    if result.verdict == "passed" and left:
        return PolicyResult("wrong", f"restore left {sorted(left)[:3]} changed")
    return result


def _under(handle: Handle, built: Built, plain: Plain) -> PolicyResult:
    first = [_step(handle.model, batch) for batch in built.batches]
    with handle.measure():
        second = [_step(handle.model, batch) for batch in built.batches]
    report = handle.report()
    if not _same(first + second, plain.gradients):
        return PolicyResult("wrong", "gradients differ")
    if not all(map(_equal, handle.model.buffers(), plain.buffers)):
        return PolicyResult("wrong", "buffers differ after training")
    check_effect(report, handle.anatomy)
    share = (report.held_bytes or 0) / plain.held if plain.held else None
    modes: dict[str, int] = {}
    for layer in report.layers:
        mode = layer.mode or layer.decision
        modes[mode] = modes.get(mode, 0) + 1
    because = sorted({layer.reason for layer in report.layers if layer.reason})
    if share is not None and share >= 1.0 and any(layer.replays for layer in report.layers):
        return PolicyResult("more bytes", f"holds {share:.2f} of what the plain model holds", share, modes, because)
    return PolicyResult("passed", "", share, modes, because)


def _held(model: nn.Module, batches: Iterable[dict[str, Any]]) -> int:
    handle = apply(model, "none")
    with handle.measure():
        for batch in batches:
            _step(model, batch)
    held = handle.report().held_bytes
    handle.restore()
    return held or 0


def _attributes(model: nn.Module) -> Attributes:
    """Everything on every module, as it stands; held, so that a new object cannot take an old one's place."""
    return {
        name: vars(module).copy()
        | {f"{hooks}()": list(vars(module)[hooks].values()) for hooks in ("_forward_hooks", "_forward_pre_hooks")}
        | {"config.use_cache": getattr(getattr(module, "config", None), "use_cache", None)}
        for name, module in model.named_modules()
    }


def _changed(before: Attributes, after: Attributes) -> frozenset[tuple[str, str]]:
    missing = object()
    return frozenset(
        (module, name)
        for module in before.keys() | after.keys()
        for name in before.get(module, {}).keys() | after.get(module, {}).keys()
        if not _stands(before.get(module, {}).get(name, missing), after.get(module, {}).get(name, missing))
    )


def _stands(before: Any, after: Any) -> bool:
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after)
    return before is after or (isinstance(before, bool | int | str | float) and before == after)


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"[:300]
