"""Public names that load on first use (PEP 562), so that importing a package costs nothing and needs no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_RUNTIME = frozenset({"torch", "transformers", "accelerate", "peft", "numpy", "scipy"})


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A module-level ``__getattr__`` for ``package``: public name -> the submodule it lives in.

    Raises MissingExtraError, with the command to run, when the runtime's packages are not installed.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(homes[name], package), name)
        except ModuleNotFoundError as error:
            missing = missing_extra(error, f"{package}.{name}")
            if missing is None:
                raise
            raise missing from error

    return load


def missing_extra(error: ModuleNotFoundError, user: str) -> MissingExtraError | None:
    """What to say when ``user`` needs a package of the runtime; None when something else is missing."""
    missing = (error.name or "").partition(".")[0]
    if missing not in _RUNTIME:
        return None
    return MissingExtraError(f"{user} needs {missing}, which is not installed: run `pip install 'hf-ckpt[train]'`")
