"""The forwards that are measured and observed: those of the training itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..compat.outermost import OutermostForwards
from ..engine.running.graph import is_in_backward

if TYPE_CHECKING:
    from collections.abc import Callable


class ObservedForwards(OutermostForwards):
    """Leaves out replays, and what runs inside a compiled graph."""

    def __reduce__(self) -> tuple[Callable[[], ObservedForwards], tuple[()]]:
        # A copy or a pickle of the model carries its hooks, and nobody is told of that one's forwards.
        return _of_nothing, ()

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        if not (torch.compiler.is_compiling() or is_in_backward()):
            super()._enter(module, args)

    def _leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if not (torch.compiler.is_compiling() or is_in_backward()):
            super()._leave(module, args, output)


def _of_nothing() -> ObservedForwards:
    return ObservedForwards((torch.nn.Identity(),), lambda: None, lambda output: None)
