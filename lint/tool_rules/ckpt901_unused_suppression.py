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

CODE = "CKPT901"
NAME = "unused-suppression"
SEVERITY = "warning"
