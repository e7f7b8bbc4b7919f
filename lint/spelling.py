"""The text that triggers are looked for in."""

from __future__ import annotations

import re

#: `from torch.utils import checkpoint`, among other names, in parentheses or on continued lines.
_IMPORTS_CHECKPOINT = re.compile(r"utils[ \t]+import[ \t]*(?:\([^)]*|(?:\\\r?\n|[^\n])*?)\bcheckpoint\b")


def spelled_out(text: str) -> str:
    """``text`` and, when it imports the module `checkpoint` from a package `utils`, the dotted name of that."""
    if "utils.checkpoint" in text or not _IMPORTS_CHECKPOINT.search(text):
        return text
    return f"{text}\nutils.checkpoint"
