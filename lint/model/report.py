"""What a rule proposes. It becomes a finding when the libcst tree confirms it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ast

    from ..facts.values import FunctionNode, Guard
    from ..finding import Applicability, Severity


class SetKeyword(NamedTuple):
    """Give ``call`` the keyword argument ``name=text``, replacing the one it has."""

    call: ast.Call
    name: str
    text: str


class DropKeyword(NamedTuple):
    """Remove the keyword argument ``name`` from ``call``."""

    call: ast.Call
    name: str


class RenameKeyword(NamedTuple):
    """Call the keyword argument ``name`` of ``call`` ``new`` instead."""

    call: ast.Call
    name: str
    new: str


class MakePositional(NamedTuple):
    """Write ``f(value, ...)`` for ``f(name=value, ...)``; only for the first argument of a call."""

    call: ast.Call
    name: str


class SetKey(NamedTuple):
    """Give the dict display ``dict`` the string key ``key`` with value ``text``, replacing the one it has."""

    dict: ast.Dict
    key: str
    text: str


class Replace(NamedTuple):
    """Write the expression ``text`` instead of ``node``."""

    node: ast.expr
    text: str


class RenameAttribute(NamedTuple):
    """Write ``.new`` instead of the last name of the attribute ``node``."""

    node: ast.Attribute
    new: str


class BindDefaults(NamedTuple):
    """Give a lambda or local function the parameters ``name=name``, so that it keeps what they mean now."""

    function: FunctionNode
    names: tuple[str, ...]


class DeleteStatement(NamedTuple):
    """Remove a simple statement; `pass` takes its place when its block would be empty."""

    node: ast.stmt


class InsertBefore(NamedTuple):
    """Write the line ``text`` before the statement ``node``, at its indentation."""

    node: ast.stmt
    text: str


Change = (
    SetKeyword
    | DropKeyword
    | RenameKeyword
    | MakePositional
    | SetKey
    | Replace
    | RenameAttribute
    | BindDefaults
    | DeleteStatement
    | InsertBefore
)


class Rewrite(NamedTuple):
    """A fix in terms of the program; `lint/fix` turns it into edits of the text."""

    applicability: Applicability
    message: str
    changes: tuple[Change, ...]


class Remark(NamedTuple):
    """A second place that decides: ``node`` and what happens there."""

    node: ast.AST
    text: str
    #: What must hold for it to take part, besides the conditions around ``node``.
    conditions: tuple[Guard, ...] = ()
    #: Whether the mistake needs it; what is only compared with, as the other branch of a condition, it does not.
    decides: bool = True
    #: The function that is called at ``node``, where that may call one of several and only this one matters.
    called: str = ""


class Report(NamedTuple):
    """One mistake: where, what will happen and what to write."""

    node: ast.AST
    message: str
    notes: tuple[Remark, ...] = ()
    fix: Rewrite | None = None
    #: Only when it differs from the rule's.
    severity: Severity | None = None
    #: Only when it holds for fewer versions than the rule does.
    versions: str | None = None
    #: What the mistake needs and the program leaves open, in words ("the model is quantized"); None for nothing.
    assumes: str | None = None
    #: What else must hold, in words: it is no finding but a note then. Set by ``verdict``, never by a rule.
    condition: str | None = None
