"""What tells a finding from the others, though code moves around it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import TYPE_CHECKING

from .report import relative

if TYPE_CHECKING:
    from ..finding import Finding
    from .report import Report


def fingerprints(report: Report) -> list[str]:
    """One for each finding, of file, code and message, not of its line; equal ones are counted."""
    seen: Counter[str] = Counter()
    return [_fingerprint(finding, seen) for finding in report.findings]


def _fingerprint(finding: Finding, seen: Counter[str]) -> str:
    # A message may name the line of another place.
    message = re.sub(r"\bline \d+", "line", finding.message)
    identity = f"{relative(finding.filename)}\n{finding.code}\n{message}"
    seen[identity] += 1
    return hashlib.sha256(f"{identity}\n{seen[identity]}".encode()).hexdigest()[:32]
