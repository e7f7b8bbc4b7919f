"""Whether a program says anything at all about a setting: the last resort against guessing."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import all_nodes

if TYPE_CHECKING:
    from collections.abc import Collection

    from ...facts.walk import Program


def mentions(program: Program, name: str, apart_from: Collection[ast.AST] = ()) -> bool:
    """Whether ``name`` stands in the program as a keyword, an attribute, a variable or a string of its own.

    Calls with such a keyword, and attributes, that are in ``apart_from`` count for nothing.
    """
    return any(node not in apart_from for node in _names_in(program.trees).get(name, ()))


def attributes_named(program: Program, name: str) -> list[ast.Attribute]:
    """Where `.name` of something stands in the program."""
    return [node for node in _names_in(program.trees).get(name, ()) if isinstance(node, ast.Attribute)]


@lru_cache(maxsize=4)
def _names_in(trees: tuple[ast.AST, ...]) -> dict[str, list[ast.AST]]:
    """By name, the calls with it as a keyword, the attributes, the variables and the strings."""
    found: dict[str, list[ast.AST]] = {}
    for node in (node for tree in trees for node in all_nodes(tree)):
        match node:
            case ast.Call(keywords=keywords) | ast.ClassDef(keywords=keywords):
                for keyword in keywords:
                    found.setdefault(keyword.arg or "", []).append(node)
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.Constant(value=str(name)):
                found.setdefault(name, []).append(node)
    return found


class Attributes(NamedTuple):
    """The attributes of a program."""

    #: Those that statements assign or delete.
    written: frozenset[str]
    #: Texts without spaces, which `setattr` and `mock.patch` may take, by their parts; "" where `setattr` computes one.
    texts: frozenset[str]
    #: Names that the program reads or imports, attributes or not.
    read: frozenset[str]

    def may_set(self, name: str) -> bool:
        """Whether the program may set the attribute ``name`` of something."""
        return name in self.written or not self.texts.isdisjoint((name, ""))


def attributes_in(program: Program) -> Attributes:
    """The attributes that the program sets, names and reads, in the modules of the project that were read too."""
    return _attributes_in(program.trees)


@lru_cache(maxsize=4)
def _attributes_in(trees: tuple[ast.AST, ...]) -> Attributes:
    written, texts, read = set[str](), set[str](), set[str]()
    for node in (node for tree in trees for node in all_nodes(tree)):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
                written.add(name)
            case ast.Attribute(attr=name) | ast.Name(id=name):
                read.add(name)
            case ast.alias(name=name):
                read.add(name.rpartition(".")[2])
            case ast.Constant(value=str(text)) if not any(map(str.isspace, text)):
                texts.update(filter(None, text.split(".")))
            case ast.Call(func=ast.Name(id="setattr"), args=[_, key, *_]) if not isinstance(key, ast.Constant):
                texts.add("")
    return Attributes(frozenset(written), frozenset(texts), frozenset(read))
