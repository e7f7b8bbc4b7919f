"""Allow a file that cannot be read.

## What it does
Reports a file (or a notebook cell) that is not valid Python, not a notebook, or not text in the encoding it declares,
and a YAML or JSON file with a key about checkpointing that is not valid YAML or JSON (templates and lines of JSON are
no such files). The other files are checked all the same.

## Why is this bad?
Nothing in the file was checked, so silence would look like a clean result.

A file that mentions no checkpointing API at all is not parsed and therefore not reported: it cannot hold a mistake of
the kind this tool looks for, and a clean commit should not pay for reading it.

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

CODE = "CKPT903"
NAME = "unparsable-file"
SEVERITY = "error"
