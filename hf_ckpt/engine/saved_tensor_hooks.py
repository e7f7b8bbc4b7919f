"""The saved-tensor hooks that are in force, for what is held until backward beside autograd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    #: What is called with a tensor that is saved, and with what that returned when the tensor is needed.
    Hooks: TypeAlias = tuple[Callable[[torch.Tensor], Any], Callable[[Any], torch.Tensor]]


def hooks_in_force() -> Hooks:
    """The innermost saved-tensor hooks, which any put over them hide; two that keep a tensor as it is without any."""
    # Only the innermost pair of hooks sees a saved tensor (PyDefaultSavedVariableHooks, in
    # torch/csrc/autograd/python_saved_variable_hooks.cpp).
    below = torch._C._autograd._top_saved_tensors_default_hooks(False)
    return below if below is not None else (_kept, _itself)


def _kept(tensor: torch.Tensor) -> torch.Tensor:
    # An output packed as itself would be a reference cycle; autograd gives what unpack returns its history again.
    return tensor if tensor.is_leaf else tensor.detach()


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
