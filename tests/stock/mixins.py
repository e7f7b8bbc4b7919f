"""Loads the mixin of transformers' model tests, whose sibling modules are not all in its source distribution."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from pathlib import Path

_PACKAGE = "transformers_tests"


class _Absent(ModuleType):
    """A module that is not there: every name in it is an empty class."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder(MetaPathFinder, Loader):
    """The last finder: modules of the tests that nobody else found."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(fullname, self) if fullname.startswith(f"{_PACKAGE}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Absent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


def load_mixin(tests: Path) -> Any:
    """``ModelTesterMixin`` of the folder ``tests``."""
    package = ModuleType(_PACKAGE)
    package.__path__ = [str(tests)]
    sys.modules[_PACKAGE] = package
    sys.meta_path.append(_Finder())
    return importlib.import_module(f"{_PACKAGE}.test_modeling_common").ModelTesterMixin
