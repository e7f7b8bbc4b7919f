"""``hf_ckpt.apply``: put a policy on a model, in any training loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .anatomy import read_anatomy
from .compat.checkpointing import PolicySwitch, checkpointing_models
from .compat.kv_cache import disable_kv_cache
from .compat.prefix_tuning import check_prefix_tuning
from .conflicts import check_conflicts
from .engine.offload import check_can_offload
from .errors import PolicyError
from .handle import Handle
from .head.install import install as install_head
from .install import Engine, Installation, install, parse_engine
from .planner.batch_planner import BatchPlanner, PlannedLayer
from .planner.calibrate import calibration
from .policies.budget import BudgetPolicy, OffloadPolicy
from .policies.head import HeadPolicy
from .policy import decide, parse_policy
from .policy.compose import parts_of
from .policy.decision import Keep

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import nn

    from .head.install import HeadHandle
    from .policy import Policy


def apply(
    model: nn.Module,
    policy: str | Mapping[str, Any] | Policy,
    *,
    engine: str | Engine = Engine.TRACED,
    optimizer: torch.optim.Optimizer | str | None = None,
    accumulates_gradients: bool = True,
) -> Handle:
    """Apply an activation-checkpointing policy to a model; ``handle.restore()`` takes it back without a trace.

    ``model`` is any transformers model, bare or inside PEFT, DDP, FSDP1, FSDP2 or an untraced ``torch.compile``.
    State-dict keys, module names and hooks stay as they are. An activation checkpointing that was switched on before
    (``gradient_checkpointing_enable``) is taken over, not doubled. Once the model runs compiled, every layer that the
    policy touches is recomputed whole, inside the graph, which the report cannot count: it calls the layer unused.

    ``engine`` is ``"traced"`` (rebuild saved tensors from a trace; falls back layer by layer) or ``"torch"``
    (``torch.utils.checkpoint``, the reference). ``optimizer`` (or its ``TrainingArguments.optim`` name) and
    ``accumulates_gradients`` (False: gradients are freed before every forward) only matter to ``budget`` policies: they
    say what memory is still to come.

    Raises PolicyError (the policy is malformed or contradicts itself, there is no such engine), ModelStructureError (no
    decoder layers) and ConflictError (a checkpoint wrapper or another policy is on the model already, or an adapter
    feeds a KV cache); the model is then as it was.
    """
    parsed, chosen = parse_policy(policy), parse_engine(engine)
    check_conflicts(model)
    anatomy = read_anatomy(model)
    decisions = decide(parsed, anatomy.stacks)
    recomputes = any(not isinstance(decision, Keep) for decision in decisions.values())
    if recomputes:
        check_prefix_tuning(model)
    head, budget = _single(parsed, HeadPolicy), _single(parsed, BudgetPolicy)
    offload = _single(parsed, OffloadPolicy)
    _check_offload(offload, budget, model)
    if budget is not None and chosen is not Engine.TRACED:
        raise PolicyError(f"`{budget}` plans single saved tensors, which engine `torch` cannot: use engine `traced`")
    installation = install(model, anatomy, decisions, chosen)
    handle = Handle(model, parsed, anatomy, decisions, installation)
    try:
        if recomputes:
            installation.changes.extend(disable_kv_cache(model))
        _keep_switched(model, handle)
        chunked = handle.head = _chunk_head(model, head, installation)
        if budget is not None:
            _plan(handle, budget, chunked, optimizer, not accumulates_gradients, offload is not None)
    except Exception:
        handle.restore()
        raise
    return handle


def _single(policy: Policy, kind: type[Any]) -> Any:
    found = [term for term in parts_of(policy) if isinstance(term, kind)]
    if len(found) > 1:
        raise PolicyError(f"`{policy}` names `{found[0].name}` {len(found)} times: name it once")
    return found[0] if found else None


def _check_offload(offload: OffloadPolicy | None, budget: BudgetPolicy | None, model: nn.Module) -> None:
    if offload is None:
        return
    if budget is None:
        raise PolicyError("`offload` lets a budget move saved tensors to host memory: write `budget=40GiB+offload`")
    check_can_offload("offload", next(model.parameters()).device)


def _keep_switched(model: nn.Module, handle: Handle) -> None:
    for owner in checkpointing_models(model):
        handle.installation.changes.append(PolicySwitch.put_on(owner, handle))


def _chunk_head(model: nn.Module, head: HeadPolicy | None, installation: Installation) -> HeadHandle | None:
    if head is None:
        return None
    handle = install_head(model, head.chunks)
    installation.changes.append(_HeadChange(handle))
    return handle


@dataclass(frozen=True, slots=True)
class _HeadChange:
    handle: HeadHandle

    def undo(self) -> None:
        self.handle.restore()


def _plan(
    handle: Handle,
    budget: BudgetPolicy,
    head: HeadHandle | None,
    optimizer: torch.optim.Optimizer | str | None,
    gradients_grow: bool,
    offload: bool,
) -> None:
    installation = handle.installation
    if not installation.planned:
        raise PolicyError(
            f"`{budget}` found no layer with transformers' checkpointing switch: use `full` or `balanced`"
        )
    device = next(handle.model.parameters()).device
    planner = BatchPlanner(
        handle.model,
        [PlannedLayer(module, region.replay) for module, region in installation.planned],
        budget.budget,
        calibration(device),
        optimizer=optimizer,
        gradients_grow=gradients_grow,
        head=head,
        offload=offload,
    )
    planner.attach()
    installation.changes.append(planner)
    handle.planner = planner
