"""Weights that autocast casts inside a layer live as long as the layer needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")


def with_uncached_casts(call: Callable[..., _Result], *args: object) -> _Result:
    """``call(*args)`` while autocast's cache is off.

    It keeps the cast of every float32 weight until autocast ends (at::autocast::cached_cast in
    aten/src/ATen/autocast_mode.cpp): the whole model once more in half precision, whatever is recomputed. A layer casts
    each weight once a forward, so the cache saves it nothing; what was traced was traced without it.
    """
    # A function, because an interrupt that comes as an __exit__ begins would leave the cache off; it comes in no
    # finally before the first call there has returned. A generator's context costs every layer four times as much.
    cached = torch.is_autocast_cache_enabled()
    try:
        torch.set_autocast_cache_enabled(False)
        return call(*args)
    finally:
        torch.set_autocast_cache_enabled(cached)
