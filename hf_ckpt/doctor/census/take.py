"""Takes the census: finds every tensor of this process on the device and says what it is for."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any

import torch

from ...compat.evaluation import gathered_predictions
from ...head.shape import head_shape
from ...planner.memory.state import optimizer_tensors, parameter_tensors, static_state
from .census import Census, Holding, Kind
from .claims import Claims
from .graphs import UNKNOWN, Graphs
from .holders import Holder, find_holders

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import FrameType, TracebackType

    from ..usage import Usage
    from ..watch import Watch


def take_census(
    watch: Watch,
    optimizer: Any,
    owners: Iterable[object],
    usage: Usage,
    error: BaseException | None = None,
    device: torch.device | None = None,
) -> Census:
    """Look at all memory of the device once; nothing on it is allocated, nothing is unpacked.

    Args:
        watch: Knows the model, and which forwards are those of the current step.
        optimizer: The optimizer, accelerate's wrapper or None.
        owners: Objects whose attributes may hold tensors (a Trainer, its callbacks).
        usage: What the device says it is used for.
        error: What ended the run; its frames hold the tensors in use.
        device: The device; None: the one that is watched.

    Returns:
        The census.
    """
    inner = getattr(optimizer, "optimizer", optimizer)
    inner = inner if isinstance(inner, torch.optim.Optimizer) else None
    claims = Claims(device or watch.device)
    _claim_state(claims, watch.model, inner)
    tensors = list(_all_tensors())
    claims.claim(Kind.OTHER_MODELS, (t for t in tensors if isinstance(t, torch.nn.Parameter)))
    graphs = Graphs(tensors)
    earlier = _claim_earlier(claims, graphs, watch)
    vocabulary = _vocabulary(watch.model)
    _claim_current(claims, graphs, vocabulary)
    frames = list(_frames(error))
    claims.claim(Kind.PREDICTIONS, gathered_predictions(frames))
    holdings = list(_holdings(claims, find_holders(owners, frames, watch.model), graphs, earlier))
    claims.claim(Kind.LOGITS, (t for t in tensors if _is_logits(t, vocabulary)))
    claims.claim(Kind.PASSING, tensors)
    found = {kind: nbytes for kind in Kind if (nbytes := claims.bytes_of.get(kind, 0))}
    found[Kind.UNSEEN] = max(0, usage.live - sum(found.values()))
    state = static_state(watch.model, inner)
    return Census(
        found,
        tuple(sorted(holdings, key=lambda held: -held.all_bytes)),
        earlier=len(earlier),
        optimizer_to_come=max(0, state.optimizer - state.optimizer_now),
        gradients_to_come=max(0, state.gradients - state.gradients_now),
    )


def _claim_state(claims: Claims, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
    parameters = list(model.parameters())
    claims.claim(Kind.WEIGHTS, (*(t for p in parameters for t in parameter_tensors(p)), *model.buffers()))
    claims.claim(Kind.GRADIENTS, (p.grad for p in parameters if p.grad is not None))
    if optimizer is not None:
        claims.claim(Kind.OPTIMIZER, optimizer_tensors(optimizer))


def _all_tensors() -> Iterator[torch.Tensor]:
    for found in gc.get_objects():
        # Not isinstance: it asks ``__class__``, which a proxy answers by loading what it stands for.
        if issubclass(type(found), torch.Tensor):
            yield found


def _claim_earlier(claims: Claims, graphs: Graphs, watch: Watch) -> dict[int, int]:
    """Count what the graphs of earlier steps still hold: bytes by the number of the forward."""
    step = watch.history.current
    first = watch.forwards if step is None else step.first_forward
    found = {
        forward: claims.claim(Kind.OTHER_GRAPHS, (*held.saved, *held.inputs))
        for forward, held in sorted(graphs.held.items())
        if forward != UNKNOWN and forward < first
    }
    return {forward: nbytes for forward, nbytes in found.items() if nbytes}


def _claim_current(claims: Claims, graphs: Graphs, vocabulary: int | None) -> None:
    """Count what the graphs of this step hold."""
    for held in graphs.held.values():
        claims.claim(Kind.LOGITS, (t for t in held.saved if _is_logits(t, vocabulary)))
        claims.claim(Kind.BOUNDARIES, held.inputs)
    for held in graphs.held.values():
        claims.claim(Kind.KEPT, held.saved)


def _holdings(claims: Claims, holders: Iterable[Holder], graphs: Graphs, earlier: dict[int, int]) -> Iterator[Holding]:
    for holder in holders:
        nbytes = claims.claim(Kind.NAMED, holder.tensors)
        behind = {forward for tensor in holder.tensors for forward in graphs.forwards_behind(tensor)}
        kept = sum(earlier.get(forward, 0) for forward in behind)
        if nbytes or kept:
            yield Holding(holder.name, len(holder.tensors), nbytes, kept, holder.place)


def _vocabulary(model: torch.nn.Module) -> int | None:
    shape = head_shape(model, 1)
    return None if shape is None else shape.vocabulary


def _is_logits(tensor: torch.Tensor, vocabulary: int | None) -> bool:
    return tensor.dim() > 1 and tensor.shape[-1] == vocabulary


def _frames(error: BaseException | None) -> Iterator[FrameType]:
    """The frames that the error went through, and those that wait above: the callers of :func:`take_census`.

    Not its own, which would hold every tensor that it found until the garbage collector comes.
    """
    trace: TracebackType | None = None if error is None else error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back
