"""Recompute a whole decoder layer, through transformers' own switch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils.checkpoint import noop_context_fn

from ..compat.kv_cache import bound_to, on_snapshots
from .region import Region, recompute

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn


class LayerRegion(Region):
    """Stands as a layer's ``_gradient_checkpointing_func``; ``context_fn`` makes it op-selective."""

    def __init__(
        self, layer: str, module: nn.Module, context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn
    ) -> None:
        super().__init__((layer,))
        self.module = module
        self.context_fn = context_fn

    def __call__(self, call: Callable[..., Any], *args: Any) -> Any:
        """``call`` is the layer's forward with its keyword arguments bound; ``args`` are its positional tensors."""
        if self.observer is not None:
            self.observer.hold(self.layers[0], [bound_to(call)])
        return recompute(self, self.module, on_snapshots(call, args), args, self.context_fn)
