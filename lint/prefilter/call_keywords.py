"""Looking for a call with a keyword: `.from_pretrained(name, gradient_checkpointing=True)`."""

from __future__ import annotations

import re

#: A string, a comment, or a bracket; compiled on first use.
_PARTS = "|".join(
    (
        *(r'"""[\s\S]*?"""', r"'''[\s\S]*?'''"),
        *(r'"(?:\\[\s\S]|[^"\\\n])*"', r"'(?:\\[\s\S]|[^'\\\n])*'"),
        *(r"#[^\n\r]*", r"[()\[\]{}]"),
    )
)


def calls_with_keyword(text: str, method: str, part: str) -> bool:
    """Whether a text may have a call of a method with a certain keyword argument.

    Where the method is handed on (`load = Model.from_pretrained`), any call may be one; a class is named in annotations
    far more often than it is handed on.

    Args:
        text: The source.
        method: What its name ends with: `.from_pretrained`, or `Config` of a class.
        part: What the keyword has in its name.
    """
    keyword = re.compile(rf"{re.escape(part)}\w*\s*=(?!=)")
    if keyword.search(text) is None:
        return False
    for match in re.finditer(rf"{re.escape(method)}\b(?:\s*(\()|(?!`))", text):
        if not match[1]:
            if method.startswith("."):
                return True
            continue
        end = _closing(text, match.end())
        if end is None or keyword.search(text, match.end(), end) is not None:
            return True
    return False


def _closing(text: str, start: int) -> int | None:
    """Where the bracket that is open at ``start`` is closed; None when nothing does."""
    depth = 1
    for match in re.compile(_PARTS).finditer(text, start):
        part = match[0]
        if part in "([{":
            depth += 1
        elif part in ")]}":
            depth -= 1
            if not depth:
                return match.start()
    return None
