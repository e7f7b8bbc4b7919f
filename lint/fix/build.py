"""Rewrites to edits: each change is made on the libcst tree, and only the text that differs becomes an edit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from ..finding import Applicability, Edit, Fix, Span
from ..model.report import (
    BindDefaults,
    DeleteStatement,
    DropKeyword,
    InsertBefore,
    MakePositional,
    RenameAttribute,
    RenameKeyword,
    Replace,
    SetKey,
    SetKeyword,
)
from .arguments import drop_keyword, make_positional, rename_keyword, set_key, set_keyword
from .comments import loses_comments
from .parameters import with_defaults
from .statements import delete_statement, insert_before

if TYPE_CHECKING:
    from ..model.report import Change, Rewrite
    from .tree import Tree


def build(rewrite: Rewrite, tree: Tree) -> Fix | None:
    """The edits of ``rewrite``; None when one of its places is not what it was taken for (then nothing is offered)."""
    edits: list[Edit] = []
    for change in rewrite.changes:
        made = _edits(change, tree)
        if made is None:
            return None
        edits += made
    applicability = rewrite.applicability
    if applicability is Applicability.SAFE and loses_comments("\n".join(tree.lines), edits):
        applicability = Applicability.UNSAFE
    return Fix(applicability, rewrite.message, tuple(dict.fromkeys(edits)))


def _edits(change: Change, tree: Tree) -> list[Edit] | None:
    node = tree.find(change[0])
    if node is None:
        return None
    match change, node:
        case DeleteStatement(), cst.BaseSmallStatement():
            return delete_statement(tree, node)
        case InsertBefore(text=text), cst.CSTNode():
            return insert_before(tree, node, text)
        case BindDefaults(_, names), cst.FunctionDef():
            return _bind_in_header(tree, node, names)
    new = _changed(change, node)
    return None if new is None else minimal_edits(tree, node, new)


def _changed(change: Change, node: cst.CSTNode) -> cst.CSTNode | None:
    match change, node:
        case SetKeyword(_, name, text), cst.Call():
            return set_keyword(node, name, text)
        case DropKeyword(_, name), cst.Call():
            return drop_keyword(node, name)
        case RenameKeyword(_, name, new), cst.Call():
            return rename_keyword(node, name, new)
        case MakePositional(_, name), cst.Call():
            return make_positional(node, name)
        case SetKey(_, key, text), cst.Dict():
            return set_key(node, key, text)
        case Replace(_, text), cst.BaseExpression():
            return cst.parse_expression(text)
        case RenameAttribute(_, new), cst.Attribute():
            return node.with_changes(attr=cst.Name(new))
        case BindDefaults(_, names), cst.Lambda():
            return node.with_changes(params=with_defaults(node.params, names))
    return None


def _bind_in_header(tree: Tree, node: cst.FunctionDef, names: tuple[str, ...]) -> list[Edit] | None:
    """The edit of the line (or lines) up to the colon; what stands around and below it is not looked at."""
    indent = tree.indent_at(node)

    def header(params: cst.Parameters) -> str:
        bare = node.with_changes(
            params=params,
            decorators=(),
            leading_lines=(),
            lines_after_decorators=(),
            body=cst.SimpleStatementSuite([cst.Pass()]),
        )
        return tree.code(bare, indent).replace("\r\n", "\n").strip().removesuffix("pass").rstrip()

    before = header(node.params)
    if not tree.source(node).startswith(before):
        return None
    return _difference(
        before, header(with_defaults(node.params, names, node.whitespace_before_params)), tree.full_span(node)
    )


def minimal_edits(tree: Tree, old: cst.CSTNode, new: cst.CSTNode) -> list[Edit] | None:
    """The one edit that turns a node into another, without what both texts begin and end with.

    Args:
        tree: The file.
        old: A node of it.
        new: What it becomes.

    Returns:
        The edit; None when the file has another text at the range of ``old``: an edit would hit the wrong place.
    """
    indent = tree.indent_at(old)
    # The range of a node excludes its own parentheses, its text includes them.
    bare = old.with_changes(lpar=(), rpar=()) if getattr(old, "lpar", None) else old
    if bare is not old and getattr(new, "lpar", None):
        new = new.with_changes(lpar=(), rpar=())
    before, after = (tree.code(node, indent).replace("\r\n", "\n") for node in (bare, new))
    return None if before != tree.source(old) else _difference(before, after, tree.full_span(old))


def _difference(before: str, after: str, span: Span) -> list[Edit]:
    """The one edit that makes ``after`` of ``before``, which stands where ``span`` starts."""
    begin = _shared(before, after)
    end = _shared(before[begin:][::-1], after[begin:][::-1])
    # `None` and `False` share a letter, not a meaning: whole words change.
    while begin and _is_word(before[begin - 1 : begin + 1]) | _is_word(after[begin - 1 : begin + 1]):
        begin -= 1
    while end and _is_word(before[len(before) - end - 1 :][:2]) | _is_word(after[len(after) - end - 1 :][:2]):
        end -= 1
    place = _advance(span, before[:begin])
    stop = _advance(span, before[: len(before) - end])
    return [Edit(Span(*place, *stop), after[begin : len(after) - end])] if before != after else []


def _shared(left: str, right: str) -> int:
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count


def _is_word(pair: str) -> bool:
    return len(pair) == 2 and all(letter.isalnum() or letter == "_" for letter in pair)


def _advance(span: Span, text: str) -> tuple[int, int]:
    lines = text.split("\n")
    if len(lines) == 1:
        return span.line, span.column + len(text)
    return span.line + len(lines) - 1, len(lines[-1]) + 1
