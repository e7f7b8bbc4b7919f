"""Put the chunked loss head on an untouched model, and take it off again without a trace.

No class is patched. A pre-hook on the model notes whether this call will compute a loss in training; the output
embeddings' ``forward`` then returns deferred logits; ``model.loss_function`` (a settable property of every
``PreTrainedModel``) computes the loss of deferred logits in chunks and passes anything else on. Calls without labels,
in evaluation, without gradients, or while compiling run as ever.
"""

from __future__ import annotations

import inspect
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from .._undo import AttributeChange
from ..compat.models import output_head, set_loss_function, uses_causal_lm_loss
from ..compat.wrappers import gathers_parameters
from ..errors import ConflictError, ModelStructureError, PolicyError
from .pieces import Head, Loss, Switch

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle
    from transformers import PreTrainedModel

    from .logits import LogitBytes

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Installed:
    """What is on the model now."""

    switch: Switch
    head: Head
    loss: Loss
    hooks: tuple[RemovableHandle, ...]
    changes: tuple[AttributeChange, ...]


@dataclass(frozen=True, slots=True)
class HeadUse:
    """What a chunked head did so far: training forwards with labels, logits put off, losses computed in chunks.

    ``asked`` is how often the model called its loss function, paused or not; ``can_defer`` whether the latest such
    forward had logits that can be put off, paused or not: float16 ones cannot, nor those of sharded weights.
    ``per_logit`` is what the loss of a chunk saves of its logits, None until there was one.
    """

    forwards: int = 0
    deferred: int = 0
    losses: int = 0
    asked: int = 0
    can_defer: bool = True
    per_logit: LogitBytes | None = None


@dataclass
class HeadHandle:
    """The chunked head of a model. ``reason`` says why the head was left alone, and is None when it was not."""

    chunks: int
    reason: str | None = None
    _installed: _Installed | None = None

    @property
    def active(self) -> bool:
        """Whether the head is chunked now."""
        return self._installed is not None

    @property
    def uses(self) -> int:
        """How many losses were computed in chunks so far."""
        return self.use.losses

    @property
    def use(self) -> HeadUse:
        """Everything it did so far, to tell why :attr:`uses` stays 0."""
        found = self._installed
        if found is None:
            return HeadUse()
        head = found.head
        loss = found.loss
        return HeadUse(found.switch.forwards, head.deferred, loss.uses, loss.asked, head.can_defer, loss.per_logit)

    @property
    def paused(self) -> bool:
        """Whether :meth:`pause` is in force."""
        return self._installed is not None and self._installed.switch.paused

    def set_chunks(self, chunks: int) -> None:
        """Use this many chunks from the next forward on. Raises PolicyError unless it is positive."""
        self.chunks = _checked(chunks)
        if self._installed is not None:
            self._installed.loss.chunks = chunks
            self._installed.switch.paused = False

    def pause(self) -> None:
        """Run the head as the model does it, until :meth:`set_chunks`."""
        if self._installed is not None:
            self._installed.switch.paused = True

    def restore(self) -> None:
        """Leave the model as it was found; a second call does nothing."""
        found, self._installed = self._installed, None
        if found is None:
            return
        for hook in found.hooks:
            hook.remove()
        for change in found.changes:
            change.undo()


def install(model: torch.nn.Module, chunks: int) -> HeadHandle:
    """Compute the loss of a model in chunks of tokens.

    A head that cannot be chunked (fused or custom loss, dropout in the head) is left alone with one logged line.

    Args:
        model: A causal language model in any wrapping.
        chunks: How many chunks.

    Returns:
        The handle that takes it off again; its ``reason`` says why a head was left alone.

    Raises:
        PolicyError: ``chunks`` is below 1.
        ModelStructureError: The model has no output embeddings.
        ConflictError: Its head is chunked already.
    """
    _checked(chunks)
    owner, module = find_head(model)
    if isinstance(owner.loss_function, Loss):
        raise ConflictError(f"the loss head of {type(owner).__name__} is chunked already: restore() that handle first")
    reason = _reason_against(owner, module)
    if reason is not None:
        _log.warning("head(%d) leaves %s alone: %s", chunks, type(owner).__name__, reason)
        return HeadHandle(chunks, reason)
    names = tuple(inspect.signature(type(owner).forward).parameters)[1:]
    switch = Switch(module, names)
    head, loss = Head(module, switch), Loss(owner.loss_function, chunks)
    hooks = (
        owner.register_forward_pre_hook(switch.before, with_kwargs=True),
        owner.register_forward_hook(switch.after, always_call=True),
    )
    changes = (AttributeChange(module, "forward", head), set_loss_function(owner, loss))
    installed = _Installed(switch, head, loss, hooks, changes)
    return HeadHandle(chunks, None, installed)


def obstacle(model: torch.nn.Module) -> str | None:
    """Why :func:`install` would not chunk this model's head, or None when it would."""
    try:
        owner, head = find_head(model)
    except ModelStructureError as error:
        return str(error)
    return "it is chunked already" if isinstance(owner.loss_function, Loss) else _reason_against(owner, head)


def _checked(chunks: int) -> int:
    if chunks < 1:
        raise PolicyError(f"head({chunks}) needs at least one chunk: write head(8), say")
    return chunks


def find_head(model: torch.nn.Module) -> tuple[PreTrainedModel, torch.nn.Module]:
    """The outermost transformers model that owns output embeddings, and those. Raises ModelStructureError."""
    found = output_head(model)
    if found is not None:
        return found
    raise ModelStructureError(
        f"{type(model).__name__} has no output embeddings: head(chunks) looked for a transformers model whose "
        "get_output_embeddings() is a module (an lm_head); drop head(chunks) from the policy"
    )


def _reason_against(model: PreTrainedModel, head: torch.nn.Module) -> str | None:
    """Why this head is not to be chunked, or None."""
    forward = inspect.unwrap(model.forward)
    if (getattr(forward, "__module__", None) or "").startswith("liger_kernel"):
        return "Liger's fused loss computes no logits to begin with"
    if not uses_causal_lm_loss(model):
        name = getattr(model.loss_function, "__name__", type(model.loss_function).__name__)
        return f"its loss is {name}, not the token-wise cross-entropy of causal language models"
    if any(isinstance(m, torch.nn.Dropout) and m.p > 0 for m in head.modules()):
        return "its head has dropout, which chunks would draw in another order"
    if any(gathers_parameters(m) for m in head.modules()):
        return "its head is an FSDP unit of its own, whose weights are gone before the loss"
    return None
