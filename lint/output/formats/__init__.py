"""Output formats, one file each: a module here with ``render(report) -> str`` is a value of ``--output-format``."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..report import Report

DEFAULT_FORMAT = "full"


def formats() -> tuple[str, ...]:
    """The names of all formats."""
    files = sorted(os.listdir(__path__[0]))
    return tuple(name[:-3].replace("_", "-") for name in files if name.endswith(".py") and name[0] != "_")


def render(report: Report, output_format: str, color: bool = False) -> str:
    """``report`` in the format of that name, without a final newline.

    Args:
        report: The findings and what failed.
        output_format: Name of the format.
        color: Whether to color it; only `full` and `concise` do.
    """
    module = import_module(f".{output_format.replace('-', '_')}", __name__)
    rendered = module.render(report, color) if getattr(module, "COLORED", False) else module.render(report)
    return str(rendered)
