"""What is, what will happen, what to write: message, source excerpt, the lines that decide, the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unicodedata import combining, east_asian_width

from ...finding import Applicability, Severity
from ...sources.edits import apply_edits
from ..report import Excerpts
from ._style import Style, place, summary

if TYPE_CHECKING:
    from ...finding import Finding, Fix, Note, Span
    from ..report import Report

COLORED = True
#: Lines shown before and after the marked ones.
_CONTEXT = 1
#: A finding longer than this is shown by its first lines.
_LONGEST = 6
_HOW = {
    Applicability.SAFE: " (`--fix`)",
    Applicability.UNSAFE: " (`--fix --unsafe-fixes`: it changes what the run does)",
    Applicability.DISPLAY: "",
}


def render(report: Report, color: bool) -> str:
    """One block a finding, in rustc's layout."""
    style, excerpts = Style(color), Excerpts(report)
    blocks = [_block(finding, excerpts, style) for finding in report.findings]
    closing = summary(report)
    return "\n\n".join([*blocks, closing] if closing else blocks)


def _block(finding: Finding, excerpts: Excerpts, style: Style) -> str:
    head = style.severity(f"{finding.severity}[{finding.code}]", finding.severity)
    lines = excerpts.lines(finding.filename, finding.cell)
    notes = [(note, excerpts.lines(note.filename, finding.cell)) for note in finding.notes]
    gutter = max([len(str(finding.span.end_line + _CONTEXT)), *(len(str(n.span.end_line)) for n, _ in notes)])
    parts = [
        f"{head}: {style.bold(finding.message)}",
        *_excerpt(place(finding), finding.span, lines, gutter, style, finding.severity),
    ]
    for note, note_lines in notes:
        parts += _note(note, finding, note_lines, gutter, style)
    if finding.versions:
        parts.append(_remark(gutter, "holds for", finding.versions, style))
    parts.append(_remark(gutter, "rule", f"{finding.name}; `ckpt-lint rule {finding.code}` explains it", style))
    if finding.fix is not None:
        parts += _help(finding.fix, lines, gutter, style)
    return "\n".join(parts)


def _note(note: Note, finding: Finding, lines: list[str], gutter: int, style: Style) -> list[str]:
    head = f"{style.severity('note', Severity.NOTE)}: {note.text}"
    if finding.cell is not None:
        # The note may stand in another cell; its text names the cell.
        return [f"{head}, line {note.span.line}"]
    where = f"{note.filename}:{note.span.line}:{note.span.column}"
    return [head, *_excerpt(where, note.span, lines, gutter, style, Severity.NOTE, context=0)]


def _excerpt(
    where: str, span: Span, lines: list[str], gutter: int, style: Style, severity: Severity, context: int = _CONTEXT
) -> list[str]:
    """The arrow line and the numbered source lines, those of ``span`` underlined."""
    pad, bar = " " * gutter, style.blue("|")
    result = [f"{pad}{style.blue('-->')} {where}", f"{pad} {bar}"]
    last = min(span.end_line, span.line + _LONGEST - 1)
    several = span.end_line > span.line
    after = context if span.end_line == last else 0
    for number in range(max(span.line - context, 1), min(last + after, len(lines)) + 1):
        text = lines[number - 1]
        inside = "| " if several and span.line < number <= last else "  " if several else ""
        marked = style.severity(inside, severity)
        result.append(f"{style.blue(f'{number:>{gutter}}')} {bar} {marked}{text.expandtabs(4)}".rstrip())
        if marks := _marks(text, span, number):
            result.append(f"{pad} {bar} {style.severity(marks, severity)}")
    if span.end_line > last:
        result.append(f"{style.blue('.' * gutter)} {bar} {style.severity('|', severity)}")
    result.append(f"{pad} {bar}")
    return result


def _marks(text: str, span: Span, number: int) -> str:
    """What stands below line ``number``, ``text``: carets, or a corner of the line beside a range of several lines."""

    def width(column: int) -> int:
        return _width(text[: column - 1].expandtabs(4))

    if span.line == span.end_line == number:
        return " " * width(span.column) + "^" * max(width(span.end_column) - width(span.column), 1)
    if number == span.line:
        return f" _{'_' * width(span.column)}^"
    if number == span.end_line:
        return f"|_{'_' * max(width(span.end_column) - 1, 0)}^"
    return ""


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if combining(char) else 1 + (east_asian_width(char) in "WF") for char in text)


def _remark(gutter: int, key: str, text: str, style: Style) -> str:
    return f"{' ' * gutter} {style.blue('=')} {key}: {text}"


def _help(fix: Fix, lines: list[str], gutter: int, style: Style) -> list[str]:
    """What to write: the fix's message, and the lines it changes before and after."""
    result = [f"{style.severity('help', Severity.NOTE)}: {fix.message}{_HOW[fix.applicability]}"]
    if not fix.edits or not lines:
        return result
    import difflib  # start-up: only fixes need it

    text = "\n".join(lines)
    changed = apply_edits(text, fix.edits).split("\n")
    pad, bar = " " * gutter, style.blue("|")
    diff = difflib.unified_diff(lines, changed, n=0, lineterm="")
    colors = {"-": "31", "+": "32"}
    body = [line for line in list(diff)[2:] if line[:1] in colors]
    shown = [style.paint(f"{line[0]} {line[1:].expandtabs(4)}", colors[line[0]]) for line in body]
    return [*result, *(f"{pad} {bar} {line}" for line in shown)]
