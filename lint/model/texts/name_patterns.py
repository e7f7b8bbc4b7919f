"""A name that a regular expression asks for, where it is one of a few and a checkpoint wrapper would be in its way."""

from __future__ import annotations

import re

_WRAPPER = "_checkpoint_wrapped_module."
#: A number of a layer.
_NUMBER = re.compile(r"(?:\\d|\[0-9\])(?:[+*]\??|\{\d+(?:,\d*)?\})?")
#: One of a few digits: `[0-3]`.
_DIGIT = re.compile(r"\[(\d)[\d-]*\]")
_LETTERS = re.compile(r"\[([a-z])[a-z]*\]")
#: The innermost group, with what its names and its question mark are.
_GROUP = re.compile(r"\((?:\?:|\?P<\w+>)?([\w.|]*)\)(\?)?")
#: One part of a name, whichever; right behind the number it may be the wrapper's.
_ANY = re.compile(r"(?:\\w|\[a-z_]|\[\^\.\]|\[\^\\\.\]|\[a-zA-Z_]|\[\\w_?\])\+\??")
_INSIDE = re.compile(r"((?:^|\.)[a-z_]\w*\.\d+\.)(?=[a-z])")


def name_for(pattern: str, method: str) -> str | None:
    """A name that ``re.<method>(pattern, name)`` finds, while it finds none of those that wrappers make of it.

    Returns:
        The name; None where the pattern leaves more open than numbers and alternatives.
    """
    try:
        find = getattr(re.compile(pattern), method)
    except re.error:
        return None
    name = _sample(pattern)
    if name is None or not find(name) or not _INSIDE.search(name):
        return None
    wrapped = _INSIDE.sub(lambda found: found[1] + _WRAPPER, name)
    return None if find(wrapped) or find(f"model.{wrapped}") else name


def _sample(pattern: str) -> str | None:
    """The first text that ``pattern`` stands for; None where something other than a number repeats."""
    text = pattern.removeprefix("^").removesuffix("$")
    for end in (".*?", ".*", ".+?", ".+"):
        text = text.removesuffix(end)
    text = text.removeprefix(".*")
    text = _LETTERS.sub(r"\1", _ANY.sub("anything", _DIGIT.sub(r"\1", _NUMBER.sub("0", text))))
    # A dot that is not escaped finds a dot, too.
    text = text.replace("\\.", ".").replace("[.]", ".").replace("\\b", "")
    while (found := _GROUP.search(text)) is not None:
        text = text[: found.start()] + ("" if found[2] else found[1].partition("|")[0]) + text[found.end() :]
    text = text.partition("|")[0] + ("weight" if pattern.endswith((".*", ".+", "$")) and text.endswith(".") else "")
    is_name = re.fullmatch(r"[\w.]+", text) and ".0.anything" not in text
    return text if is_name else None
