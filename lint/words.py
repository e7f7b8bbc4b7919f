"""Looking for triggers in a text."""

from __future__ import annotations

import re

#: `from torch.utils import checkpoint`, among other names, in parentheses or on continued lines.
_IMPORTS_CHECKPOINT = re.compile(r"utils[ \t]+import[ \t]*(?:\([^)]*|(?:\\\r?\n|[^\n])*?)\bcheckpoint\b")


class Words:
    """What stands in one text; each word is looked for once, for all triggers."""

    __slots__ = ("_known", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._known: dict[str, bool] = {}

    def have(self, trigger: str | tuple[str, ...]) -> bool:
        """Whether the text has ``trigger``, or all of its parts."""
        known = self._known
        for word in (trigger,) if isinstance(trigger, str) else trigger:
            found = known.get(word)
            if found is None:
                found = known[word] = self._has(word)
            if not found:
                return False
        return True

    def _has(self, word: str) -> bool:
        # An import of the module `checkpoint` from a package `utils` counts as its dotted name.
        is_spelled_out = word == "utils.checkpoint" and _IMPORTS_CHECKPOINT.search(self._text) is not None
        return word in self._text or is_spelled_out
