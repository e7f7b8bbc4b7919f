"""Runs the ops that CUDA runs, while a model is traced on fake CPU tensors.

Composite functions choose their ops by the device of their arguments, and a build of torch without CUDA has no tensor
on it, not even a fake one. So the choice is made here, before torch makes it; everything below works on metadata and
is the same on every device. What a kernel saves for its backward is written in torch's derivatives.yaml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F  # noqa: N812 (the name every torch user reads)
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from .attention import MASK_ALIGNMENT, AttentionCall, Kernel, is_aligned, kernel_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_aten = torch.ops.aten
#: What autocast computes in float32 on CUDA and not on a CPU (AT_FORALL_FP32 in torch/aten/src/ATen/autocast_mode.h),
#: as far as layers of transformers call it.
_WIDENED = frozenset(
    {"cumsum", "cumprod", "exp", "group_norm", "layer_norm", "log", "log_softmax", "norm", "pow", "prod", "reciprocal",
     "rsqrt", "softmax", "softplus", "sum"}
)  # fmt: skip


class CudaOps(TorchFunctionMode):
    """While this mode is on, attention and dropout run as on a card of ``capability``.

    ``chosen`` collects the attention kernels that were taken.
    """

    def __init__(self, capability: tuple[int, int]) -> None:
        super().__init__()
        self.capability = capability
        self.chosen: dict[Kernel, None] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run ``func``, or what stands for it on the card."""
        kwargs = kwargs or {}
        if torch.is_autocast_enabled("cpu") and getattr(func, "__name__", "") in _WIDENED:
            args, kwargs = tree_map_only(torch.Tensor, _widened, (args, dict(kwargs)))
        if func is F.scaled_dot_product_attention:
            return self._attention(*args, **kwargs)
        if func is F.dropout:
            return _dropout(*args, **kwargs)
        return func(*args, **kwargs)

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        query, key, value = map(narrowed, (query, key, value))
        call = AttentionCall(
            dtype=str(query.dtype).removeprefix("torch."),
            width=query.shape[-1],
            value_width=value.shape[-1],
            masked=attn_mask is not None,
            learned=attn_mask is not None and attn_mask.requires_grad,
            grouped=query.shape[-3] != key.shape[-3],
            dropout=dropout_p > 0,
            trains=any(tensor.requires_grad for tensor in (query, key, value)),
        )
        kernel = kernel_for(self.capability, call)
        self.chosen[kernel] = None
        mask = None if attn_mask is None else _additive(attn_mask, query.dtype)
        match kernel:
            case Kernel.FLASH:
                return flash(query, key, value, dropout_p, is_causal=is_causal, scale=scale)
            case Kernel.CUDNN:
                out = _aten._scaled_dot_product_cudnn_attention(
                    query, key, value, mask, True, dropout_p, is_causal, False, scale=scale
                )
            case Kernel.EFFICIENT:
                out = _aten._scaled_dot_product_efficient_attention(
                    query, key, value, _expanded(mask, query, key), True, dropout_p, is_causal, scale=scale
                )
            case Kernel.MATH:
                out = _aten._scaled_dot_product_attention_math(
                    query, key, value, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
                )
        result: torch.Tensor = out[0]
        return result


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def narrowed(tensor: torch.Tensor) -> torch.Tensor:
    """An input of attention, which autocast computes in its own type."""
    return tensor.to(torch.get_autocast_dtype("cpu")) if torch.is_autocast_enabled("cpu") else tensor


def flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout: float = 0.0,
    *,
    is_causal: bool,
    scale: float | None,
) -> torch.Tensor:
    """torch's flash attention; heads whose width is no multiple of 8 are padded, as its caller does."""
    width = query.shape[-1]
    if width % 8:
        query, key, value = (F.pad(tensor, (0, 8 - width % 8)) for tensor in (query, key, value))
    scale = width**-0.5 if scale is None else scale
    out = _aten._scaled_dot_product_flash_attention(query, key, value, dropout, is_causal, False, scale=scale)[0]
    result: torch.Tensor = out[..., :width] if width % 8 else out
    return result


def _additive(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A mask of booleans becomes one of numbers (convert_boolean_attn_mask in attention.cpp)."""
    if mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(mask.logical_not(), float("-inf"))


def _expanded(mask: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor | None:
    """The mask as the efficient kernel takes it: rows aligned (pad_bias in attention.cpp), a view for every head."""
    if mask is None:
        return None
    if not is_aligned(mask.stride()):
        length = mask.shape[-1]
        mask = F.pad(mask, (0, MASK_ALIGNMENT - length % MASK_ALIGNMENT))[..., :length]
    return mask.expand(query.shape[0], query.shape[1], query.shape[-2], key.shape[-2])


def _dropout(input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
    """Dropout on CUDA is one kernel that keeps a mask of booleans (is_fused_kernel_acceptable in Dropout.cpp)."""
    if inplace or not training or not 0 < p < 1:
        return F.dropout(input, p, training, inplace)
    return torch.native_dropout(input, p, True)[0]
