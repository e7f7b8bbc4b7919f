"""``--add-ignore``: silence what is reported today, each finding by a comment at its line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..configs import is_settings
from ..configs.comments import comments_of, row_behind
from ..finding import Edit, Span
from ..sources.lines import split_lines
from .comments import comment_row, read_suppressions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..finding import Finding
    from ..sources.source import Source
    from .comments import Suppression


def ignore_edits(source: Source, findings: Iterable[Finding], reason: str) -> list[Edit]:
    """The edits that silence findings.

    A comment of that kind that stands on the line already, be its list empty, is extended. What the tool says about a
    file as a whole, or about another suppression, cannot be silenced by a comment and is left alone; so is JSON, which
    has no comments.

    Args:
        source: The file.
        findings: What is found in it.
        reason: What the comments give as a reason; empty for none.
    """
    if source.filename.endswith(".json"):
        return []
    no_python = is_settings(source.filename)
    codes_by_row: dict[int, dict[str, None]] = {}
    for finding in findings:
        if not finding.code.startswith("CKPT9"):
            line = finding.span.line
            row = row_behind(source.filename, source.text, line) if no_python else comment_row(source.text, line)
            codes_by_row.setdefault(row, {})[finding.code] = None
    existing = {
        suppression.span.line: suppression
        for suppression in (comments_of(source) if no_python else read_suppressions(source.text)).comments
        if suppression.kind == "ignore" and suppression.codes is not None and not suppression.own_line
    }
    lines = split_lines(source.text)
    return [_edit(row, codes, existing.get(row), lines[row - 1], reason) for row, codes in codes_by_row.items()]


def _edit(row: int, codes: Iterable[str], existing: Suppression | None, line: str, reason: str) -> Edit:
    if existing is not None:
        return Edit(existing.span, f"# ckpt-lint: ignore[{', '.join([*(existing.codes or ()), *codes])}]")
    end = len(line.rstrip()) + 1
    comment = f"  # ckpt-lint: ignore[{', '.join(codes)}] {reason}".rstrip()
    return Edit(Span(row, end, row, len(line) + 1), comment)
