"""What a micro-batch came to: its loss, its gradients, the buffers after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from ..compat.wrappers import local_shard

if TYPE_CHECKING:
    from collections.abc import Mapping

Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run, all tensors on the host and of what this rank holds.

    Attributes:
        loss: The loss; None where the run failed.
        gradients: By parameter.
        buffers: By name.
        error: What the backward raised because its recompute was not the forward; None where it came to its end.
    """

    loss: torch.Tensor | None
    gradients: Tensors = field(default_factory=dict)
    buffers: Tensors = field(default_factory=dict)
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One parameter whose gradient differs.

    ``error`` is the norm of the difference over the norm of the reference, with a floor of 1e-4 of the largest gradient
    norm: a key bias has a mathematically zero gradient, and a pure relative error would cry wolf.
    """

    parameter: str
    error: float


def read_outcome(model: torch.nn.Module, loss: torch.Tensor) -> Outcome:
    """What a run left on the model."""
    gradients = {name: _on_host(p.grad) for name, p in model.named_parameters() if p.grad is not None}
    return Outcome(_on_host(loss), gradients, {name: _on_host(buffer) for name, buffer in model.named_buffers()})


def _on_host(tensor: torch.Tensor) -> torch.Tensor:
    part = local_shard(tensor.detach())
    return (part if part.layout is torch.strided else part.to_dense()).to("cpu", copy=True)


def same_loss(reference: Outcome, result: Outcome) -> bool:
    """Whether both have a loss, and the same one."""
    return reference.loss is not None and result.loss is not None and _same(reference.loss, result.loss)


def differences(reference: Outcome, result: Outcome) -> tuple[Difference, ...]:
    """The parameters whose gradients differ, or are there in one of the runs only; in the model's order."""
    floor = 1e-4 * max((float(g.float().norm()) for g in reference.gradients.values()), default=0.0)
    found = []
    for name, expected in reference.gradients.items():
        actual = result.gradients.get(name)
        if actual is None or actual.shape != expected.shape:
            found.append(Difference(name, 1.0))
        elif not _same(actual, expected):
            error = float((actual.float() - expected.float()).norm()) / (float(expected.float().norm()) + floor)
            found.append(Difference(name, error))
    found += [Difference(name, 1.0) for name in result.gradients if name not in reference.gradients]
    return tuple(found)


def changed_buffers(reference: Outcome, result: Outcome) -> tuple[str, ...]:
    """Buffers that are not what they are after the reference run."""
    return tuple(name for name, expected in reference.buffers.items() if not _is_there(result.buffers, name, expected))


def _is_there(buffers: Mapping[str, torch.Tensor], name: str, expected: torch.Tensor) -> bool:
    actual = buffers.get(name)
    return actual is not None and actual.shape == expected.shape and _same(actual, expected)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal to the last bit; a NaN is like any other."""
    return one.dtype == other.dtype and torch.equal(_bits(one), _bits(other))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
