"""What a model, its gradients and its optimizer take of a device, before any activation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from ...compat.wrappers import gathers_parameters, is_sharded
from ..budget import DeviceMemory, PeakBudget
from ..costs.problem import Gradients
from .gathering import Gathering, gathering
from .state import gradient_bytes, late_gradient_bytes, optimizer_name, static_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..budget import Budget
    from ..ranks import Ranks


def no_host_bound() -> None:
    """Nothing bounds the bytes of host memory, as nothing goes there."""


#: More bytes than any host or device has.
NO_BOUND = 1 << 62


#: Where nothing is sharded by FSDP2.
NOTHING_WHOLE = Gathering()


@dataclass(frozen=True, slots=True)
class Taken:
    """``memory`` of the device without activations, and bytes of what will be there at the peak and is not yet.

    ``host`` are the bytes of host memory that offload may use; None where nothing bounds them. ``whole`` is what
    FSDP2 gathers.
    """

    memory: DeviceMemory
    to_come: int
    host: int | None = None
    whole: Gathering = NOTHING_WHOLE

    def room(self, budget: Budget) -> int | None:
        """Bytes for activations, before any ledger is known; None when nothing says."""
        total = budget.nbytes if isinstance(budget, PeakBudget) else self.memory.total
        return None if total is None else total - self.memory.used - self.to_come


@dataclass(frozen=True, slots=True)
class Backward:
    """Bytes that come and go in a backward.

    Attributes:
        gradients: What it leaves: parameter gradients, unless those are there beforehand, and what HSDP sums.
        gathering: What every layer's backward takes to gather weights and to reduce gradients.
        freed: What each layer's gives back of weights that stayed whole; empty where none did.
        waiting: The gradients that wait in a backward through several forwards, where there are gradients beforehand;
            None where there are none, or something is sharded.
    """

    gradients: Gradients
    gathering: int
    freed: tuple[int, ...]
    waiting: Gradients | None


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
        whole = gathering(self.model, self.layers, accumulates=not self.gradients_grow)
        to_come = state.to_come + whole.all_along
        if self.gradients_grow:
            to_come -= max(0, state.gradients - state.gradients_now)
        host = self.host()
        numbers = [self._before_forwards.used, to_come, -NO_BOUND if host is None else -host]
        used, to_come, least = ranks.largest(numbers)
        known = None if least == -NO_BOUND else -least
        return Taken(replace(self._before_forwards, used=used), to_come, known, whole)

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

    def has_gradients(self) -> bool:
        """Whether there are gradients now, to which backward will add."""
        return any(parameter.grad is not None for parameter in self.model.parameters())

    def in_backward(self, whole: Gathering) -> Backward:
        """What comes up in backward, where FSDP2 gathers ``whole``.

        Gradients of the embeddings come last, the head's before any layer's. Those that FSDP2 reduces are whole until
        all layers' are reduced.
        """
        own = self._gradients()
        none = (0,) * len(self.layers)
        grown = own.layers if self.gradients_grow else none
        layers = tuple(map(sum, zip(grown, whole.summed or none, strict=True)))
        head, late = whole.head_gradients, whole.late_gradients
        if self.gradients_grow and not (late or head):
            head, late = own.head, own.late
        waits = not self.gradients_grow and not self._is_spread()
        return Backward(Gradients(head, layers, late), whole.in_layer, whole.freed, own if waits else None)

    def _gradients(self) -> Gradients:
        """Bytes of the gradients of this rank's parameters."""
        layers = tuple(gradient_bytes(layer.parameters()) for layer in self.layers)
        late = late_gradient_bytes(self.model)
        return Gradients(max(0, gradient_bytes(self.model.parameters()) - sum(layers) - late), layers, late)

    def _is_spread(self) -> bool:
        """Whether gradients of several forwards do not come as one tensor a parameter: it is sharded, by FSDP1 too."""
        return any(map(gathers_parameters, self.model.modules())) or any(map(is_sharded, self.model.parameters()))
