"""What a trace leaves in the caches of functions that the layer calls: fake tensors.

BEiT's layers, for one, look up relative positions in a ``functools.lru_cache``. Where a trace is the first to call such
a function, its result would stand there for good.
"""

from __future__ import annotations

import functools
import gc
import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any

from torch._subclasses.fake_tensor import FakeTensor

from .nested import instances_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

_CACHED = functools._lru_cache_wrapper


def forget_fake_results(layer: nn.Module) -> None:
    """Empty the caches that hold a fake tensor, of functions in the classes of ``layer`` and in their modules.

    Such a function refers to its results, or to a dict of them where it has no bound (Modules/_functoolsmodule.c).
    """
    for cached in set(_cached_functions(layer)):
        if any(True for _ in instances_in(FakeTensor, gc.get_referents(cached))):
            cached.cache_clear()


def _cached_functions(layer: nn.Module) -> Iterator[Any]:
    classes = {base for module in layer.modules() for base in type(module).__mro__}
    files = {name: sys.modules.get(name) for name in {base.__module__ for base in classes}}
    for name, owner in (*((base.__module__, base) for base in classes), *files.items()):
        if owner is not None and name.partition(".")[0] not in ("torch", "builtins"):
            for value in list(vars(owner).values()):
                yield from _inside(value)


def _inside(value: Any) -> Iterator[Any]:
    """``value`` where it is such a function, or the ones that it stands for: transformers wraps them once more."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if isinstance(value, _CACHED):
        yield value
    elif isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:  # it is not filled yet
                continue
            if isinstance(content, _CACHED):
                yield content
