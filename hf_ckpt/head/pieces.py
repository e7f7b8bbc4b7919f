"""The three instance-level pieces of an installed head: a switch in the model's hooks, its head's forward, its loss.

They are objects without closures, so that a ``deepcopy`` of the model has its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .deferred import DeferredLogits, Recipe, autocast_state
from .logits import logit_bytes
from .loss import chunked_loss

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .logits import LogitBytes


class Switch:
    """Whether the running forward computes a loss in training; its methods are the model's forward hooks.

    ``whole`` are the forms of the head's weights in such a forward, ``paused`` or not.
    """

    def __init__(self, head: torch.nn.Module, parameters: tuple[str, ...]) -> None:
        self.head = head
        self.parameters = parameters
        self.whole: list[object] | None = None
        self.paused = False
        self.forwards = 0

    def before(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the weights' forms if this call is one to chunk; ``labels`` may be positional."""
        if getattr(module, "_is_replica", False):
            # nn.DataParallel copies instance attributes, which belong to the original: run the replica as it is.
            module.get_output_embeddings().__dict__.pop("forward", None)
            return
        labels = (dict(zip(self.parameters, args, strict=False)) | kwargs).get("labels")
        training = module.training and torch.is_grad_enabled() and not torch.compiler.is_compiling()
        wanted = labels is not None and training
        self.forwards += wanted and not self.paused
        self.whole = _forms(weights_of(self.head)) if wanted else None

    def after(self, module: torch.nn.Module, args: tuple[Any, ...], output: object) -> None:
        """Switch off, also after an exception."""
        self.whole = None

    def allows(self, weights: list[torch.Tensor]) -> bool:
        """Whether the head may be deferred: its weights are whole, here, for as long as the model's forward runs.

        A head that became an FSDP unit of its own had shards when the model's forward began: its weights are gone
        again before the loss.
        """
        plain = all(type(w) in (torch.Tensor, torch.nn.Parameter) for w in weights if w.requires_grad)
        return plain and self.whole == _forms(weights)


class Head:
    """The output embeddings' ``forward`` while installed."""

    def __init__(self, module: torch.nn.Module, switch: Switch) -> None:
        self.module = module
        self.switch = switch
        self.previous: Callable[..., torch.Tensor] | None = module.__dict__.get("forward")
        self.known: dict[object, tuple[int, torch.dtype]] = {}
        self.deferred = 0
        #: Whether the logits of the latest training forward with labels could be deferred, paused or not.
        self.can_defer = True

    def original(self, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """What ``forward`` was before."""
        if self.previous is not None:
            return self.previous(hidden, *args, **kwargs)
        logits: torch.Tensor = type(self.module).forward(self.module, hidden, *args, **kwargs)
        return logits

    def __call__(self, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Deferred logits where the switch is on and the head can be deferred, else the logits."""
        if self.switch.whole is None or type(hidden) is not torch.Tensor or args or kwargs:
            return self.original(hidden, *args, **kwargs)
        weights = weights_of(self.module)
        if self.switch.paused:
            logits = self.original(hidden)
            self.can_defer = self._allows(hidden.dtype, logits.dtype, weights)
            return logits
        width, dtype = self._result(hidden)
        self.can_defer = self._allows(hidden.dtype, dtype, weights)
        if not self.can_defer:
            return self.original(hidden)
        trained = tuple(w for w in weights if w.requires_grad)
        # An optimizer writes weights in place, which raises their versions (c10/core/TensorImpl.h).
        versions = tuple(w._version for w in trained)
        self.deferred += 1
        recipe = Recipe(self.original, trained, versions, autocast_state(hidden.device))
        return DeferredLogits(hidden, recipe, width, dtype)

    def _allows(self, hidden: torch.dtype, logits: torch.dtype, weights: list[torch.Tensor]) -> bool:
        # In float16 gradients underflow unless the loss is scaled before they are taken.
        return torch.float16 not in (hidden, logits) and self.switch.allows(weights)

    def _result(self, hidden: torch.Tensor) -> tuple[int, torch.dtype]:
        """Width and dtype of the logits, learnt from one token for every dtype and autocast state."""
        key = (hidden.dtype, autocast_state(hidden.device))
        if key not in self.known:
            sample = self.original(hidden.detach().flatten(0, -2)[:1])
            self.known[key] = (sample.shape[-1], sample.dtype)
        return self.known[key]


class Loss:
    """``model.loss_function`` while installed: deferred logits in chunks, anything else as before."""

    def __init__(self, original: Callable[..., torch.Tensor], chunks: int) -> None:
        self.original = original
        self.chunks = chunks
        self.uses = 0
        self.asked = 0
        #: What the loss of a chunk saves of its logits; None until one was computed.
        self.per_logit: LogitBytes | None = None

    def __call__(self, logits: torch.Tensor, labels: torch.Tensor | None, *args: Any, **kwargs: Any) -> torch.Tensor:
        """The loss, called as models call their loss function."""
        self.asked += 1
        if not isinstance(logits, DeferredLogits):
            return self.original(logits, labels, *args, **kwargs)
        if logits.computed is not None:
            return self.original(logits.computed, labels, *args, **kwargs)
        self.uses += 1
        return chunked_loss(self._of_a_chunk, self.chunks, logits, labels, *args, **kwargs)

    def _of_a_chunk(self, logits: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        loss = self.original(logits, *args, **kwargs)
        if self.per_logit is None:
            self.per_logit = logit_bytes(loss, logits.shape[:-1].numel(), logits.shape[-1])
        return loss


def weights_of(module: torch.nn.Module) -> list[torch.Tensor]:
    """The tensors a module computes with, each once: parameters, and what FSDP1 puts in their place as attributes."""
    return weights_in(module.modules())


def weights_in(parts: Iterable[torch.nn.Module]) -> list[torch.Tensor]:
    """The same of the modules that ``parts`` are."""
    found: dict[int, torch.Tensor] = {}
    for part in parts:
        values = (*part._parameters.values(), *vars(part).values())
        found |= {id(v): v for v in values if isinstance(v, torch.Tensor)}
    return list(found.values())


def _forms(weights: list[torch.Tensor]) -> list[object]:
    """What tells a whole weight from a shard."""
    return [(type(w), w.shape) for w in weights]
