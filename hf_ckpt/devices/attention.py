"""Which kernel ``scaled_dot_product_attention`` takes on a card. Pure, no torch.

The rules of torch/aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, as far as they depend on what a training step
calls it with; torch tries the kernels in order and takes the first that can.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The efficient kernel reads a mask whose rows start at multiples of so many numbers.
MASK_ALIGNMENT = 8


class Kernel(StrEnum):
    """A backend of ``scaled_dot_product_attention``."""

    CUDNN = "cudnn"
    FLASH = "flash"
    EFFICIENT = "efficient"
    MATH = "math"


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """What the choice depends on. ``width`` is of queries and keys, ``value_width`` of values; ``grouped`` says that
    there are fewer key heads than query heads, ``learned`` that the mask needs a gradient (T5's bias by position)."""

    dtype: str
    width: int
    value_width: int
    masked: bool = False
    learned: bool = False
    grouped: bool = False
    dropout: bool = False
    trains: bool = True


_HALF = frozenset({"float16", "bfloat16"})


def kernel_for(capability: tuple[int, int], call: AttentionCall) -> Kernel:
    """The kernel that a card of this compute capability runs for ``call``."""
    if capability in ((9, 0), (10, 0)) and _cudnn_can(call):
        return Kernel.CUDNN
    if _flash_can(capability, call):
        return Kernel.FLASH
    return Kernel.EFFICIENT if _efficient_can(capability, call) else Kernel.MATH


def _cudnn_can(call: AttentionCall) -> bool:
    aligned = call.width % 8 == call.value_width % 8 == 0
    return call.dtype in _HALF and max(call.width, call.value_width) <= 256 and aligned and not call.learned


def _flash_can(capability: tuple[int, int], call: AttentionCall) -> bool:
    if call.masked or call.dtype not in _HALF or capability < (8, 0):
        return False
    if call.width != call.value_width or call.width > 256:
        return False
    small_chip = (8, 6) <= capability <= (8, 9)
    too_wide = 192 < call.width <= 224 or (call.width > 224 and call.dropout)
    return not (small_chip and call.trains and too_wide)


def _efficient_can(capability: tuple[int, int], call: AttentionCall) -> bool:
    dtypes = _HALF | {"float32"} if capability >= (8, 0) else {"float16", "float32"}
    aligned = call.width % (4 if call.dtype == "float32" else 8) == 0
    return call.dtype in dtypes and aligned and not call.grouped


def is_aligned(strides: Sequence[int]) -> bool:
    """Whether the efficient kernel takes a mask with these strides as it is; torch pads the rows of any other.

    ``aligned_tensor`` in torch/aten/src/ATen/native/transformers/attention.cpp.
    """
    *outer, last = strides
    # The rows first: where their length is open, one answer about it settles what they are stacked to.
    return all(stride % MASK_ALIGNMENT == 0 for stride in reversed(outer)) and bool(last == 1)
