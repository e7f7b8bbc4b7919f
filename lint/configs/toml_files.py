"""Files of TOML that a script reads itself; by themselves they are no configuration that is known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ..facts.values import Const
from . import TOOL_FILES
from .scripts import existing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Seq

_READS = re.compile(r"\btom(?:llib|li|l)\.loads?\b")
_NAMED = re.compile(r"""(?:["']|\}/)([\w./-]+\.toml)["']""")


def toml_files(script: str, text: str, command: Seq | None = None, launch: str = "") -> Iterator[str]:
    """The files that a script names, or that the command of the file ``launch`` names for it."""
    if _READS.search(text) is None:
        return
    written = [(match[1], script) for match in _NAMED.finditer(text)]
    words = [str(word.value) for word in command.items if isinstance(word, Const)] if command is not None else []
    written += [(word.rpartition("=")[2], launch) for word in words if word.endswith(".toml")]
    for name, near in dict.fromkeys(written):
        path = existing(name, near) if not name.endswith(TOOL_FILES) else None
        if path is not None:
            yield path
