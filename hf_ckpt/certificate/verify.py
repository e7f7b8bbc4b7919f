"""``hf_ckpt.verify``: certify a policy, or a training step as it is, in a training loop of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._apply import apply
from .certify import certify

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from ..policy import Policy
    from .certificate import Certificate


def verify(
    model: torch.nn.Module,
    loss: Callable[[], torch.Tensor],
    policy: str | Mapping[str, Any] | Policy | None = None,
    *,
    engine: str = "traced",
) -> Certificate:
    """Compare a forward and backward with those without any checkpointing, to the last bit.

    The step runs four times from the same random numbers, twice without checkpointing and twice with; the model is then
    as it was, and so are its gradients.

    Args:
        model: A model in training mode, with no policy on it.
        loss: Runs a forward and returns the loss, a scalar that has not seen a backward.
        policy: The policy to verify, as in :func:`hf_ckpt.apply`; None: whatever checkpointing the model does itself.
        engine: The engine, as in :func:`hf_ckpt.apply`.

    Returns:
        The certificate: ``holds``, and ``print`` says it, with the first layer, operator and cause where it does not.

    Raises:
        CkptError: What :func:`hf_ckpt.apply` raises.

    Example:
        >>> print(hf_ckpt.verify(model, lambda: model(input_ids=ids, labels=ids).loss, "full"))
        bitwise equal: the loss and 148 gradients
    """

    def step() -> torch.Tensor:
        value = loss()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    put_on = None if policy is None else lambda: apply(model, policy, engine=engine)
    return certify(model, step, put_on)
