"""Where findings are in the files as they are stored, which is what viewers of files count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .report import Excerpts

if TYPE_CHECKING:
    from ..finding import Edit, Finding, Note, Span
    from ..sources.notebook_places import NotebookPlaces
    from .report import Report


class StoredPlaces:
    """The places of the findings of a report; those in cells of notebooks as lines of the notebook's JSON."""

    def __init__(self, report: Report) -> None:
        self._excerpts = Excerpts(report)
        self._notebooks: dict[str, NotebookPlaces] = {}

    def span(self, found: Finding | Note) -> Span | None:
        """Where ``found`` is in its file; None for one in a notebook that cannot be read any more."""
        if found.cell is None:
            return found.span
        return self._notebook(found.filename).span(found.cell, found.span)

    def edits(self, finding: Finding) -> list[Edit] | None:
        """The edits of its fix as changes of the file; None when there is none, or the file cannot show them."""
        if finding.fix is None:
            return None
        if finding.cell is None:
            return list(finding.fix.edits)
        notebook = self._notebook(finding.filename)
        changes = [notebook.edit(finding.cell, edit) for edit in finding.fix.edits]
        known = [change for change in changes if change is not None]
        return known if len(known) == len(changes) else None

    def _notebook(self, filename: str) -> NotebookPlaces:
        if filename not in self._notebooks:
            from ..sources.notebook_places import NotebookPlaces  # start-up: only where a notebook has findings

            text = self._excerpts.data(filename).decode("utf-8-sig", "replace")
            self._notebooks[filename] = NotebookPlaces(text)
        return self._notebooks[filename]


def in_cell(finding: Finding) -> str:
    """What its message begins with: the cell, which the line of a notebook's file does not tell."""
    return f"cell {finding.cell}: " if finding.cell is not None else ""
