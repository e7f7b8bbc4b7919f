"""YAML to nodes with places, by PyYAML: the reader that accelerate, transformers, trl and axolotl use themselves."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import yaml

from .nodes import ConfigError, Entry, Mapping, Node, Opaque, Scalar, Sequence

if TYPE_CHECKING:
    from collections.abc import Iterator

#: libyaml's reader gives the same nodes at the same places in a sixth of the time.
_LOADER: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST = 1_000
_MERGE = "tag:yaml.org,2002:merge"
_COMMENT = re.compile(r"(?:^|(?<=\s))#[^\r\n]*", re.MULTILINE)


def read_yaml(text: str) -> Node | None:
    """The document in ``text``; None when it holds none or several.

    Raises:
        ConfigError: It is no YAML; the error knows where.
    """
    loader = _LOADER(text) if _is_flat(text) else yaml.SafeLoader(text)
    try:
        if not loader.check_node():
            return None
        root = loader.get_node()
        return None if loader.check_node() else _Reader(loader, root).node(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ConfigError(error.problem or "it cannot be read", mark.index if mark else 0) from error
    except yaml.YAMLError as error:
        raise ConfigError("it holds a character that YAML does not allow", getattr(error, "position", 0)) from error
    except RecursionError as error:
        raise ConfigError("nested too deeply", 0) from error
    finally:
        loader.dispose()


def _is_flat(text: str) -> bool:
    """Whether nothing in ``text`` can be nested so deeply that libyaml's recursion ends the process."""
    return sum(map(text.count, ("[", "{", "- ", "? "))) < _DEEPEST and " " * _DEEPEST not in text


class _Reader:
    """Turns the nodes of PyYAML into ours; each is turned once, however many aliases name it."""

    def __init__(self, loader: yaml.SafeLoader, root: yaml.Node) -> None:
        self._loader = loader
        self._uses = _uses(root)
        self._done: dict[int, Node] = {}
        self._under_way: set[int] = set()

    def node(self, node: yaml.Node) -> Node:
        """``node`` as a value; what an alias names a second time is the same one."""
        begin, end = node.start_mark.index, node.end_mark.index
        if id(node) in self._under_way:
            return Opaque(begin, begin)  # it contains itself
        if id(node) not in self._done:
            self._under_way.add(id(node))
            self._done[id(node)] = self._converted(node, begin, end)
            self._under_way.discard(id(node))
        return self._done[id(node)]

    def _converted(self, node: yaml.Node, begin: int, end: int) -> Node:
        match node:
            case yaml.MappingNode() if node.tag == "tag:yaml.org,2002:map":
                return self._mapping(node, begin, end)
            case yaml.SequenceNode() if node.tag == "tag:yaml.org,2002:seq":
                items = tuple(self.node(item) for item in node.value)
                # A block ends where the next token begins, behind comments and empty lines.
                return Sequence(items, begin, end if node.flow_style or not items else items[-1].end)
            case yaml.ScalarNode():
                try:
                    value = self._loader.construct_object(node)
                except Exception:
                    # What a text that does not fit its tag (`!!bool maybe`) raises, PyYAML leaves to chance.
                    return Opaque(begin, end)
                return Scalar(value, begin, _end_of_text(node, begin, end))
        return Opaque(begin, end)

    def _mapping(self, node: yaml.MappingNode, begin: int, end: int) -> Mapping:
        entries: dict[str, Entry] = {}
        merged: dict[str, Entry] = {}
        is_open = False
        last = begin
        for key, value in node.value:
            if key.tag == _MERGE:
                found = self._merged(value)
                is_open = is_open or found is None
                merged |= found or {}
            elif isinstance(key, yaml.ScalarNode):
                name = self.node(key)
                entry = self.node(value)
                last = max(last, entry.end)
                if isinstance(name, Scalar) and isinstance(name.value, str):
                    entries[name.value] = Entry(name, entry, shared=self._uses[id(value)] > 1)
        shared = self._uses[id(node)] > 1
        return Mapping({**merged, **entries}, begin, end if node.flow_style else last, node.flow_style, shared, is_open)

    def _merged(self, node: yaml.Node) -> dict[str, Entry] | None:
        """What `<<: ...` brings in; the first of several mappings holds."""
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        found: dict[str, Entry] = {}
        for part in reversed(parts):
            mapping = self.node(part)
            if not isinstance(mapping, Mapping):
                return None
            found |= {name: entry._replace(shared=True) for name, entry in mapping.entries.items()}
        return found


def _end_of_text(node: yaml.ScalarNode, begin: int, end: int) -> int:
    """Where a scalar ends: of text below a `|` or `>` only the mark counts."""
    return begin + 1 if node.style in ("|", ">") else end


def _uses(root: yaml.Node) -> Counter[int]:
    """How often each node is named: more than once for one with aliases."""
    uses: Counter[int] = Counter()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        uses[id(node)] += 1
        if uses[id(node)] == 1 and not isinstance(node, yaml.ScalarNode):
            for item in node.value:
                waiting += item if isinstance(item, tuple) else (item,)
    return uses


def comments_in(text: str) -> Iterator[tuple[int, str]]:
    """Every comment of YAML ``text``: its offset and what it says; none when the text cannot be read."""
    try:
        scalars = [
            (token.start_mark.index, token.end_mark.index)
            for token in yaml.scan(text, Loader=yaml.SafeLoader)
            if isinstance(token, yaml.ScalarToken)
        ]
    except yaml.YAMLError:
        return
    for match in _COMMENT.finditer(text):
        if not any(begin < match.start() < end for begin, end in scalars):
            yield match.start(), match.group()
