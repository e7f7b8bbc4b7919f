"""Static state of a training run: what stays in memory whatever the activations do, counted from the tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ...compat.wrappers import local_shard
from ...engine.untraced.saved_counter import storages
from .optimizers import rule_for, state_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True)
class StaticState:
    """Bytes of a model in training on this rank.

    ``parameters`` and ``buffers`` exist (each storage once: tied weights, packed quantised weights with their scales);
    ``gradients`` and ``optimizer`` are their full size; ``gradients_now`` and ``optimizer_now`` are what of them exists
    already. ``optimizer_known`` is False when the optimizer's state had to be guessed.
    """

    parameters: int
    buffers: int
    gradients: int
    optimizer: int
    gradients_now: int = 0
    optimizer_now: int = 0
    optimizer_known: bool = True

    @property
    def to_come(self) -> int:
        """Bytes that are not there yet and will be from the second step on."""
        return max(0, self.gradients - self.gradients_now) + max(0, self.optimizer - self.optimizer_now)


def static_state(model: torch.nn.Module, optimizer: torch.optim.Optimizer | str | None = None) -> StaticState:
    """Count ``model``; ``optimizer`` is the optimizer itself, its class name or ``TrainingArguments.optim``.

    Sharded parameters (DTensor) count with their local shard. None means no optimizer state.
    """
    parameters = list(model.parameters())
    trainable = [p for p in parameters if p.requires_grad]
    name = optimizer_name(optimizer)
    rule = rule_for(name) if name is not None else None
    now = storage_bytes(optimizer_tensors(optimizer)) if isinstance(optimizer, torch.optim.Optimizer) else 0
    expected = sum(state_bytes(rule, local_shard(p).shape, p.element_size()) for p in trainable) if rule else 0
    return StaticState(
        parameters=storage_bytes(t for p in parameters for t in parameter_tensors(p)),
        buffers=storage_bytes(model.buffers()),
        gradients=gradient_bytes(trainable),
        optimizer=max(now, expected),
        gradients_now=storage_bytes(p.grad for p in trainable if p.grad is not None),
        optimizer_now=now,
        optimizer_known=rule is None or rule.known,
    )


def gradient_bytes(parameters: Iterable[torch.nn.Parameter]) -> int:
    """Bytes of the gradients of these parameters' local shards; a gradient has its parameter's dtype."""
    return sum(local_shard(p).numel() * p.element_size() for p in parameters if p.requires_grad)


def late_gradient_bytes(model: torch.nn.Module) -> int:
    """Bytes of the gradients that come up last in a backward: of embeddings that the loss head does not share."""
    tables = [p for m in model.modules() if isinstance(m, torch.nn.Embedding) for p in m.parameters(recurse=False)]
    others = (m for m in model.modules() if not isinstance(m, torch.nn.Embedding))
    shared = {id(p) for m in others for p in m.parameters(recurse=False)}
    return gradient_bytes({id(p): p for p in tables if id(p) not in shared}.values())


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the distinct storages behind these tensors."""
    # Not by data_ptr: on the meta device all storages have the same.
    return sum({s._cdata: s.nbytes() for t in tensors for s in storages(t)}.values())


def optimizer_name(optimizer: torch.optim.Optimizer | str | None) -> str | None:
    """The class behind accelerate's wrapper, told apart where an argument decides about its state; a name as it is."""
    if optimizer is None or isinstance(optimizer, str):
        return optimizer
    inner = getattr(optimizer, "optimizer", optimizer)
    name = type(inner).__name__
    bits = getattr(getattr(inner, "args", None), "optim_bits", None)
    if bits == 8 and "8bit" not in name.lower():
        name += "8bit"
    if getattr(inner, "is_paged", False):
        name = "paged" + name
    if name == "SGD" and any(group.get("momentum") for group in inner.param_groups):
        name = "SGDmomentum"
    return name


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """The tensors of an optimizer's state."""
    for state in optimizer.state.values():
        yield from (v for v in state.values() if isinstance(v, torch.Tensor))


def parameter_tensors(parameter: torch.Tensor) -> Iterator[torch.Tensor]:
    """A parameter, and the scales a packed (bitsandbytes) one carries."""
    yield parameter
    pending = [getattr(parameter, "quant_state", None)]
    while pending:
        state = pending.pop()
        if state is not None:
            yield from (v for v in vars(state).values() if isinstance(v, torch.Tensor))
            pending.append(getattr(state, "state2", None))
    yield from (v for n in ("CB", "SCB") if isinstance(v := getattr(parameter, n, None), torch.Tensor))
