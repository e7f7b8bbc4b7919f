"""Functions with a cache that a layer calls: a trace leaves nothing in the cache, and takes nothing from it.

BEiT's layers, for one, look up relative positions in a ``functools.lru_cache``. Where a trace is the first to call such
a function, its fake result would stand there for good, and to empty the cache would drop what a real run made.
"""

from __future__ import annotations

import functools
import sys
import threading
from contextlib import ExitStack, contextmanager
from types import CellType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from ..untraceable import UntraceableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

    from .ir import TracedOp

_CACHED = functools._lru_cache_wrapper
_ONE_AT_A_TIME = threading.RLock()
_NOT_SEARCHED = {"torch", "builtins", *sys.stdlib_module_names}


@contextmanager
def caches_of_its_own(layer: nn.Module, ops: Sequence[TracedOp]) -> Iterator[None]:
    """Inside, these functions have an empty cache of their own.

    They are those in the classes of ``layer``, in their modules, and in the modules that these name. ``ops`` is what is
    recorded. A result with random numbers is drawn once in a real run and in each forward of a trace, which is an
    UntraceableError.
    """
    made: dict[int, Callable[..., Any]] = {}
    with _ONE_AT_A_TIME, ExitStack() as stack:
        for put, found, cached in _places(layer):
            if id(cached) not in made:
                made[id(cached)] = _with_own_cache(cached, ops)
            stack.callback(put, found)
            put(type(found)(made[id(cached)]) if isinstance(found, staticmethod | classmethod) else made[id(cached)])
        yield


def cached_functions(layer: nn.Module) -> list[Any]:
    """The functions that :func:`caches_of_its_own` finds, but for those that tell which packages are there."""
    found = {id(cached): cached for _, _, cached in _places(layer)}
    return [cached for cached in found.values() if not str(cached.__module__).startswith("transformers.utils.")]


def _with_own_cache(cached: Any, ops: Sequence[TracedOp]) -> Callable[..., Any]:
    own = functools.cache(cached.__wrapped__)

    def function(*args: Any, **kwargs: Any) -> Any:
        before = len(ops)
        result = own(*args, **kwargs)
        if any(op.draw is not None or op.obstacle for op in ops[before:]):
            raise UntraceableError("a function that it calls keeps random numbers in a cache")
        return result

    return functools.update_wrapper(function, cached)


def _places(layer: nn.Module) -> Iterator[tuple[Callable[[Any], None], Any, Any]]:
    """Where such functions stand: what puts another thing there, what stands there, and the function in that."""
    classes = {base for module in layer.modules() for base in type(module).__mro__}
    classes = {base for base in classes if _is_searched(base.__module__)}
    files = {name for base in classes if (name := base.__module__) in sys.modules}
    files |= {named for name in files for value in vars(sys.modules[name]).values() if (named := _module_of(value))}
    cells: set[int] = set()
    for owner in (*classes, *(sys.modules[name] for name in files)):
        for name, found in list(vars(owner).items()):
            value = found.__func__ if isinstance(found, staticmethod | classmethod) else found
            if isinstance(value, _CACHED):
                yield functools.partial(setattr, owner, name), found, value
            elif isinstance(value, FunctionType):  # transformers wraps them once more
                for cell in value.__closure__ or ():
                    if id(cell) not in cells and isinstance(content := _content(cell), _CACHED):
                        cells.add(id(cell))
                        yield functools.partial(setattr, cell, "cell_contents"), content, content


def _is_searched(module: str) -> bool:
    return module.partition(".")[0] not in _NOT_SEARCHED


def _module_of(value: Any) -> str:
    """The module that ``value`` is, or where a function or class comes from; "" where it is not searched."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
    if not isinstance(value, ModuleType | FunctionType | _CACHED | type) or not isinstance(name, str):
        return ""
    return name if _is_searched(name) and name in sys.modules else ""


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is not filled yet
        return None
