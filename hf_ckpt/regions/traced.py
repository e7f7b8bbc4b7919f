"""A decoder layer under the traced-replay engine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ..compat.kv_cache import bound_to, on_snapshots
from ..engine import Mode, TracedReplay
from .region import Region

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import nn

    from ..engine import EngineReport, Plan
    from ..policy.decision import Role


class TracedRegion(Region):
    """Stands as a layer's ``_gradient_checkpointing_func``; ``replay.plan`` may be written at any time."""

    def __init__(self, layer: str, plan: Plan, sublayers: Mapping[Role, tuple[str, ...]]) -> None:
        super().__init__((layer,))
        self.replay = TracedReplay(layer, plan, sublayers)

    def __call__(self, call: Callable[..., Any], *args: Any) -> Any:
        """``call`` is the layer's forward with its keyword arguments bound; ``args`` are its positional tensors."""
        call = on_snapshots(call, args)
        if self.observer is None:
            return self.replay(call, *args)
        self.replay.witness = self._hold
        try:
            output = self.replay(call, *args)
        finally:
            self.replay.witness = None
        if self.replay.mode is Mode.WHOLE:
            self.observer.hold(self.layers[0], [bound_to(call)])
        return output

    def start_counting(self) -> None:
        """Count from here on."""
        self._calls_before, self._replays_before = self.replay.forwards, self.replay.replays

    def stop_counting(self) -> None:
        """Fix the counters."""
        self.calls = self.replay.forwards - self._calls_before
        self.replays = self.replay.replays - self._replays_before

    def engine_report(self) -> EngineReport:
        """How the engine treats this layer."""
        return self.replay.report()

    def _hold(self, tensor: torch.Tensor) -> None:
        if self.observer is not None:
            self.observer.hold(self.layers[0], [tensor])


class TracedForwardRegion(TracedRegion):
    """The same for a layer without transformers' switch: its ``forward`` stands as the layer's instance-level one."""

    def __init__(self, layer: str, plan: Plan, sublayers: Mapping[Role, tuple[str, ...]], module: nn.Module) -> None:
        super().__init__(layer, plan, sublayers)
        self.module = module
        # Somebody else's instance-level forward (accelerate's hooks live there) stays in the chain.
        self.inner: Callable[..., Any] | None = vars(module).get("forward")

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Any arguments, as the layer's forward takes them."""
        inner = self.inner if self.inner is not None else partial(type(self.module).forward, self.module)
        call = partial(inner, **kwargs)
        if not (self.active and self.module.training and torch.is_grad_enabled()):
            return call(*args)
        return self(call, *args)
