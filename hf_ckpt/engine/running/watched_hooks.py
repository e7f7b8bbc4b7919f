"""Hooks of other people inside a layer: run once, in the forward, and watched, because a trace knows nothing of them.

A hook that only looks is no obstacle: the forward runs it, and a rebuild runs the layer's ops without it. One that
hands on another tensor, writes into one or replaces a weight changes what the layer computes, which a trace would miss.
What a hook saves for a backward of its own is its own business: it is kept, and is none of the layer's saved tensors.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.utils._pytree import tree_iter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn

    from ..layer.binding import Hooked
    from ..layer.slots import Slot

    #: Tensors that a hook is shown, with their versions; held, so that no other one gets their identity.
    Shown: TypeAlias = list[tuple[torch.Tensor, int]]


@dataclass(slots=True)
class HookWatch:
    """Watches the hooks of ``modules`` during one call of a layer; ``changed`` is told what one of them changed."""

    modules: Sequence[Hooked]
    slots: Sequence[Slot]
    changed: Callable[[str], None]
    #: How many of the modules were called.
    called: int = 0
    _own: list[ExitStack] = field(default_factory=list)

    def run(self, call: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """``call(*args)``, the layer's forward."""
        weights = [slot.fetch() for slot in self.slots]
        with ExitStack() as stack:
            stack.callback(self._close_all)
            for hooked in self.modules:
                self._surround(hooked, stack)
            output = call(*args)
        for slot, weight in zip(self.slots, weights, strict=True):
            if slot.fetch() is not weight:
                self.changed(f"a hook replaces {slot.path}")
                break
        return output

    def _surround(self, hooked: Hooked, stack: ExitStack) -> None:
        """Stand first and last among the hooks before and after a module's forward."""
        module, told = hooked.module, hooked.what
        shown: list[Shown] = []
        met: list[None] = []

        def first(values: Any) -> None:
            if not met:
                met.append(None)
                self.called += 1
            shown.append(_shown(values))
            self._open()

        def last(values: Any) -> None:
            self._close()
            before = shown.pop() if shown else []
            if not _same(before, values):
                self.changed(told)

        for handle in (
            module.register_forward_pre_hook(_before(first), with_kwargs=True, prepend=True),
            module.register_forward_pre_hook(_before(last), with_kwargs=True),
            module.register_forward_hook(_after(first), prepend=True),
            module.register_forward_hook(_after(last)),
        ):
            stack.callback(handle.remove)

    def _open(self) -> None:
        """What is saved from here on is the hooks', and is kept."""
        own = ExitStack()
        own.enter_context(torch.autograd.graph.saved_tensors_hooks(_kept, _itself))
        self._own.append(own)

    def _close(self) -> None:
        """The hooks are over."""
        if self._own:
            self._own.pop().close()

    def _close_all(self) -> None:
        """The call is over, perhaps because a hook raised."""
        while self._own:
            self._close()


def _before(look: Callable[[Any], None]) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
        look((args, kwargs))

    return hook


def _after(look: Callable[[Any], None]) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        look((args, output))

    return hook


def _shown(values: Any) -> Shown:
    return [(value, value._version) for value in tree_iter(values) if isinstance(value, torch.Tensor)]


def _same(before: Shown, values: Any) -> bool:
    now = [value for value in tree_iter(values) if isinstance(value, torch.Tensor)]
    return len(before) == len(now) and all(
        tensor is value and version == value._version for (tensor, version), value in zip(before, now, strict=True)
    )


def _kept(tensor: torch.Tensor) -> torch.Tensor:
    # An output packed as itself would be a reference cycle.
    return tensor if tensor.is_leaf else tensor.detach()


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
