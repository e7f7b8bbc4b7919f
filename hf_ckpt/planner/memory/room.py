"""What a model, its gradients and its optimizer take of a device, before any activation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ...compat.wrappers import is_sharded
from ..budget import DeviceMemory, PeakBudget
from ..costs.problem import Gradients
from .gathering import gathering
from .state import gradient_bytes, late_gradient_bytes, optimizer_name, static_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..budget import Budget
    from ..ranks import Ranks
    from .gathering import Gathering


def no_host_bound() -> None:
    """Nothing bounds the bytes of host memory, as nothing goes there."""


#: More bytes than any host or device has.
NO_BOUND = 1 << 62


@dataclass(frozen=True, slots=True)
class Taken:
    """``memory`` of the device without activations, and bytes of what will be there at the peak and is not yet.

    ``host`` are the bytes of host memory that offload may use; None where nothing bounds them. ``cached`` are bytes
    that the allocator will keep for other streams than the model's.
    """

    memory: DeviceMemory
    to_come: int
    host: int | None = None
    cached: int = 0

    def room(self, budget: Budget) -> int | None:
        """Bytes for activations, before any ledger is known; None when nothing says."""
        total = budget.nbytes if isinstance(budget, PeakBudget) else self.memory.total
        return None if total is None else total - self.memory.used - self.to_come


class Room:
    """Looks at what is taken, the same on all ranks that must agree.

    With ``gradients_grow`` parameter gradients are freed before every forward, so they come up while activations go.
    ``host`` tells the bytes of host memory that offload may use.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        layers: Sequence[torch.nn.Module],
        memory: Callable[[torch.device], DeviceMemory],
        *,
        optimizer: torch.optim.Optimizer | str | None,
        gradients_grow: bool,
        host: Callable[[], int | None] = no_host_bound,
    ) -> None:
        self.model = model
        self.layers = tuple(layers)
        self.memory = memory
        self.host = host
        self.optimizer = optimizer
        self.gradients_grow = gradients_grow
        self._before_forwards: DeviceMemory | None = None

    def __getstate__(self) -> dict[str, object]:
        # A copy of the model is another model: what it needs of the optimizer is its name, not a copy of its state.
        return self.__dict__ | {"optimizer": optimizer_name(self.optimizer)}

    def look(self, ranks: Ranks, *, empty: bool) -> Taken:
        """What is taken now. Unless no activation is alive (``empty``) the memory is what it was when none was."""
        if empty or self._before_forwards is None:
            self._before_forwards = self.memory(self.device)
        state = static_state(self.model, self.optimizer)
        whole = self._gathering()
        to_come = state.to_come + whole.all_along
        if self.gradients_grow:
            to_come -= max(0, state.gradients - state.gradients_now)
        host = self.host()
        numbers = [self._before_forwards.used, to_come, -NO_BOUND if host is None else -host]
        used, to_come, least = ranks.largest(numbers)
        known = None if least == -NO_BOUND else -least
        return Taken(replace(self._before_forwards, used=used), to_come, known, whole.cached)

    def empty_cache(self) -> None:
        """Give what the allocator caches back to the device. Waits for the device."""
        torch.cuda.empty_cache()

    @property
    def is_cached(self) -> bool:
        """Whether an allocator caches what the device gives; False as long as nobody looked."""
        return self._before_forwards is not None and self._before_forwards.given is not None

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return next(self.model.parameters()).device

    def layer_gradients(self) -> list[int] | None:
        """Bytes that each layer's backward leaves; None when it leaves nothing.

        They are parameter gradients, unless those are there beforehand, and what HSDP sums.
        """
        grown = [gradient_bytes(layer.parameters()) * self.gradients_grow for layer in self.layers]
        summed = self._gathering().summed or (0,) * len(grown)
        return [sum(both) for both in zip(grown, summed, strict=True)] if self.gradients_grow or any(summed) else None

    def waiting_gradients(self) -> Gradients | None:
        """Those of a backward through several forwards, where there are gradients beforehand and nothing is sharded."""
        if self.gradients_grow or any(map(is_sharded, self.model.parameters())):
            return None
        layers = tuple(gradient_bytes(layer.parameters()) for layer in self.layers)
        late = late_gradient_bytes(self.model)
        return Gradients(max(0, gradient_bytes(self.model.parameters()) - sum(layers) - late), layers, late)

    def has_gradients(self) -> bool:
        """Whether there are gradients now, to which backward will add."""
        return any(parameter.grad is not None for parameter in self.model.parameters())

    def in_backward(self) -> dict[str, int]:
        """Gradients outside the layers, and what gathering and reducing take in a layer's backward.

        Gradients of the embeddings come last, the head's before any layer's. Those that FSDP2 reduces are whole until
        all layers' are reduced.
        """
        whole = self._gathering()
        late, head = whole.late_gradients, whole.head_gradients
        if self.gradients_grow and not (late or head):
            late = late_gradient_bytes(self.model)
            in_layers = sum(gradient_bytes(layer.parameters()) for layer in self.layers)
            head = gradient_bytes(self.model.parameters()) - in_layers - late
        return {"head_gradients": head, "late_gradients": late, "gathering": whole.in_layer}

    def _gathering(self) -> Gathering:
        return gathering(self.model, self.layers, accumulates=not self.gradients_grow)
