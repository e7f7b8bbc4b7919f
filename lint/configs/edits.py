"""Fixes of configuration files: edits of the text at known places, so that comments and layout stay."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ..finding import Edit, Fix
from ..model.report import RenameKeyword, Replace, SetKey, SetKeyword
from .calls import SettingsDict, SettingsNode
from .nodes import Mapping, Scalar

if TYPE_CHECKING:
    import ast

    from ..model.report import Change, Rewrite
    from .document import Document
    from .nodes import Entry


def build(rewrite: Rewrite, document: Document) -> Fix | None:
    """The edits of ``rewrite``; None when ``document`` cannot be changed in that way."""
    edits: list[Edit] = []
    for change in rewrite.changes:
        edit = _edit(change, document)
        if edit is None:
            return None
        edits.append(edit)
    return Fix(rewrite.applicability, _in_yaml(rewrite.message), tuple(edits))


def _edit(change: Change, document: Document) -> Edit | None:
    match change:
        case SetKeyword(SettingsNode() as call, name, text) if name in call.keys:
            return _set(document, call.section, call.keys[name], text, near=call)
        case SetKey(SettingsDict() as written, key, text) if key in written.written:
            return _set(document, document.mapping, written.written[key], text, near=written)
        case SetKey(dict, key, text):
            held = document.held(dict)
            if held is not None and isinstance(held.node, Mapping):
                is_shared = held.entry is not None and held.entry.shared
                return None if is_shared else _set(document, held.node, key, text, near=None)
        case RenameKeyword(SettingsNode() as call, name, new) if name in call.keys:
            entry = call.section.entries.get(call.keys[name])
            if entry is not None and not entry.shared and new not in call.section.entries:
                quote = document.text[entry.key.begin]
                text = f"{quote}{new}{quote}" if quote in "\"'" else new
                return Edit(document.locator.span(entry.key.begin, entry.key.end), text)
        case Replace(node, text):
            held = document.held(node)
            if held is not None and isinstance(held.node, Scalar) and not (held.entry and held.entry.shared):
                return Edit(document.locator.span(held.node.begin, held.node.end), _value(text))
    return None


def _set(document: Document, mapping: Mapping, key: str, text: str, near: ast.AST | None) -> Edit | None:
    """Give ``mapping`` the item ``key``, beside the entry where ``near`` stands when it is new."""
    if mapping.shared or mapping.open:
        return None
    old = mapping.entries.get(key)
    if old is not None:
        usable = isinstance(old.value, Scalar) and not old.shared
        return Edit(document.locator.span(old.value.begin, old.value.end), _value(text)) if usable else None
    own = [entry for entry in mapping.entries.values() if not entry.shared]
    if not own:
        return _fill(document, mapping, key, text)
    return _insert(document, mapping, _near(document, own, near), key, text)


def _near(document: Document, entries: list[Entry], near: ast.AST | None) -> Entry:
    """The entry where ``near`` stands; the last one when that does not matter."""
    line = getattr(near, "lineno", 0)
    beside = (entry for entry in entries if document.locator.line(entry.key.begin) == line)
    return next(beside, entries[-1])


def _fill(document: Document, mapping: Mapping, key: str, text: str) -> Edit | None:
    if not mapping.flow or mapping.entries:
        return None
    name = json.dumps(key) if document.filename.endswith(".json") else key
    return Edit(document.locator.span(mapping.begin, mapping.end), f"{{{name}: {_value(text)}}}")


def _insert(document: Document, mapping: Mapping, entry: Entry, key: str, text: str) -> Edit:
    """A new item at ``entry``, on a line of its own where that has one."""
    begin = entry.key.begin
    if not mapping.flow and isinstance(entry.value, Scalar) and document.text[entry.value.begin] not in "|>":
        # Behind the line, so that a comment above keeps its entry.
        end = document.locator.around(entry.value.end)[1]
        indent = " " * (begin - document.locator.around(begin)[0])
        return Edit(document.locator.span(end, end), f"\n{indent}{key}: {_value(text)}")
    name = json.dumps(key) if document.text[begin] == '"' else key
    before = document.text[document.locator.around(begin)[0] : begin]
    if mapping.flow:
        separator = f",\n{before}" if not before.strip() else ", "
    else:
        # A block may begin behind the dash of a list.
        separator = "\n" + "".join(char if char.isspace() else " " for char in before)
    return Edit(document.locator.span(begin, begin), f"{name}: {_value(text)}{separator}")


def _value(text: str) -> str:
    """Python's `False` as YAML and JSON write it."""
    return {"True": "true", "False": "false", "None": "null"}.get(text, text)


def _in_yaml(message: str) -> str:
    """What is to be written, as it will stand in the file."""
    for name, value in (("=True", ": true"), ("=False", ": false"), ('": False', '": false'), ('": True', '": true')):
        message = message.replace(name, value)
    return message
