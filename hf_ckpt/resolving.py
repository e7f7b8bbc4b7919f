"""Resolves a policy on a real model: what it finds there, what it has to work with, what that makes of the policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .anatomy import Anatomy, read_anatomy
from .chunks.install import obstacles
from .compat.prefix_tuning import check_prefix_tuning
from .conflicts import check_conflicts
from .errors import ModelStructureError
from .head.install import find_head
from .policy import parse_policy
from .policy.platform import Engine, Platform
from .policy.resolve import ResolvedPolicy, resolve
from .regions.ops import has_op

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .policy import Policy


def resolve_on(
    model: torch.nn.Module,
    policy: str | Mapping[str, Any] | Policy,
    *,
    engine: Engine = Engine.TRACED,
    device: torch.device | None = None,
    compiled: bool = False,
) -> tuple[Anatomy, ResolvedPolicy]:
    """Resolve a policy for a model, which stays as it is but for a policy that an ended training left behind.

    Args:
        model: Any transformers model, wrapped or not.
        policy: A policy string, its dict form or a Policy.
        engine: What recomputes.
        device: The device to train on; by default the model's.
        compiled: Whether the model will run inside a graph of ``torch.compile``.

    Returns:
        What was found in the model, and the resolved policy.

    Raises:
        PolicyError: the policy is malformed, contradicts itself, names no layer of this model, or needs what the engine
            or the device cannot do.
        ModelStructureError: ``model`` is no model, has no decoder layers, or lacks a part that the policy needs.
        ConflictError: a checkpoint wrapper or another policy is on the model, or an adapter feeds a KV cache.
    """
    parsed = parse_policy(policy)
    _check_is_model(model)
    check_conflicts(model)
    anatomy = read_anatomy(model)
    platform = read_platform(model, anatomy, engine=engine, device=device, compiled=compiled)
    resolved = resolve(parsed, anatomy.stacks, platform)
    if resolved.recomputes:
        check_prefix_tuning(model)
    return anatomy, resolved


def read_platform(
    model: torch.nn.Module,
    anatomy: Anatomy,
    *,
    engine: Engine = Engine.TRACED,
    device: torch.device | None = None,
    compiled: bool = False,
) -> Platform:
    """What a policy on ``model`` has to work with beside its layers; arguments as in :func:`resolve_on`."""
    try:
        find_head(model)
        missing = ""
    except ModelStructureError as error:
        missing = str(error)
    where = device or next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    return Platform(engine, compiled, where.type, missing, obstacles(anatomy), has_op)


def _check_is_model(model: object) -> None:
    if isinstance(model, torch.nn.Module):
        return
    if isinstance(model, str):
        raise ModelStructureError(
            f"{model!r} is a name, not a model: load it first, for example with "
            f'AutoModelForCausalLM.from_pretrained("{model}")'
        )
    raise ModelStructureError(f"a policy goes on a model (a torch.nn.Module), not on {type(model).__name__}")
