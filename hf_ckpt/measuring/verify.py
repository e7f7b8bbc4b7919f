"""Verifies a policy: one micro-batch with and without it, under the same random numbers, gradient by gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from .._apply import apply

if TYPE_CHECKING:
    from ..policy import Policy
    from .report import Report


@dataclass(frozen=True, slots=True)
class Difference:
    """One parameter whose gradient differs.

    ``error`` is the norm of the difference over the norm of the reference, with a floor of 1e-4 of the largest gradient
    norm: a key bias has a mathematically zero gradient, and a pure relative error would cry wolf.
    """

    parameter: str
    error: float


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome: ``deterministic`` says whether two runs without the policy agree (else nothing can be proven)."""

    policy: str
    deterministic: bool
    same_loss: bool
    differences: tuple[Difference, ...]
    compared: int
    report: Report

    @property
    def holds(self) -> bool:
        """Loss and every gradient are bitwise those of the uncheckpointed model."""
        return self.deterministic and self.same_loss and not self.differences


Step = tuple[torch.Tensor, dict[str, torch.Tensor]]


def verify(
    model: torch.nn.Module,
    ids: torch.Tensor,
    policy: Policy,
    *,
    engine: str = "traced",
    seed: int = 0,
) -> Verification:
    """Run one batch twice plain and twice under a policy, whose second run is compared.

    A ``budget`` policy learns in its first run. The model is restored and its gradients are cleared.

    Args:
        model: A model in training mode.
        ids: Token ids (batch, length), int64, on the model's device; they are the labels too.
        policy: The policy to verify.
        engine: The engine, as in :func:`hf_ckpt.apply`.
        seed: Every run starts from it.

    Returns:
        Whether loss and gradients are equal, and the report of the compared run.

    Raises:
        CkptError: What :func:`hf_ckpt.apply` raises.
        BudgetError: A budget is smaller than the thriftiest plan for these ids.
    """
    reference, again = _step(model, ids, seed), _step(model, ids, seed)
    handle = apply(model, policy, engine=engine)
    try:
        _step(model, ids, seed)
        with handle.measure():
            result = _step(model, ids, seed)
        report = handle.report()
    finally:
        handle.restore()
        model.zero_grad()
    return Verification(
        policy=str(policy),
        deterministic=not _differences(reference, again) and torch.equal(reference[0], again[0]),
        same_loss=torch.equal(reference[0], result[0]),
        differences=_differences(reference, result),
        compared=len(reference[1]),
        report=report,
    )


def _step(model: torch.nn.Module, ids: torch.Tensor, seed: int) -> Step:
    model.zero_grad()
    torch.manual_seed(seed)
    loss: torch.Tensor = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = {name: p.grad.detach().clone() for name, p in model.named_parameters() if p.grad is not None}
    return loss.detach(), gradients


def _differences(reference: Step, result: Step) -> tuple[Difference, ...]:
    floor = 1e-4 * max((float(g.float().norm()) for g in reference[1].values()), default=0.0)
    found = []
    for name, expected in reference[1].items():
        actual = result[1].get(name)
        if actual is None:
            found.append(Difference(name, 1.0))
        elif not torch.equal(actual, expected):
            error = float((actual.float() - expected.float()).norm()) / (float(expected.float().norm()) + floor)
            found.append(Difference(name, error))
    return tuple(found)
