"""Pages of the CKPT9xx codes: what the tool says about itself and its input. They have no analysis of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..finding import Finding, Fix


def tool_finding(
    rule: tuple[str, str, str], problem: str, filename: str, place: tuple[int, int, int, int], fix: Fix | None = None
) -> Finding:
    """What a rule of this folder (its code, name and severity) reports at ``place``, as a ``Span`` counts it.

    Args:
        rule: Code, name and severity.
        problem: The message.
        filename: The file it is in.
        place: Line, column, end line and end column, from 1, as a `Span` counts them.
        fix: What repairs it.
    """
    from ..finding import Finding, Severity, Span  # start-up: a clean file pays for no enumerations

    code, name, severity = rule
    return Finding(code, name, Severity(severity), problem, filename, Span(*place), fix=fix)
