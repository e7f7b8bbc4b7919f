"""Plain data, as `json.loads` gives it, as values of the program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..values import UNKNOWN, Const, Dict, Seq, Value

if TYPE_CHECKING:
    import ast

    from ..values import Place


def read_text(text: Const, place: Place) -> Value:
    """What ``text`` says, where that is JSON, which is YAML too."""
    written = text.value if isinstance(text.value, str) else ""
    if not written.lstrip().startswith(("{", "[")):
        return UNKNOWN
    try:
        return value_of(json_data(written), text.node, place)
    except (ValueError, RecursionError):
        return UNKNOWN


def json_data(text: str) -> object:
    """What ``text`` says as JSON.

    Raises:
        ValueError: It is none.
    """
    import json  # start-up: few files have any

    return json.loads(text)


def value_of(found: object, node: ast.AST | None, place: Place) -> Value:
    """Plain data as a value: what `json.loads` gives."""
    match found:
        case dict():
            texts = {key: item for key, item in found.items() if isinstance(key, str)}
            items = {key: value_of(item, node, place) for key, item in texts.items()}
            return Dict(items, len(texts) < len(found), node, place)
        case list() | tuple():
            kind = type(found).__name__
            return Seq(kind, [value_of(item, node, place) for item in found], False, node, place)
        case None | bool() | int() | float() | str():
            return Const(found, node)
    return UNKNOWN
