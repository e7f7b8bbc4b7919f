"""What autograd graphs hold: walked from their outputs, read without unpacking anything.

A node shows a saved tensor as ``_raw_saved_*``, whose ``data`` is the tensor or what a pack hook made of it, None once
a backward let go of it (torch/csrc/autograd/python_saved_variable.cpp). A frame of the traced engine is found behind
its unpack hook.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from ...engine.running.frame import Frame
from ..watch import FORWARD

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator

#: The forward of nodes that no output of the model's leads to: another model's, a loss of its own.
UNKNOWN = -1


@dataclass(slots=True)
class Held:
    """What the graph of one forward holds: tensors saved by its nodes, and the inputs of layers that replay."""

    saved: list[torch.Tensor] = field(default_factory=list)
    inputs: list[torch.Tensor] = field(default_factory=list)


class Graphs:
    """The graphs behind some tensors.

    Attributes:
        held: By the number of the forward, :data:`UNKNOWN` for what none of them made.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        roots = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
        self._nodes = _reachable(roots)
        self.held: dict[int, Held] = {}
        seen: set[int] = set()
        # The older first: a forward that was fed what an older one made leaves that one its own nodes.
        tagged = sorted((_forward_of(node), key) for key, node in self._nodes.items())
        outputs = [(forward, key) for forward, key in tagged if forward != UNKNOWN]
        for forward, key in (*outputs, (UNKNOWN, UNKNOWN)):
            below = self._nodes if forward == UNKNOWN else _reachable([self._nodes[key]], seen)
            for other, node in below.items():
                if other not in seen:
                    seen.add(other)
                    _add_to(self.held.setdefault(forward, Held()), node)

    def forwards_behind(self, tensor: torch.Tensor) -> set[int]:
        """The forwards whose outputs ``tensor`` was made from."""
        if tensor.grad_fn is None:
            return set()
        return {_forward_of(node) for node in _reachable([tensor.grad_fn]).values()} - {UNKNOWN}


def _forward_of(node: Any) -> int:
    return int(node.metadata.get(FORWARD, UNKNOWN))


def _reachable(roots: Iterable[Any], stop: set[int] | None = None) -> dict[int, Any]:
    """Nodes by id, those in ``stop`` and what is behind them left out; kept alive, for an id to mean one node."""
    found: dict[int, Any] = {}
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if id(node) not in found and (stop is None or id(node) not in stop):
            found[id(node)] = node
            waiting += [below for below, _ in node.next_functions if below is not None]
    return found


def _add_to(held: Held, node: Any) -> None:
    for saved in _saved_by(node):
        held.saved += _tensors_in(getattr(saved, "data", None))
        frame = getattr(getattr(saved, "unpack_hook", None), "__self__", None)
        if isinstance(frame, Frame):
            held.inputs += frame.held_inputs()
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        held.saved += [value for value in vars(node).values() if isinstance(value, torch.Tensor)]


def _saved_by(node: Any) -> Iterator[Any]:
    kind: Any = type(node)
    for name in _raw_names(kind):
        try:
            value = getattr(node, name)
        except RuntimeError:  # a backward freed it
            continue
        yield from value if isinstance(value, tuple | list) else (value,)


@lru_cache(maxsize=1024)
def _raw_names(kind: Hashable) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))


def _tensors_in(packed: Any) -> list[torch.Tensor]:
    """The tensors in what a pack hook made, where they stand open."""
    if isinstance(packed, torch.Tensor):
        return [packed]
    if isinstance(packed, tuple | list):
        return [tensor for part in packed for tensor in _tensors_in(part)]
    return []
