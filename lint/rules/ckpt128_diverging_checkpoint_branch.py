"""Allow a checkpointed branch that calls the block with other arguments than the plain branch.

## What it does
Flags `if self.checkpointing: y = checkpoint(block, ...)` with `else: y = block(...)` where one branch passes fewer
arguments than the other, or a tuple where the other passes its parts. Caches and switches for extra outputs, which a
checkpointed branch leaves out on purpose, may differ, and so may arguments that the block does not look at or that are
what it takes without them.

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
from typing import TYPE_CHECKING, NamedTuple

from ..facts.values import Attr, Unknown, Value, same
from ..finding import Severity
from ..model.conditions.arguments import Argument, effect_of_lack
from ..model.events import Checkpoint, TorchCheckpoint
from ..model.report import Remark, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.calls import Call
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT128", "diverging-checkpoint-branch", Severity.ERROR
NEEDS = (TorchCheckpoint,)
#: What a checkpointed branch leaves out on purpose.
_MAY_DIFFER = re.compile(r"cache|past|state|output_|return_|use_|need_|kwargs|debug|verbose|inference|incremental")


def check(run: Run) -> Iterator[Report]:
    """Report pairs of branches that differ in what they pass to the same block."""
    for event in run.of(Checkpoint):
        plain = next((call for call in run.calls_beside(event.call) if _is_other_branch(event, call)), None)
        found = _difference(event, plain) if plain is not None else None
        if plain is not None and found is not None:
            yield Report(
                event.node,
                f"the checkpointed and the plain call of this block differ: {found.text}, so checkpointing "
                f"changes what is computed; pass the same arguments in both",
                notes=(Remark(plain.node, "the plain call", decides=False),),
                assumes=found.assumes,
            )


class _Difference(NamedTuple):
    """How two calls differ, in words, and what must hold for it to matter."""

    text: str
    assumes: str | None = None


def _is_other_branch(event: Checkpoint, plain: Call) -> bool:
    return _called(plain.func, event) and event.place.excludes(plain.place)


def _called(function: Value, event: Checkpoint) -> bool:
    mine = event.function
    if isinstance(mine, Attr) and mine.name in ("forward", "__call__"):
        mine = mine.base
    return not isinstance(function, Unknown) and same(function, mine)


def _difference(event: Checkpoint, plain: Call) -> _Difference | None:
    """How the arguments differ in what they do; None when they do not or cannot be compared."""
    if event.call.via or plain.via or event.call.open_args or plain.open_args:
        return None
    sides = _Side(event.call, 1), _Side(plain, 0)
    given, wanted = (side.arguments() for side in sides)
    if given is None or wanted is None:
        return None
    if len(given) == 1 and len(wanted) > 1 and isinstance(given[0].node, ast.Tuple):
        packed = _names(given[0].node) >= _names(wanted[0].node)
        return _Difference("one passes a tuple, the other its parts") if packed else None
    (few, lacking), (many, having) = sorted(zip((given, wanted), sides, strict=True), key=lambda side: len(side[0]))
    known = set().union(*(_names(argument.node) for argument in few)) if few else set()
    missing = [argument for argument in many if _counts(argument.node) and not _names(argument.node) & known]
    if not missing or len(few) == len(many) or len(missing) > len(many) - len(few):
        return None
    return _of_effect(missing, lacking, having, "checkpointed" if few is given else "plain")


def _of_effect(missing: list[Argument], lacking: _Side, having: _Side, side: str) -> _Difference | None:
    """What of ``missing`` changes the result; under a condition when all of that may be None."""
    effects = {argument: effect_of_lack(argument, lacking.call, lacking.first, having.call) for argument in missing}
    certain = [argument for argument, effect in effects.items() if effect]
    possible = [argument for argument, effect in effects.items() if effect is None]
    if not certain and not possible:
        return None
    quoted = [f"`{ast.unparse(argument.node)}`" for argument in certain or possible]
    assumes = None if certain else f"{' or '.join(quoted)} is given"
    return _Difference(f"the {side} one lacks {', '.join(quoted)}", assumes)


class _Side(NamedTuple):
    """One of the two calls, and where the arguments for the block begin."""

    call: Call
    first: int

    def arguments(self) -> list[Argument] | None:
        """The arguments of the block as they are written; None when some are not."""
        node = self.call.node
        keywords = [word for word in node.keywords if not self.first or word.arg not in Checkpoint.OWN]
        if any(isinstance(part, ast.Starred) for part in node.args) or any(word.arg is None for word in keywords):
            return None
        values = zip(node.args[self.first :], self.call.args[self.first :], strict=True)
        found = [Argument(part, value, position, None) for position, (part, value) in enumerate(values)]
        named = [(word, self.call.kwargs[word.arg]) for word in keywords if word.arg is not None]
        return found + [Argument(word.value, value, None, word.arg) for word, value in named]


def _counts(argument: ast.expr) -> bool:
    """Whether leaving ``argument`` out changes the result: constants and caches may be left out."""
    names = _names(argument)
    return bool(names) and not any(_MAY_DIFFER.search(name) for name in names)


def _names(node: ast.expr) -> set[str]:
    found = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return found - {"self"} | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
