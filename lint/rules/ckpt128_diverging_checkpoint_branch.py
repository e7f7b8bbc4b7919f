"""Allow a checkpointed branch that calls the block with other arguments than the plain branch.

## What it does
Flags `if self.checkpointing: y = checkpoint(block, ...)` with `else: y = block(...)` where one branch passes fewer
arguments than the other, or a tuple where the other passes its parts. Caches and switches for extra outputs, which a
checkpointed branch leaves out on purpose, may differ.

## Why is this bad?
Turning checkpointing on changes what is computed: a mask or an embedding is missing, or the block gets one tuple as its
first argument. The model trains on something else than it is evaluated with, since evaluation takes the plain branch.

## Bad
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Encoder(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = blocks
        self.checkpointing = True

    def forward(self, x, mask, rope):
        for block in self.blocks:
            if self.checkpointing and self.training:
                x = checkpoint(block, x, mask, use_reentrant=False)  # error
            else:
                x = block(x, mask, rope)
        return x
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Decoder(nn.Module):
    def __init__(self, block, checkpointing):
        super().__init__()
        self.block = block
        self.checkpointing = checkpointing

    def forward(self, x, skip):
        if not self.checkpointing:
            return self.block(x, skip)
        return checkpoint(self.block, (x, skip), use_reentrant=False)  # error
```

## Good
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Encoder(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = blocks
        self.checkpointing = True

    def forward(self, x, mask, rope, past_key_values=None, output_attentions=False):
        for block, other in self.blocks:
            if self.checkpointing and self.training:
                x = checkpoint(block, x, mask, rope, use_reentrant=False)
                x = checkpoint(other, x, mask, use_reentrant=False)
            else:
                x = block(x, attention_mask=mask, rope=rope)
                x = other(x, mask, past_key_values=past_key_values, output_attentions=output_attentions)
        return x

    def packed(self, x, mask, *rest):
        inputs = (x, mask)
        if self.checkpointing:
            return checkpoint(self.blocks, *inputs, use_reentrant=False)
        return self.blocks(x, mask, *rest)

    def two_steps(self, x, mask):
        if self.checkpointing:
            x = checkpoint(self.blocks[0], x, use_reentrant=False)
        return self.blocks[0](x, mask)
```

## Evidence
```python
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, mask=None):
        x = self.linear(x)
        return x if mask is None else x * mask

def run(block, x, mask, checkpointing):
    if checkpointing:
        return checkpoint(block, x, use_reentrant=False)
    return block(x, mask)

block, x, mask = Block(), torch.ones(2, 4), torch.tensor([1.0, 0.0, 0.0, 1.0])
assert not torch.allclose(run(block, x, mask, True), run(block, x, mask, False))
assert torch.equal(checkpoint(block, x, mask, use_reentrant=False), block(x, mask))
```

## References
Both spellings were met in public code, in shares counted from 1,252 files that use activation checkpointing.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ..facts.values import Attr, Unknown, Value, same
from ..finding import Severity
from ..model.events import Checkpoint
from ..model.report import Remark, Report
from ..model.words import CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.calls import Call
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT128", "diverging-checkpoint-branch", Severity.ERROR
TRIGGERS = (CHECKPOINT,)
#: What a checkpointed branch leaves out on purpose.
_MAY_DIFFER = re.compile(r"cache|past|state|output_|return_|use_|need_|kwargs|debug|verbose|inference|incremental")


def check(run: Run) -> Iterator[Report]:
    """Report pairs of branches that differ in what they pass to the same block."""
    for event in run.of(Checkpoint):
        for plain in run.calls_beside(event.call):
            if _is_other_branch(event, plain):
                difference = _difference(event, plain)
                if difference:
                    yield Report(
                        event.node,
                        f"the checkpointed and the plain call of this block differ: {difference}, so checkpointing "
                        f"changes what is computed; pass the same arguments in both",
                        notes=(Remark(plain.node, "the plain call", decides=False),),
                    )
                break


def _is_other_branch(event: Checkpoint, plain: Call) -> bool:
    return _called(plain.func, event) and event.place.excludes(plain.place)


def _called(function: Value, event: Checkpoint) -> bool:
    mine = event.function
    if isinstance(mine, Attr) and mine.name in ("forward", "__call__"):
        mine = mine.base
    return not isinstance(function, Unknown) and same(function, mine)


def _difference(event: Checkpoint, plain: Call) -> str:
    """How the arguments differ, in words; empty when they do not or cannot be compared."""
    if event.call.via or plain.via:
        return ""
    positional = event.node.args[1:]
    given = [*positional, *(word.value for word in event.node.keywords if word.arg not in Checkpoint.OWN)]
    wanted = [*plain.node.args, *(word.value for word in plain.node.keywords)]
    splats = [*event.node.keywords, *plain.node.keywords]
    if any(isinstance(part, ast.Starred) for part in (*given, *wanted)) or any(word.arg is None for word in splats):
        return ""
    if len(given) == 1 and len(wanted) > 1 and isinstance(given[0], ast.Tuple):
        return "one passes a tuple, the other its parts" if _names(given[0]) >= _names(wanted[0]) else ""
    few, many = sorted((given, wanted), key=len)
    known = set().union(*map(_names, few)) if few else set()
    missing = [ast.unparse(part) for part in many if _counts(part) and not _names(part) & known]
    if not missing or len(few) == len(many) or len(missing) > len(many) - len(few):
        return ""
    side = "checkpointed" if few is given else "plain"
    return f"the {side} one lacks `{'`, `'.join(missing)}`"


def _counts(argument: ast.expr) -> bool:
    """Whether leaving ``argument`` out changes the result: constants and caches may be left out."""
    names = _names(argument)
    return bool(names) and not any(_MAY_DIFFER.search(name) for name in names)


def _names(node: ast.expr) -> set[str]:
    found = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return found - {"self"} | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
