"""Settings as calls: what a file of settings does, said as the call that a script would make."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..facts.values import Call, Place, Ref
from .nodes import Mapping as Section

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..facts.values import Dict, Value
    from ..facts.walk import Program
    from .document import Document


class SettingsNode(ast.Call):
    """Stands for the call that settings mean. ``keys`` are those of ``section`` that an argument may be written as."""

    keys: Mapping[str, str]
    section: Section


class SettingsDict(ast.Dict):
    """Stands for a dict that the program makes of settings. ``written`` says by which key of the file an item is."""

    written: Mapping[str, str]


def call_of(
    document: Document,
    program: Program,
    name: str,
    given: Mapping[str, Value],
    *,
    anchors: Iterable[str] = (),
    keys: Mapping[str, str] | None = None,
    section: Dict | None = None,
) -> Call:
    """The call that a configuration stands for; not yet part of ``program``.

    Args:
        document: The configuration.
        program: The program that the call is going to belong to.
        name: The full name of what is called.
        given: The arguments.
        anchors: Keys of the file; the call is placed where the first of them is.
        keys: How each argument is written in ``section``, so that a fix can write it; None for no fixes of the file.
        section: Where these keys are; None for the top of the file.
    """
    node = _node(document, name, given, anchors)
    node.keys, node.section = keys or {}, _written_in(document, section)
    call = Call(node, Ref(name), Place(), program.next_order())
    call.kwargs = dict(given)
    return call


def place_at(document: Document, call: Call, arguments: Iterable[str]) -> None:
    """Put ``call`` where the first of these arguments stands that it has, in whichever file that is."""
    given = (call.kwargs[name].node for name in arguments if name in call.kwargs)
    first = next((node for node in given if node is not None), None)
    if first is not None:
        document.place_like(call.node, first)


def _written_in(document: Document, section: Dict | None) -> Section:
    held = document.held(section.node) if section is not None and section.node is not None else None
    return held.node if held is not None and isinstance(held.node, Section) else document.mapping


def _node(document: Document, name: str, given: Mapping[str, Value], anchors: Iterable[str]) -> SettingsNode:
    node = SettingsNode(func=ast.Name(name), args=[], keywords=[])
    for argument, value in given.items():
        written = value.node
        held = document.held(written) if written is not None else None
        if held is not None and held.entry is not None and isinstance(written, ast.expr):
            keyword = ast.keyword(arg=argument, value=written)
            document.place_entry(keyword, held.entry)
            node.keywords.append(keyword)
    entries = document.mapping.entries
    anchor = next((entries[key] for key in anchors if key in entries), None) or next(iter(entries.values()), None)
    if anchor is not None:
        document.place_entry(node, anchor)
    else:
        document.place(node, document.mapping.begin, document.mapping.end)
    return node
