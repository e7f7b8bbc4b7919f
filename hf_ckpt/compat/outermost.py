"""The forwards of a model, also those that leave out what stands around its decoder layers.

A loss of one's own may run the model without its head (in pieces, or fused with the loss), or the model in PEFT's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import nn
    from torch.utils.hooks import RemovableHandle


class OutermostForwards:
    """Calls ``before()`` and ``after(output)`` around every forward of one of these modules that runs in no other one.

    After an error ``output`` is None.

    Args:
        modules: The model first, then those inside it.
        before: Called when such a forward begins.
        after: Called when it ended.
    """

    def __init__(self, modules: Iterable[nn.Module], before: Callable[[], None], after: Callable[[Any], None]) -> None:
        self._modules = tuple(modules)
        self._before = before
        self._after = after
        self._running: nn.Module | None = None
        self._handles: list[RemovableHandle] = []

    def start(self) -> None:
        """Put the hooks on."""
        self.stop()
        for module in self._modules:
            self._handles += (
                module.register_forward_pre_hook(self._enter, prepend=True),
                module.register_forward_hook(self._leave, always_call=True),
            )

    def stop(self) -> None:
        """Take them off; calling it again does nothing."""
        self._running = None
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _enter(self, module: nn.Module, args: Any) -> None:
        if self._running is None or module is self._modules[0]:  # an interrupt may have ended the forward before
            self._running = module
            self._before()

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._running is module:
            self._running = None
            self._after(output)
