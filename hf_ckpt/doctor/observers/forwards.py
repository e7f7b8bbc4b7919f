"""What the forwards of a step that are learned from ran with, and what of it was another when their backward ran.

A forward is learned from when a gradient reaches one of its outputs. Only then does a mode or an adapter matter: a
forward whose outputs are detached is never recomputed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_iter

from ...anatomy.model import around_layers
from ...compat.adapters import active_adapters
from ...measuring.observed import ObservedForwards
from ..harmless import harmless
from .switches import Switches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...anatomy import Anatomy
    from ..place import Place


@dataclass(slots=True)
class _Forward:
    """One forward: layers that slept, modes and adapters by module, buffers that it wrote."""

    sleeping: tuple[str, ...]
    put_to_sleep_at: Place | None
    modes: dict[str, bool]
    adapters: dict[str, object]
    written: tuple[str, ...]
    learned_from: bool = False


@dataclass(slots=True)
class Learned:
    """What was seen of the forwards that were learned from; names of modules and of buffers.

    Attributes:
        forwards: How many there were.
        sleeping: Decoder layers with trainable parameters that ran in eval mode.
        sleeping_at: The line that put them there, where it is one of this step.
        switched: The outermost modules whose mode was another one when backward began.
        switched_at: The line that switched one last.
        readapted: Modules whose active adapters were others when backward began.
        readapted_at: The line that switched these last.
        rewritten: Buffers that the forward wrote, and backward again.
    """

    forwards: int = 0
    sleeping: dict[str, None] = field(default_factory=dict)
    sleeping_at: Place | None = None
    switched: dict[str, None] = field(default_factory=dict)
    switched_at: Place | None = None
    readapted: dict[str, None] = field(default_factory=dict)
    readapted_at: Place | None = None
    rewritten: dict[str, None] = field(default_factory=dict)


class Forwards:
    """Observes the forwards of a model between :meth:`start` and :meth:`stop`."""

    def __init__(self, model: torch.nn.Module, anatomy: Anatomy) -> None:
        self.model = model
        self.anatomy = anatomy
        self.learned = Learned()
        self.switches = Switches()
        self._calls = ObservedForwards(around_layers(model, anatomy), self._before_forward, self._after_forward)
        self._versions: dict[str, int] = {}
        self._versions_before_backward: dict[str, int] = {}

    def start(self) -> None:
        """Observe from here on; what was seen before is forgotten."""
        self.forget()
        self.switches.start()
        self._calls.start()

    def forget(self) -> None:
        """Forget what was seen."""
        self.learned = Learned()
        self._versions_before_backward = {}

    def stop(self) -> None:
        """Observe no longer."""
        self.switches.stop()
        self._calls.stop()

    def _before_forward(self) -> None:
        self._versions = self._buffer_versions()

    def _after_forward(self, output: Any) -> None:
        if torch.is_grad_enabled():
            with harmless("look at this forward"):
                self._look(output)
            self.switches.begin_forward()

    def _look(self, output: Any) -> None:
        forward = _Forward(
            tuple(self._sleeping()),
            self.switches.eval_mode,
            {name: inner.training for name, inner in self.model.named_modules()},
            active_adapters(self.model),
            tuple(_changed(self._versions, self._buffer_versions())),
        )

        def begins(_: torch.Tensor) -> None:
            if not forward.learned_from:
                forward.learned_from = True
                with harmless("look at this backward"):
                    self._backward_begins(forward)

        for value in tree_iter(output):
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                value.register_hook(begins)  # type: ignore[no-untyped-call]

    def _sleeping(self) -> Iterator[str]:
        for layer in self.anatomy.layers:
            if not layer.module.training and any(p.requires_grad for p in layer.module.parameters()):
                yield layer.info.name

    def _backward_begins(self, forward: _Forward) -> None:
        self.learned.forwards += 1
        self._note_sleeping(forward)
        self._compare_switches(forward)
        if forward.written:
            versions = self._buffer_versions()
            for name in forward.written:
                self._versions_before_backward.setdefault(name, versions[name])
            # Writes after the backward are nobody's recompute (torch/csrc/autograd/engine.cpp: final callbacks).
            torch.autograd.Variable._execution_engine.queue_callback(self._backward_ends)

    def _note_sleeping(self, forward: _Forward) -> None:
        if forward.sleeping:
            self.learned.sleeping |= dict.fromkeys(forward.sleeping)
            self.learned.sleeping_at = forward.put_to_sleep_at

    def _compare_switches(self, forward: _Forward) -> None:
        learned, switches = self.learned, self.switches
        switched = list(_outermost(self._switched(forward)))
        if switched:
            learned.switched |= dict.fromkeys(switched)
            learned.switched_at = switches.mode
        now = active_adapters(self.model)
        readapted = [name for name, then in forward.adapters.items() if now.get(name) != then]
        if readapted:
            learned.readapted |= dict.fromkeys(readapted)
            learned.readapted_at = switches.adapter

    def _backward_ends(self) -> None:
        before, self._versions_before_backward = self._versions_before_backward, {}
        self.learned.rewritten |= dict.fromkeys(_changed(before, self._buffer_versions()))

    def _switched(self, forward: _Forward) -> list[str]:
        modules = self.model.named_modules()
        return [name for name, module in modules if forward.modes.get(name, module.training) != module.training]

    def _buffer_versions(self) -> dict[str, int]:
        return {name: buffer._version for name, buffer in self.model.named_buffers()}


def _changed(before: dict[str, int], now: dict[str, int]) -> Iterator[str]:
    return (name for name, version in before.items() if now.get(name, version) != version)


def _outermost(changed: Iterable[str]) -> Iterator[str]:
    names = set(changed)
    for name in names:
        if not any(other != name and (not other or name.startswith(f"{other}.")) for other in names):
            yield name or "the model"
