"""A suppression that silences nothing.

## What it does
Flags a code in `# noqa: CKPT...` or `# ckpt-lint: ignore[...]` for which nothing is reported at that place.
Only our own codes and names are judged, and only rules that are selected; a bare `# noqa` is never flagged.

## Why is this bad?
The mistake it once silenced is gone, or the comment stands on the wrong line. It stays behind and will silence the next
mistake of that kind without anybody having looked at it.

## Bad
```python
import torch

value = torch.ones(1)  # noqa: CKPT101
```

## Good
```python
import torch

value = torch.ones(1)
```

## Fix safety
Safe: only the comment changes. A reason that follows the suppression stays as a comment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import tool_finding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..finding import Finding, Fix, Span

CODE = "CKPT901"
NAME = "unused-suppression"
SEVERITY = "warning"


def silences_nothing(filename: str, span: Span, idle: Iterable[str], removal: Fix) -> Finding:
    """The finding for a suppression at ``span`` that names ``idle`` codes, and what removes them."""
    listed = ", ".join(f"`{code}`" for code in idle)
    problem = f"{listed} is not reported here: the suppression silences nothing, remove it"
    return tool_finding((CODE, NAME, SEVERITY), problem, filename, span, removal)
