"""Where the rules are, for those who need no rule loaded."""

from __future__ import annotations

import os
from functools import cache


@cache
def rule_files() -> tuple[str, ...]:
    """The names of the files in ``rules/`` that are rules, sorted."""
    files = os.listdir(os.path.join(os.path.dirname(os.path.dirname(__file__)), "rules"))
    return tuple(sorted(file for file in files if file.endswith(".py") and file[0] != "_"))
