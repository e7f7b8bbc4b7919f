"""A checkpointed branch that calls the block with other arguments than the plain branch.

## What it does
Flags `if self.checkpointing: y = checkpoint(block, ...)` with `else: y = block(...)` where one branch passes fewer
arguments than the other, the same ones to other parameters, or a tuple where the other passes its parts; where one
takes an element of the result and the other all of it; and where one runs a block twice instead of the next one. A
function that only passes on (`create_custom_forward(block)`, a lambda) is seen through, two loops over the same blocks
are compared like the branches of one loop, and a branch for other versions of torch is passed over. Caches and switches
for extra outputs, which a checkpointed branch leaves out on purpose, may differ, and so may the number of the layer and
arguments that the block does not look at or that are what it takes without them.

Only branches that a switch of checkpointing (named `checkpoint`, `ckpt`, `recompute`, `cp` and the like) or the mode
decides are compared. What the data decides, `if mask is None`, may differ, and so may arguments that only training has.

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

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def forward(self, x, mask=None, bias=None):
        x = x if mask is None else x * mask
        return x if bias is None else x + bias

class Biased(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.checkpointing = Block(), True

    def forward(self, x, mask, bias):
        if self.checkpointing:
            x = checkpoint(self.block, x, bias, mask, use_reentrant=False)  # error
        else:
            x = self.block(x, mask, bias)
        if self.checkpointing and x.requires_grad:
            return checkpoint(self.block, x, bias, use_reentrant=False)  # error
        return self.block(x, bias=bias)

class Video(nn.Module):
    def forward(self, x, bias):
        for spatial, temporal in zip(self.spatial, self.temporal):
            if self.checkpointing:
                x = checkpoint(spatial, x, use_reentrant=False)  # error
                x = checkpoint(spatial, x, use_reentrant=False)  # error
            else:
                x = spatial(x)
                x = temporal(x)
        if self.checkpointing:
            x = checkpoint(self.mixer, x, [bias], use_reentrant=False)  # error
        else:
            x = self.mixer(x, bias=bias)
        if self.checkpointing:
            x = checkpoint(self.head, x, use_reentrant=False)  # error
        else:
            x, weights = self.head(x)
        return x
```

## Good
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def forward(self, x, mask=None, bias=None):
        x = x if mask is None else x * mask
        return x if bias is None else x + bias

class Biased(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.checkpointing = Block(), True

    def forward(self, x, mask, bias):
        if self.checkpointing:
            x = checkpoint(self.block, x, mask, bias, use_reentrant=False)
        else:
            x = self.block(x, bias=bias, mask=mask)
        if self.checkpointing:
            x = checkpoint(self.head, x, use_reentrant=False)[0]
        else:
            x, weights = self.head(x)
        if self.training:
            x = checkpoint(self.tail, x, use_reentrant=False)
        else:
            x, weights = self.tail(x)  # may return its weights in evaluation only
        return x
```
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

    def consumed(self, x, mask, cache):
        if cache is not None:
            held = [x]
            x = self.blocks[0](held, mask, cached=cache.of(0))
        elif self.checkpointing:
            x = checkpoint(self.blocks[0], x, mask, use_reentrant=False)
        return x

    def loops(self, x, mask):
        if self.checkpointing:
            for block in self.blocks:
                x = checkpoint(lambda h, b=block: b(h, mask), x, use_reentrant=False)
        else:
            for block in self.blocks:
                x = block(x, mask)
        return x

    def chosen_by_data(self, x, masks=None):
        if masks is None:
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False)
        else:
            for block, mask in zip(self.blocks, masks):
                x = block(x, mask)
        return x

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

from typing import TYPE_CHECKING

from ..finding import Severity
from ..model.conditions.paired_calls import checkpointed_sides, difference, paired
from ..model.events import Checkpoint, TorchCheckpoint
from ..model.report import Remark, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT128", "diverging-checkpoint-branch", Severity.ERROR
NEEDS = (TorchCheckpoint,)


def check(run: Run) -> Iterator[Report]:
    """Report pairs of branches that differ in what they pass to the same block."""
    for event in run.of(Checkpoint):
        pairs = (paired(side, run) for side in checkpointed_sides(event, run))
        pair = next((pair for pair in pairs if pair is not None), None)
        found = None if pair is None else difference(pair)
        if pair is not None and found is not None:
            yield Report(
                event.node,
                f"the checkpointed and the plain call of this block differ: {found.text}, so checkpointing "
                f"changes what is computed; pass the same arguments in both",
                notes=(Remark(pair.plain.call.node, "the plain call", decides=False),),
                assumes=found.assumes,
            )
