"""The last word before a report becomes a finding: what it is about must stand in the libcst tree.

libcst cannot read all that is Python. There the place that Python itself tells must do, and no fix is offered.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from ..facts.origin import as_written, origin, setting_span
from ..finding import Finding, Note, Span
from ..fix.build import build
from ..fix.places import Places
from ..fix.tree import Tree
from ..model.report import Remark
from .deep import is_deep

if TYPE_CHECKING:
    import ast

    from ..facts.walk import Program
    from ..model.report import Report
    from ..rules import Rule


def confirm(proposed: list[tuple[Rule, Report]], program: Program) -> list[Finding]:
    """The findings of ``proposed`` that the tree of their file confirms, one a rule and place, sorted by place."""
    trees = _Trees(program)
    found: dict[tuple[str, str, Span], Finding] = {}
    for rule, report in proposed:
        tree, place = trees.place(report.node)
        if place is not None:
            finding = _finding(rule, report, trees, tree, place)
            found.setdefault((rule.code, finding.filename, finding.span), finding)
    return sorted(found.values(), key=lambda finding: (finding.filename, finding.span, finding.code))


#: Lines; longer files are generated, and nobody edits them.
_LONGEST = 20_000
#: A pattern with a dozen brackets in one another.
_NESTED_PATTERN = re.compile(r"^[ \t]*case\b[^\n]*(?:[\[({][\s\w.,*=|\"':]*){12}", re.MULTILINE)


class _Trees:
    """The libcst trees of a program's files, each parsed when it is first needed; Places where libcst cannot."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._parsed: dict[str | None, Tree | Places] = {}

    def place(self, node: ast.AST) -> tuple[Tree | Places, Span | None]:
        """The tree of the file that ``node`` stands in, and its place there."""
        filename, written = origin(node), as_written(node)
        tree = self._of(filename)
        try:
            return tree, tree.place(written)
        except RecursionError:
            tree = self._parsed[filename] = Places(self._text(filename), filename)
            return tree, tree.place(written)

    def name(self, tree: Tree | Places) -> str:
        """What findings call the file of ``tree``."""
        return tree.filename or self.program.filename

    def note(self, remark: Remark) -> Note:
        """``remark`` at its place; at its line where the tree does not have the node."""
        place = setting_span(remark.node)
        if place is not None:
            return Note(origin(remark.node) or self.program.filename, place, remark.text)
        tree, place = self.place(remark.node)
        if place is not None:
            return Note(self.name(tree), place, remark.text)
        line = getattr(remark.node, "lineno", 1)
        return Note(origin(remark.node) or self.program.filename, Span(line, 1, line, 1), remark.text)

    def _of(self, filename: str | None) -> Tree | Places:
        if filename not in self._parsed:
            self._parsed[filename] = _parsed(self._text(filename), filename)
        return self._parsed[filename]

    def _text(self, filename: str | None) -> str:
        return self.program.text if filename is None else self.program.texts[filename]


def _parsed(text: str, filename: str | None) -> Tree | Places:
    # libcst takes a millisecond a line, and deep nesting overflows the stack of its parser, which ends the process.
    # In a pattern each bracket around another one doubles what it takes.
    if is_deep() or text.count("\n") > _LONGEST or _NESTED_PATTERN.search(text) is not None:
        return Places(text, filename)
    try:
        return Tree(text, filename)
    except (cst.ParserSyntaxError, RecursionError):
        return Places(text, filename)


def _finding(rule: Rule, report: Report, trees: _Trees, tree: Tree | Places, place: Span) -> Finding:
    notes = tuple(trees.note(remark) for remark in report.notes)
    if tree.filename is not None and all(note.filename != trees.program.filename for note in notes):
        notes = (*notes, trees.note(Remark(_entrance(report.node, trees.program), "this run comes to it from here")))
    fix = build(report.fix, tree) if report.fix is not None and isinstance(tree, Tree) else None
    return rule.finding(report, trees.name(tree), place, notes, fix)


def _entrance(node: ast.AST, program: Program) -> ast.AST:
    """Where the checked file comes to ``node`` of a module: the call that leads there, or else the import."""
    for call in program.calls:
        if call.node is node and call.place.stack and origin(call.place.stack[0]) is None:
            return call.place.stack[0]
    filename = origin(node)
    modules = (module for module in program.modules.values() if module is not None)
    found = (module.node for module in modules if origin(module.scope.node) == filename and module.node is not None)
    return next(found, program.tree)
