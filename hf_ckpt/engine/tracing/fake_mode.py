"""Fake tensors without an address: a kernel that is launched by address on one raises, and never runs on address 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch._dynamo.config
import torch._functorch.config
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

if TYPE_CHECKING:
    from collections.abc import Callable


def static_mode(*, allow_non_fake_inputs: bool = False) -> FakeTensorMode:
    """Every dimension a number."""
    # The mode reads this setting when it is made, never again (torch/_subclasses/fake_tensor.py).
    with torch._functorch.config.patch(fake_tensor_allow_unsafe_data_ptr_access=False):
        return FakeTensorMode(allow_non_fake_inputs=allow_non_fake_inputs)


def symbolic_mode() -> FakeTensorMode:
    """Every dimension its own symbol; a size or number that depends on data is an error."""
    env = _ShapeEnv(duck_shape=False, allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
    with (
        torch._functorch.config.patch(fake_tensor_allow_unsafe_data_ptr_access=False),
        # An answer from the dispatch cache sets every symbolic size, stride and storage again, which costs more than
        # the fake kernel itself: 2.5 times as long a trace (FakeTensorMode._cached_dispatch_impl, fake_tensor.py).
        torch._dynamo.config.patch(fake_tensor_cache_enabled=False),
    ):
        return FakeTensorMode(shape_env=env)


class _ShapeEnv(ShapeEnv):
    """Answers at once that there is no FX node for a computation on sizes, of which a trace makes very many.

    Torch says so itself unless it validates guards, but logs each question and each answer
    (``_create_fx_call_function`` in torch/fx/experimental/symbolic_shapes.py).
    """

    def _create_fx_call_function(
        self, op: Callable[..., Any], args: tuple[Any, ...]
    ) -> tuple[torch.fx.Node | None, bool]:
        if self._translation_validation_enabled:
            return super()._create_fx_call_function(op, args)
        return None, False
