"""TOML to nodes: what it says by Python's reader, where by the lines of its keys."""

from __future__ import annotations

import re
import tomllib

from .nodes import ConfigError, Entry, Mapping, Node, Scalar, Sequence

#: `[table.inner]`, and `key = ...`.
_HEADER = re.compile(r"^[ \t]*\[\[?[ \t]*([^\[\]\n]+?)[ \t]*\]", re.MULTILINE)
_KEY = re.compile(r"""^[ \t]*((?:[\w-]+|"[^"\n]*"|'[^'\n]*')(?:[ \t]*\.[ \t]*[\w"'-]+)*)[ \t]*=""", re.MULTILINE)
_PART = re.compile(r"""[\w-]+|"[^"]*"|'[^']*'""")
_Path = tuple[str, ...]
_Places = dict[_Path, tuple[int, int]]


def read_toml(text: str) -> Mapping:
    """The tables of ``text``.

    Raises:
        ConfigError: It is no TOML.
    """
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(str(error), 0) from error
    places = _places(text)
    return _mapping(found, (), (0, len(text.partition("\n")[0])), places)


def _places(text: str) -> _Places:
    """The place of each table's header and of each key; what stands inside of a value is where that is."""
    headers = [(match.start(), match) for match in _HEADER.finditer(text)]
    keys = [(match.start(), match) for match in _KEY.finditer(text)]
    table: _Path = ()
    places: _Places = {}
    for _, match in sorted((*headers, *keys), key=lambda found: found[0]):
        path = tuple(part.strip("\"'") for part in _PART.findall(match[1]))
        if match.re is _HEADER:
            table, path = path, ()
        end = text.find("\n", match.start(1))
        places.setdefault((*table, *path), (match.start(1), len(text) if end < 0 else end))
    return places


def _mapping(found: dict[str, object], path: _Path, place: tuple[int, int], places: _Places) -> Mapping:
    entries = {}
    for name, value in found.items():
        begin, end = places.get((*path, name), place)
        key = Scalar(name, begin, begin + len(name))
        # Nothing writes TOML: no fix is offered for what stands in it.
        entries[name] = Entry(key, _node(value, (*path, name), (begin, end), places), shared=True)
    return Mapping(entries, *place, flow=False, shared=True)


def _node(value: object, path: _Path, place: tuple[int, int], places: _Places) -> Node:
    match value:
        case dict():
            return _mapping(value, path, place, places)
        case list():
            return Sequence(tuple(_node(item, path, place, places) for item in value), *place)
        case bool() | int() | float() | str():
            return Scalar(value, *place)
    return Scalar(str(value), *place)  # a date
