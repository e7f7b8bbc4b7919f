"""The last word before a report becomes a finding: what it is about must stand in the libcst tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .facts.origin import origin
from .finding import Finding, Note, Span
from .fix.build import build
from .fix.tree import Tree

if TYPE_CHECKING:
    from .facts.walk import Program
    from .model.report import Remark, Report
    from .rules import Rule


def confirm(proposed: list[tuple[Rule, Report]], program: Program, everywhere: bool = False) -> list[Finding]:
    """The findings of ``proposed`` that the tree of their file confirms, one a rule and place, sorted by place.

    Only those in the checked file; with ``everywhere`` also those in the modules it imports.
    """
    trees = _Trees(program)
    found: dict[tuple[str, str, Span], Finding] = {}
    for rule, report in proposed:
        if origin(report.node) is not None and not everywhere:
            continue
        tree = trees.of(origin(report.node))
        node = tree.find(report.node) if tree is not None else None
        if tree is not None and node is not None:
            finding = _finding(rule, report, trees, tree, node)
            found.setdefault((rule.code, finding.filename, finding.span), finding)
    return sorted(found.values(), key=lambda finding: (finding.filename, finding.span, finding.code))


class _Trees:
    """The libcst trees of a program's files, each parsed when it is first needed; None for one libcst cannot read."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._parsed: dict[str | None, Tree | None] = {}

    def of(self, filename: str | None) -> Tree | None:
        if filename not in self._parsed:
            text = self.program.text if filename is None else self.program.texts[filename]
            try:
                self._parsed[filename] = Tree(text, filename)
            except cst.ParserSyntaxError:
                self._parsed[filename] = None
        return self._parsed[filename]

    def name(self, tree: Tree) -> str:
        return tree.filename or self.program.filename

    def note(self, remark: Remark) -> Note:
        tree = self.of(origin(remark.node))
        node = tree.find(remark.node) if tree is not None else None
        if tree is not None and node is not None:
            return Note(self.name(tree), tree.span(node), remark.text)
        line = getattr(remark.node, "lineno", 1)
        return Note(origin(remark.node) or self.program.filename, Span(line, 1, line, 1), remark.text)


def _finding(rule: Rule, report: Report, trees: _Trees, tree: Tree, node: cst.CSTNode) -> Finding:
    versions = report.versions or ", ".join(f"{library}{spec}" for library, spec in rule.versions.items()) or None
    return Finding(
        rule.code,
        rule.name,
        report.severity or rule.severity,
        report.message,
        trees.name(tree),
        tree.span(node),
        tuple(trees.note(remark) for remark in report.notes),
        build(report.fix, tree) if report.fix is not None else None,
        versions,
    )
