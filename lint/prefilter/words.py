"""Looking for triggers in a text."""

from __future__ import annotations

import re

#: A statement that imports trl, not the mention in a text or an interactive example.
TRL = "import trl"
#: What a word ends with that is the end of a dotted name, which documentation puts in backticks.
WHOLE = "\\b"
#: What stands between words of which one is enough.
ANY = "|"
#: What a word ends with that is a call with a keyword: `.from_config(checkpointing=` has one with that in its name.
KEYWORD = "="
#: What a word begins with that is a module by itself: an attribute, a text, or what an import statement names.
MODULE = "module "
#: What most triggers have in them: it is found fast, and they only stand around it.
STEM = "checkpoint"
#: Characters before and behind it that are searched; no word with it is as long.
_AROUND = 60
#: `from torch.utils import checkpoint`, among other names, in parentheses or on continued lines. Compiled on first use.
_IMPORTS_CHECKPOINT = r"utils import[ \t]*(?:\([^)]*|(?:\\\r?\n|[^\n])*?)\bcheckpoint\b"


class Words:
    """What stands in one text; each word is looked for once, for all triggers."""

    __slots__ = ("_around", "_known", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._around = _around_stem(text)
        self._known: dict[str, bool] = {}

    def contains(self, trigger: str | tuple[str, ...]) -> bool:
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
        if word in (self._around if STEM in word else self._text):
            return True
        if word.endswith(WHOLE):
            return _has_whole(self._text, word.removesuffix(WHOLE))
        if ANY in word:
            return any(one in self._text for one in word.split(ANY))
        if word == TRL:
            return _imports(self._text, "trl")
        if "(" in word and word.endswith(KEYWORD):
            return _calls_with_keyword(self._text, *word.removesuffix(KEYWORD).split("("))
        if word.startswith(MODULE):
            return _names_module(self._text, word.removeprefix(MODULE))
        # An import of the module `checkpoint` from a package `utils` counts as its dotted name.
        imports = word == "utils.checkpoint" and "utils import" in self._text
        return imports and re.search(_IMPORTS_CHECKPOINT, self._text) is not None


def _around_stem(text: str) -> str:
    """What stands around each place of the stem, each on a line of its own."""
    found, start = [], text.find(STEM)
    while start >= 0:
        found.append(text[max(start - _AROUND, 0) : start + len(STEM) + _AROUND])
        start = text.find(STEM, start + len(STEM))
    return "\n".join(found)


def _calls_with_keyword(text: str, method: str, part: str) -> bool:
    if method not in text or part not in text:
        return False
    from .call_keywords import calls_with_keyword  # start-up: few files have both

    return calls_with_keyword(text, method, part)


def _names_module(text: str, name: str) -> bool:
    start = text.find(name)
    while start >= 0:
        if _may_be_module(text, start, start + len(name)):
            return True
        start = text.find(name, start + 1)
    return name in text and "import *" in text


def _may_be_module(text: str, start: int, end: int) -> bool:
    """Whether the name there may be one of a module: `x.name`, `getattr(x, "name")`, or what an import binds."""
    if any(beside.isalnum() or beside == "_" for beside in (text[start - 1 : start], text[end : end + 1])):
        return False
    line = text.rfind("\n", 0, start) + 1
    if text[line:start].rstrip().endswith((".", "'", '"')) or _may_import(text, line, start):
        return True
    bracket = text.rfind("(", 0, start)
    is_open = bracket >= 0 and text.find(")", bracket, start) < 0
    return is_open and text[max(bracket - 20, 0) : bracket].rstrip().endswith("import")


def _has_whole(text: str, word: str) -> bool:
    """Whether ``word`` stands in ``text`` where no dotted name goes on and no backtick closes one."""
    end = text.find(word) + len(word)
    while end >= len(word):
        if end == len(text) or not (text[end].isalnum() or text[end] in "_.`"):
            return True
        end = text.find(word, end) + len(word)
    return False


def _imports(text: str, library: str) -> bool:
    """Whether a line may be a statement that imports ``library``; a line of an interactive example is none."""
    position = text.find(library)
    while position >= 0:
        start = max(text.rfind("\n", 0, position), text.rfind("\r", 0, position)) + 1
        if _may_import(text, start, position):
            return True
        position = text.find(library, position + 1)
    return False


def _may_import(text: str, start: int, end: int) -> bool:
    """Whether an import statement can have the name at ``end`` on the line from ``start``."""
    if text.find("import", start, end) < 0 and text.find("from", start, end) < 0:
        # `import torch, \` may stand before.
        return text[max(start - 3, 0) : start].rstrip("\r\n").endswith("\\")
    return not text[start:end].lstrip().startswith(">>>")
