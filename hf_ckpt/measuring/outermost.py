"""The forwards of a model, also those that leave out what stands around its decoder layers.

A loss of one's own may run the model without its head (in pieces, or fused with the loss), or the model in PEFT's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..engine.running.graph import is_in_backward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch.utils.hooks import RemovableHandle

    from ..anatomy import Anatomy


class OutermostForwards:
    """Calls ``before()`` and ``after(output)`` around every forward of one of these modules that runs in no other one.

    A replay is left out; after an error ``output`` is None.

    Args:
        modules: The model first; see :func:`around_layers`.
        before: Called when such a forward begins.
        after: Called when it ended.
    """

    def __init__(
        self, modules: Iterable[torch.nn.Module], before: Callable[[], None], after: Callable[[Any], None]
    ) -> None:
        self._modules = tuple(modules)
        self._before = before
        self._after = after
        self._running: torch.nn.Module | None = None
        self._handles: list[RemovableHandle] = []

    def __reduce__(self) -> tuple[Callable[[], OutermostForwards], tuple[()]]:
        # A copy or a pickle of the model carries its hooks, and nobody is told of that one's forwards.
        return _of_nothing, ()

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

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling() or is_in_backward():
            return
        if self._running is None or module is self._modules[0]:  # an interrupt may have ended the forward before
            self._running = module
            self._before()

    def _leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or self._running is not module or is_in_backward():
            return
        self._running = None
        self._after(output)


def _of_nothing() -> OutermostForwards:
    return OutermostForwards((torch.nn.Identity(),), lambda: None, lambda output: None)


def around_layers(model: torch.nn.Module, anatomy: Anatomy) -> Iterator[torch.nn.Module]:
    """The model, the module in it that holds all decoder layers, and so on inwards."""
    layers = {id(layer.module) for layer in anatomy.layers}
    module: torch.nn.Module | None = model
    while module is not None and id(module) not in layers:
        if not isinstance(module, torch.nn.ModuleList | torch.nn.ModuleDict):
            yield module
        module = next((child for child in module.children() if _holds(child, layers)), None)


def _holds(module: torch.nn.Module, layers: set[int]) -> bool:
    return layers <= {id(inner) for inner in module.modules()}
