"""What YAML and JSON files consist of, with the characters each part takes."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class Scalar(NamedTuple):
    """A string, number, bool or null."""

    value: object
    begin: int
    end: int


class Opaque(NamedTuple):
    """Something whose value only the program that reads the file knows (`!include`, `!env`)."""

    begin: int
    end: int


class Sequence(NamedTuple):
    """A list."""

    items: tuple[Node, ...]
    begin: int
    end: int


class Entry(NamedTuple):
    """A key and its value."""

    key: Scalar
    value: Node
    #: It stands elsewhere too (an alias, a merged mapping), so that nobody may change it for this place only.
    shared: bool


class Mapping(NamedTuple):
    """Keys and values, by key; of a key that is given twice the last one holds."""

    entries: dict[str, Entry]
    begin: int
    end: int
    #: Written with braces.
    flow: bool
    #: It stands elsewhere too.
    shared: bool = False
    #: It may hold more than ``entries``.
    open: bool = False


Node: TypeAlias = Scalar | Opaque | Sequence | Mapping


class ConfigError(Exception):
    """The text is no YAML or JSON; ``str()`` is half a sentence, ``offset`` where reading ended."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def without_interpolations(node: Node) -> Node:
    """``node`` with what `${...}` stands in left open: what that means is elsewhere."""
    match node:
        case Scalar(str(text), begin, end) if "${" in text:
            return Opaque(begin, end)
        case Sequence(items=items):
            return node._replace(items=tuple(map(without_interpolations, items)))
        case Mapping(entries=entries):
            found = {name: entry._replace(value=without_interpolations(entry.value)) for name, entry in entries.items()}
            return node._replace(entries=found)
    return node
