"""Recompute one module's forward: a sublayer, or a layer without transformers' switch."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import noop_context_fn

from ..compat.kv_cache import on_snapshots
from .region import Region, recompute

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn


class ForwardRegion(Region):
    """Stands as a module's instance-level ``forward``.

    Outside training, and wherever gradients are off, it is the plain forward.
    """

    def __init__(
        self, layer: str, module: nn.Module, context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn
    ) -> None:
        super().__init__((layer,))
        self.module = module
        self.context_fn = context_fn
        # Somebody else's instance-level forward (accelerate's hooks live there) stays in the chain.
        self.inner: Callable[..., Any] | None = vars(module).get("forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Any arguments, as the module's forward takes them."""
        forward = self.inner if self.inner is not None else partial(type(self.module).forward, self.module)
        if not (self.active and self.module.training and torch.is_grad_enabled()):
            return forward(*args, **kwargs)
        call = on_snapshots(partial(forward, **kwargs), args)
        return recompute(self, self.module, call, args, self.context_fn)
