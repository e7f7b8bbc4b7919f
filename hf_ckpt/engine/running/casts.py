"""Weights that autocast casts inside a layer live as long as the layer needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from types import TracebackType


class UncachedCasts:
    """Autocast's cache is off inside.

    It keeps the cast of every float32 weight until autocast ends (at::autocast::cached_cast in
    aten/src/ATen/autocast_mode.cpp): the whole model once more in half precision, whatever is recomputed. A layer casts
    each weight once a forward, so the cache saves it nothing; what was traced was traced without it.
    """

    # A class because a generator's context costs four times as much, and every layer of every step opens one.
    __slots__ = ("_cached",)

    def __enter__(self) -> None:
        self._cached = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        torch.set_autocast_cache_enabled(self._cached)
