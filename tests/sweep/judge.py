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

import hf_ckpt
from hf_ckpt.errors import CkptError
from hf_ckpt.measuring.verdict import check_effect

from .build import Built, CannotBuildError, build
from .inputs import seed

if TYPE_CHECKING:
    from torch import nn

    from .classes import Subject

POLICIES = ("full", "attention", "mlp", "norm", "balanced", "budget=0.5", "segments(2)", "dots_saveable")

Gradients = list[torch.Tensor | None]


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """What one policy did: ``passed``, ``refused`` (and why), ``no effect``, ``wrong``, ``error`` or ``more bytes``."""

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
    _without_cache(built.model)
    try:
        plain = [_step(built.model, batch) for batch in built.batches * 2]
    except Exception as error:
        return ClassResult(name, kind, built=False, reason=f"does not train plainly: {_short(error)}")
    if not _same(plain[:2], plain[2:]):
        return ClassResult(name, kind, built=False, reason="two equal plain steps differ: it keeps state of its own")
    held = _held_plainly(built)
    results = {policy: _judge_policy(built, policy, plain, held) for policy in policies}
    layers = sum(next(iter(results.values())).modes.values()) if results else 0
    return ClassResult(name, kind, True, "", sorted(built.batches[0]), layers, results)


def _without_cache(model: nn.Module) -> None:
    """As `Trainer` does, on every config: with a cache attention may run through another kernel, to the last bit."""
    for module in model.modules():
        config = getattr(module, "config", None)
        if getattr(config, "use_cache", False):
            config.use_cache = False


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


def _judge_policy(built: Built, policy: str, plain: list[Gradients], held: int) -> PolicyResult:
    model = copy.deepcopy(built.model)
    before, keys = _fingerprint(model), list(model.state_dict())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            handle = hf_ckpt.apply(model, policy)
    except CkptError as error:
        return PolicyResult("refused", str(error))
    except Exception as error:
        return PolicyResult("error", _short(error))
    try:
        result = _under(handle, built, plain, held)
        if list(model.state_dict()) != keys:
            result = PolicyResult("wrong", "state-dict keys changed")
    except CkptError as error:
        result = PolicyResult("no effect", str(error))
    except Exception as error:
        result = PolicyResult("error", _short(error))
    handle.restore()
    if result.verdict == "passed" and _fingerprint(model) != before:
        return PolicyResult("wrong", "restore left something behind")
    return result


def _under(handle: hf_ckpt.Handle, built: Built, plain: list[Gradients], held: int) -> PolicyResult:
    first = [_step(handle.model, batch) for batch in built.batches]
    with handle.measure():
        second = [_step(handle.model, batch) for batch in built.batches]
    report = handle.report()
    if not _same(first + second, plain):
        return PolicyResult("wrong", "gradients differ")
    check_effect(report, handle.anatomy)
    share = (report.held_bytes or 0) / held if held else None
    modes: dict[str, int] = {}
    for layer in report.layers:
        mode = layer.mode or layer.decision
        modes[mode] = modes.get(mode, 0) + 1
    because = sorted({layer.reason for layer in report.layers if layer.reason})
    if share is not None and share >= 1.0 and any(layer.replays for layer in report.layers):
        return PolicyResult("more bytes", f"holds {share:.2f} of what the plain model holds", share, modes, because)
    return PolicyResult("passed", "", share, modes, because)


def _held_plainly(built: Built) -> int:
    handle = hf_ckpt.apply(built.model, "none")
    with handle.measure():
        _step(built.model, built.batches[-1])
    held = handle.report().held_bytes
    handle.restore()
    return held or 0


def _fingerprint(model: nn.Module) -> dict[str, Any]:
    return {
        name: (
            {key: id(value) for key, value in vars(module).items() if not key.startswith("_is_full")},
            len(module._forward_hooks),
            len(module._forward_pre_hooks),
            getattr(getattr(module, "config", None), "use_cache", None),
        )
        for name, module in model.named_modules()
    }


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"[:300]
