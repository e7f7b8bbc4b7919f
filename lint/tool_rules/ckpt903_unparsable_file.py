"""A file that cannot be read.

## What it does
Reports a file (or a notebook cell) that is not valid Python, not a notebook, or not text in the encoding it declares,
and a YAML or JSON file with a key about checkpointing that is not valid YAML or JSON (templates and lines of JSON are
no such files). A file without an extension counts as Python when its first line says so (`#!/usr/bin/env python3`). The
other files are checked all the same.

## Why is this bad?
Nothing in the file was checked, so silence would look like a clean result.

A file whose code mentions no checkpointing API at all is not parsed and therefore not reported: it cannot hold a
mistake of the kind this tool looks for, and a clean commit should not pay for reading it.

## Bad
```python
from torch.utils.checkpoint import checkpoint

def forward(self, x:
    return checkpoint(self.block, x, use_reentrant=False)
```

## Good
```python
from torch.utils.checkpoint import checkpoint

def forward(self, x):
    return checkpoint(self.block, x, use_reentrant=False)
```
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from . import tool_finding

if TYPE_CHECKING:
    from ..finding import Finding

CODE = "CKPT903"
NAME = "unparsable-file"
SEVERITY = "error"
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
#: What the message of a whole file ends with.
UNCHECKED = "so nothing in this file was checked"


def unparsable(filename: str, line: int, column: int, problem: str) -> Finding:
    """The finding for a file, or a cell, that cannot be read from ``line`` and ``column`` on."""
    return tool_finding((CODE, NAME, SEVERITY), problem, filename, (line, column, line, column))


def not_python(filename: str, error: SyntaxError) -> Finding:
    """The finding for a file that is no Python."""
    problem = f"not valid Python {_VERSION} ({error.msg}), the version that runs ckpt-lint, {UNCHECKED}"
    return unparsable(filename, max(error.lineno or 1, 1), max(error.offset or 1, 1), problem)
