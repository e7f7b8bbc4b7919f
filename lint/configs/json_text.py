"""JSON to nodes with places. Python's own reader decides what JSON is; this one only follows it."""

from __future__ import annotations

import json
import re

from .nodes import ConfigError, Entry, Mapping, Node, Scalar, Sequence

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


def read_json(text: str) -> Node:
    """The document in ``text``.

    Raises:
        ConfigError: It is no JSON; the error knows where.
    """
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(error.msg, min(error.pos, len(text))) from error
    except ValueError as error:
        raise ConfigError("a number has more digits than Python converts", 0) from error
    except RecursionError as error:
        raise ConfigError("nested too deeply", 0) from error
    return _node(text, _skip(text, 0))[0]


def _skip(text: str, offset: int) -> int:
    match = _SPACE.match(text, offset)
    return match.end() if match else offset


def _node(text: str, begin: int) -> tuple[Node, int]:
    """The value that starts at ``begin``, and the offset after it."""
    if text[begin] == "{":
        return _mapping(text, begin)
    if text[begin] == "[":
        return _sequence(text, begin)
    value, end = _DECODER.raw_decode(text, begin)
    return Scalar(value, begin, end), end


def _mapping(text: str, begin: int) -> tuple[Node, int]:
    entries: dict[str, Entry] = {}
    offset = _skip(text, begin + 1)
    while text[offset] != "}":
        name, end = _DECODER.raw_decode(text, offset)
        colon = _skip(text, end)
        value, after = _node(text, _skip(text, colon + 1))
        entries[name] = Entry(Scalar(name, offset, end), value, shared=False)
        offset = _after_comma(text, after)
    return Mapping(entries, begin, offset + 1, flow=True), offset + 1


def _sequence(text: str, begin: int) -> tuple[Node, int]:
    items: list[Node] = []
    offset = _skip(text, begin + 1)
    while text[offset] != "]":
        item, after = _node(text, offset)
        items.append(item)
        offset = _after_comma(text, after)
    return Sequence(tuple(items), begin, offset + 1), offset + 1


def _after_comma(text: str, offset: int) -> int:
    offset = _skip(text, offset)
    return _skip(text, offset + 1) if text[offset] == "," else offset
