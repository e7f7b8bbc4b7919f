"""Folders with one thing a file (the engine's verbs, the planner's, the doctor's causes) are found alike."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from types import ModuleType

_T = TypeVar("_T")


def one_of_each_file(folder: ModuleType, base: type[_T]) -> list[_T]:
    """An object of each file's own subclass of ``base`` that has a ``name``.

    Raises:
        TypeError: A file in ``folder`` does not define exactly one.
    """
    return [_own(f"{folder.__name__}.{info.name}", base) for info in iter_modules(folder.__path__)]


def _own(module_name: str, base: type[_T]) -> _T:
    module = import_module(module_name)
    own = (value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module_name)
    found = [value for value in own if issubclass(value, base) and hasattr(value, "name")]
    if len(found) != 1:
        raise TypeError(f"{module_name} defines {len(found)} {base.__name__}s: one is a subclass with a `name`")
    return found[0]()
