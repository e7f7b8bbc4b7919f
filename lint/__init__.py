"""ckpt-lint: finds activation-checkpointing mistakes in training scripts, notebooks and configs without running them.

The public face. Names load on first use (PEP 562), so that the command imports only what a file needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .analysis.result import InternalError as InternalError
    from .api import check_paths as check_paths
    from .api import check_source as check_source
    from .finding import Applicability as Applicability
    from .finding import Edit as Edit
    from .finding import Finding as Finding
    from .finding import Fix as Fix
    from .finding import Note as Note
    from .finding import Severity as Severity
    from .finding import Span as Span
    from .project.settings import Settings as Settings
    from .project.settings import SettingsError as SettingsError

_PLACES = {
    "check_source": ".api",
    "check_paths": ".api",
    "InternalError": ".analysis.result",
    "Settings": ".project.settings",
    "SettingsError": ".project.settings",
    **dict.fromkeys(("Applicability", "Edit", "Finding", "Fix", "Note", "Severity", "Span"), ".finding"),
}
__all__ = [
    "Applicability",
    "Edit",
    "Finding",
    "Fix",
    "InternalError",
    "Note",
    "Settings",
    "SettingsError",
    "Severity",
    "Span",
    "check_paths",
    "check_source",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
