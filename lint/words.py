"""Looking for triggers in a text."""

from __future__ import annotations

import re

#: `from torch.utils import checkpoint`, among other names, in parentheses or on continued lines. Compiled on first use.
_IMPORTS_CHECKPOINT = r"utils import[ \t]*(?:\([^)]*|(?:\\\r?\n|[^\n])*?)\bcheckpoint\b"


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
        if word in self._text:
            return True
        # An import of the module `checkpoint` from a package `utils` counts as its dotted name.
        imports = word == "utils.checkpoint" and "utils import" in self._text
        return imports and re.search(_IMPORTS_CHECKPOINT, self._text) is not None
