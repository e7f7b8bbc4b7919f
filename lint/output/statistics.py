"""``--statistics``: how often each rule fired."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from ..finding import Applicability

if TYPE_CHECKING:
    from .report import Report


def render_statistics(report: Report, as_json: bool = False) -> str:
    """A line a rule, the most frequent first; ``[*]`` marks rules with findings that ``--fix`` repairs."""
    counts = Counter((finding.code, finding.name) for finding in report.findings)
    fixable = {f.code for f in report.findings if f.fix is not None and f.fix.applicability is Applicability.SAFE}
    rows = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if as_json:
        keys = ("code", "name", "count", "fixable")
        return json.dumps(
            [dict(zip(keys, (*key, count, key[0] in fixable), strict=True)) for key, count in rows], indent=2
        )
    width = max((len(str(count)) for count in counts.values()), default=1)
    marks = {True: "[*]", False: "[ ]"}
    lines = [f"{count:>{width}}  {code}  {marks[code in fixable]} {name}" for (code, name), count in rows]
    return "\n".join([*lines, f"Found {counts.total()} in {report.files} file{'' if report.files == 1 else 's'}."])
