"""Weights that autocast casts inside a layer live as long as the layer needs them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def uncached_casts() -> Iterator[None]:
    """Autocast's cache is off inside.

    It keeps the cast of every float32 weight until autocast ends (at::autocast::cached_cast in
    aten/src/ATen/autocast_mode.cpp): the whole model once more in half precision, whatever is recomputed. A layer casts
    each weight once a forward, so the cache saves it nothing; what was traced was traced without it.
    """
    cached = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(cached)
