"""Where the page of a rule is: its file in the repository."""

from __future__ import annotations

import os
from functools import cache

from ...pages import in_repository
from ..prefilter.rule_files import rule_files

#: Of the tool itself.
README = "lint/README.md"
_LINT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def page_url(code: str) -> str | None:
    """The page of the rule ``code``; None for a code that is no rule."""
    path = _paths().get(code)
    return None if path is None else in_repository(f"lint/{path}")


def page_file(code: str) -> str | None:
    """The installed file that holds the page of the rule ``code``: what an editor can open."""
    path = _paths().get(code)
    return None if path is None else os.path.join(_LINT, *path.split("/"))


@cache
def _paths() -> dict[str, str]:
    """By code: the file of its page below ``lint``."""
    tool = sorted(file for file in os.listdir(os.path.join(_LINT, "tool_rules")) if file.startswith("ckpt"))
    files = [*(f"rules/{file}" for file in rule_files()), *(f"tool_rules/{file}" for file in tool)]
    return {os.path.basename(file)[: len("ckpt101")].upper(): file for file in files if file.endswith(".py")}
