"""``hf_ckpt.apply``: put a policy on a model, in any training loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .chunks.install import install as install_chunks
from .compat.checkpointing import PolicySwitch, checkpointing_models
from .compat.kv_cache import disable_kv_cache
from .engine.offloading.transfers import give_back
from .handle import Handle
from .head.install import install as install_head
from .install import Installation, install
from .planner.batches.batch_planner import BatchPlanner, PlannedLayer
from .planner.calibration.calibrate import calibration
from .policy.platform import Engine, parse_engine
from .resolving import resolve_on

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import nn

    from .anatomy import Anatomy
    from .head.install import HeadHandle
    from .planner.budget import Budget
    from .policy import Policy
    from .policy.resolve import ResolvedPolicy


def apply(
    model: nn.Module,
    policy: str | Mapping[str, Any] | Policy,
    *,
    engine: str | Engine = Engine.TRACED,
    optimizer: torch.optim.Optimizer | str | None = None,
    accumulates_gradients: bool = True,
) -> Handle:
    """Apply an activation-checkpointing policy to a model; ``handle.restore()`` takes it back without a trace.

    State-dict keys, module names and hooks stay as they are. An activation checkpointing that was switched on before
    (``gradient_checkpointing_enable``) is taken over, not doubled. Once the model runs compiled, every layer that the
    policy touches is recomputed whole, inside the graph, which the report cannot count: it calls the layer unused.

    Args:
        model: Any transformers model, bare or inside PEFT, DDP, FSDP1, FSDP2 or an untraced ``torch.compile``.
        policy: A policy string (``"attention+norm"``), its dict form (``{"budget": "72GiB"}``) or a Policy.
        engine: ``"traced"`` (rebuild saved tensors from a trace; falls back layer by layer) or ``"torch"``
            (``torch.utils.checkpoint``, the reference).
        optimizer: The optimizer, or its ``TrainingArguments.optim`` name. Only ``budget`` policies read it: it says
            what memory is still to come.
        accumulates_gradients: False when gradients are freed before every forward; only ``budget`` policies read it.

    Returns:
        The handle that measures, reports and restores.

    Raises:
        PolicyError: the policy is malformed, contradicts itself, names no layer of this model, or needs what the engine
            or the device cannot do. As with every error, the model is then as it was.
        ModelStructureError: ``model`` is no model, has no decoder layers, or lacks a part that the policy needs.
        ConflictError: a checkpoint wrapper or another policy is on the model, or an adapter feeds a KV cache.
        BudgetError: the budget is malformed; in a forward, when nothing fits it, or ``auto`` finds no memory limit.

    Example:
        >>> handle = hf_ckpt.apply(model, "budget=0.5")
        >>> model(input_ids=ids, labels=ids).loss.backward()
        >>> handle.restore()
    """
    chosen = parse_engine(engine)
    anatomy, resolved = resolve_on(model, policy, engine=chosen)
    return put_on(model, anatomy, resolved, chosen, optimizer=optimizer, accumulates_gradients=accumulates_gradients)


def put_on(
    model: nn.Module,
    anatomy: Anatomy,
    resolved: ResolvedPolicy,
    engine: Engine,
    *,
    optimizer: torch.optim.Optimizer | str | None,
    accumulates_gradients: bool,
) -> Handle:
    """Put a resolved policy on the model that it was resolved for; the other arguments as in :func:`apply`."""
    installation = Installation()
    handle = Handle(model, anatomy, resolved, installation)
    try:
        handle.chunked = install_chunks(model, anatomy, resolved.requests.chunks, into=installation.changes)
        install(model, anatomy, resolved.layers, engine, into=installation)
        if resolved.recomputes:
            installation.changes.extend(disable_kv_cache(model))
        for owner in checkpointing_models(model):
            switch = PolicySwitch(owner, handle, installation.switches, installation.regions)
            installation.changes.append(switch.put_on())
        if resolved.requests.head_chunks is not None:
            handle.head = _chunk_head(model, resolved.requests.head_chunks, installation)
        if resolved.requests.budget is not None:
            _plan(handle, resolved.requests.budget, optimizer, gradients_grow=not accumulates_gradients)
        elif resolved.requests.offload:
            installation.changes.append(_HostMemoryTaken())
    except BaseException:  # an interrupt too: planning may run a benchmark
        handle.restore()
        raise
    return handle


def _chunk_head(model: nn.Module, chunks: int, installation: Installation) -> HeadHandle:
    handle = install_head(model, chunks)
    if chunks == 1:
        # As the model runs it: gradients that are finished before the loss's own factor comes would round differently.
        handle.pause()
    installation.changes.append(_HeadChange(handle))
    return handle


@dataclass(frozen=True, slots=True)
class _HeadChange:
    handle: HeadHandle

    def undo(self) -> None:
        self.handle.restore()


class _HostMemoryTaken:
    """What offload without a planner takes of the host."""

    def undo(self) -> None:
        give_back()


def _plan(
    handle: Handle, budget: Budget, optimizer: torch.optim.Optimizer | str | None, *, gradients_grow: bool
) -> None:
    planner = BatchPlanner(
        handle.model,
        [PlannedLayer(module, region.replay) for module, region in handle.installation.planned],
        budget,
        calibration(next(handle.model.parameters()).device),
        optimizer=optimizer,
        gradients_grow=gradients_grow,
        head=handle.head,
        offload=handle.resolved.requests.offload,
        chunked=handle.chunked,
    )
    handle.installation.changes.append(planner)
    planner.attach()
    handle.planner = planner
