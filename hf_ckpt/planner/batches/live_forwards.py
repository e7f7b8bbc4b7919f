"""The forwards whose activations still wait for their backward.

Contrastive losses, R-Drop and accumulated losses run several forwards before one backward: all that these hold is alive
together. A forward waits from its end until backward reaches its output, or until nobody can call backward any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import ref

import torch
from torch.utils._pytree import tree_iter

from ...engine.running.graph import graph_is_retained

if TYPE_CHECKING:
    from weakref import ReferenceType


@dataclass(eq=False)
class Waiting:
    """A forward before its backward: how large its batch is (:attr:`BatchSize.load`), and the bytes it holds.

    The graph of its outputs owns it, by a hook on the nodes that made them, and nobody else does.
    """

    load: int
    held: int
    done: bool = False


class LiveForwards:
    """Every forward that was added and still waits."""

    def __init__(self) -> None:
        self._added: list[ReferenceType[Waiting]] = []
        #: Whether a backward came, so that it is known how many forwards go before one.
        self.backward_seen = False

    def add(self, output: Any, load: int, held: int) -> None:
        """A forward ended with ``output``; without gradients in it there is nothing to wait for."""
        waiting = Waiting(load, held)

        def reached(*_: Any) -> None:
            self.backward_seen = True
            waiting.done = not graph_is_retained()

        # A node owns its pre-hooks (torch/csrc/autograd/function.h), so ``waiting`` lives as long as the graph does.
        for value in tree_iter(output):
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                value.grad_fn.register_prehook(reached)
        self._added.append(ref(waiting))

    def waiting(self) -> list[Waiting]:
        """Those that wait, the oldest first."""
        self._added = [r for r in self._added if (found := r()) is not None and not found.done]
        return [found for r in self._added if (found := r()) is not None]

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy of the model has no graphs.
        return LiveForwards, ()
