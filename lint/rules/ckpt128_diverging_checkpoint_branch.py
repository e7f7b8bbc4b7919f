"""A checkpointed branch that calls the block with other arguments than the plain branch.

## What it does
Flags `if self.checkpointing: y = checkpoint(block, ...)` with `else: y = block(...)` where one branch passes fewer
arguments than the other, the same ones to other parameters, or a tuple where the other passes its parts; where one
takes an element of the result and the other all of it; where one runs a block twice instead of the next one; where one
gives None for what the other gives; and where one goes on with the result (`x + block(x)`, `block(x) + skip(x)`,
`self.scale * block(x)`, a layer behind it) and the other leaves it as it is, where the switch is asked once and no
layer has a number; an input that is added in a loop over blocks counts where the mode alone decides, too. A function or
method that only passes on (`create_custom_forward(block)`, a lambda, `self._checkpointed(x)`) is seen through, two
loops over the same blocks are compared like the branches of one loop, what follows an early `return` or `continue` is
the other branch, and a branch for other versions of torch is passed over. What a call of
`self._gradient_checkpointing_func(block, ...)` passes is compared too: transformers puts torch's checkpoint there.
Caches and switches for extra outputs, which a checkpointed branch leaves out on purpose, may differ, and so may the
number of the layer and arguments that the block does not look at or that are what it takes without them. A switch
(`residual=False`) counts where the block adds a term to its result by it; where the mode decides, its input.

A mask whose default is None counts where no call in the program leaves it out.

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

```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.mlp, self.drop = nn.Sequential(nn.Linear(dim, dim), nn.GELU()), nn.Dropout(0.1)
        self.scale = nn.Parameter(torch.ones(dim))
        self.grad_ckpt = False

    def inner(self, x, skip, gate):
        return self.mlp(x) * gate + skip

    def _checkpointed(self, x, skip, gate):
        return checkpoint(self.inner, x, gate, skip, use_reentrant=False)  # error

    def scaled(self, x):
        if self.grad_ckpt and self.training:
            return checkpoint(self.mlp, x, use_reentrant=False)  # error
        x = self.mlp(x)
        return self.drop(x)

    def swapped(self, x, skip, gate):
        if self.grad_ckpt:
            return self._checkpointed(x, skip, gate)
        return self.inner(x, skip, gate)

    def forward(self, x):
        recompute = self.grad_ckpt and self.training
        x = checkpoint(self.head, x, use_reentrant=False) if recompute else self.head(x).tanh()  # error
        return self.encode(x)

    def encode(self, x):
        recompute = self.grad_ckpt and self.training
        for block in self.blocks:
            if recompute:
                x = checkpoint(block, x, None, use_reentrant=False)  # error
                continue
            x = block(x, torch.ones(4, 4).tril())
        return x

    def mixed(self, x):
        if self.grad_ckpt:
            return checkpoint(self.mlp, x, use_reentrant=False)  # error
        return x + self.mlp(x)

    def other(self, x):
        if self.grad_ckpt:
            x = x + checkpoint(self.attn, self.norm1(x), use_reentrant=False)  # error
            x = x + checkpoint(self.attn, self.norm2(x), use_reentrant=False)
        else:
            x = x + self.attn(self.norm1(x))
            x = x + self.mlp(self.norm2(x))
        return x

    def defaults(self, x, bias):
        if self.grad_ckpt:
            return checkpoint(self.biased, x, bias, use_reentrant=False)  # error
        return self.biased(x, bias, scale=0.5)

    def biased(self, x, bias, scale=1.0):
        return (self.mlp(x) + bias) * scale
```

```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Decoder(nn.Module):
    def __init__(self, dim, use_checkpoint=False):
        super().__init__()
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(dim, 8) for _ in range(12))
        self.use_checkpoint = use_checkpoint

    def forward(self, x: torch.Tensor, attn_mask: torch.Tensor | None = None) -> torch.Tensor:
        for layer in self.layers:
            if self.use_checkpoint and self.training:
                x = checkpoint(layer, x, use_reentrant=False)  # error
            else:
                x = layer(x, src_mask=attn_mask)
        return x
```

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp = nn.Linear(8, 8)

    def forward(self, x, past=None):
        return x + self.mlp(x), past

class Encoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList([Layer() for _ in range(4)])

    def forward(self, x, stored=None):
        if self.config.grad_checkpoint:
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False)  # error
        else:
            stored = [None] * len(self.layers) if stored is None else stored
            for layer, one in zip(self.layers, stored):
                x, _ = layer(x, past=one)
        return x
```

```python
import torch.nn as nn
from transformers import PreTrainedModel

class Layer(nn.Module):
    def forward(self, hidden_states, attention_mask=None, queries=None, encoder_states=None, output_attentions=False):
        hidden_states = hidden_states if queries is None else hidden_states + queries
        hidden_states = hidden_states if attention_mask is None else hidden_states * attention_mask
        hidden_states = hidden_states if encoder_states is None else hidden_states + encoder_states
        return (hidden_states, output_attentions)

class Decoder(PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.layers = nn.ModuleList([Layer() for _ in range(config.layers)])
        self.gradient_checkpointing = False

    def forward(self, hidden_states, attention_mask, queries, encoder_states):
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                outputs = self._gradient_checkpointing_func(  # error
                    layer.__call__, hidden_states, attention_mask, encoder_states
                )
            else:
                outputs = layer(
                    hidden_states, attention_mask=attention_mask, queries=queries, encoder_states=encoder_states
                )
            hidden_states = outputs[0]
        return hidden_states
```

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Attention(nn.Module):
    def forward(self, x, context=None, timestep=None, scale=None, return_dict=True):
        x = x + context if timestep is None else x + context + timestep
        x = x if scale is None else x * scale
        return {"sample": x} if return_dict else (x,)

class Stage(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList([Attention() for _ in range(layers)])
        self.gradient_checkpointing = False

    def forward(self, x, context, scale=None):
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                def create_custom_forward(module, return_dict=None):
                    def custom_forward(*inputs):
                        if return_dict is not None:
                            return module(*inputs, return_dict=return_dict)
                        return module(*inputs)
                    return custom_forward

                passed = create_custom_forward(layer, return_dict=False)
                x = checkpoint(passed, x, context, scale, use_reentrant=False)[0]  # error
            else:
                x = layer(x, context=context, scale=scale)["sample"]
        return x
```

```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.shift, self.scale = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, condition, time):
        return x * self.scale(time) + self.shift(condition)

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])

    def through(self, module):
        def run(*inputs):
            outputs = module(*inputs)
            return outputs
        return run

    def cast(self, module):
        def run(*inputs):
            with torch.autocast("cuda", torch.bfloat16):
                return module(*inputs)
        return run

    def forward(self, x, condition, time):
        for block in self.blocks:
            if self.training:
                x = checkpoint(self.through(block), x, time, condition, use_reentrant=False)  # error
            else:
                x = block(x, condition, time)
        for block in self.blocks:
            if self.training:
                x = checkpoint(self.cast(block), x, time, condition, use_reentrant=False)  # error
            else:
                x = block(x, condition, time)
        return x
```

## Good
```python
import torch.nn as nn
from transformers import PreTrainedModel

class Layer(nn.Module):
    def forward(self, hidden_states, attention_mask=None, past_key_value=None, output_attentions=False, use_cache=0):
        hidden_states = hidden_states if attention_mask is None else hidden_states * attention_mask
        return (hidden_states, past_key_value, output_attentions, use_cache)

class Decoder(PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.layers = nn.ModuleList([Layer() for _ in range(config.layers)])
        self.gradient_checkpointing = False

    def forward(self, hidden_states, attention_mask, past_key_values, output_attentions, use_cache):
        for layer, past in zip(self.layers, past_key_values):
            if self.gradient_checkpointing and self.training:
                outputs = self._gradient_checkpointing_func(
                    layer.__call__, hidden_states, attention_mask, None, output_attentions, use_cache
                )
            else:
                outputs = layer(
                    hidden_states,
                    attention_mask=attention_mask,
                    past_key_value=past,
                    output_attentions=output_attentions,
                    use_cache=use_cache,
                )
            hidden_states = outputs[0]
        return hidden_states
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self, dim, drop=0.0):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(dim, dim), nn.GELU())
        self.drop, self.out = nn.Dropout(drop), nn.Identity()
        self.scale, self.grad_ckpt = 1.0, False

    def inner(self, x, skip, gate=None):
        return self.mlp(x) + skip if gate is None else self.mlp(x) * gate + skip

    def _checkpointed(self, x, gate, skip):
        return checkpoint(self.inner, x, skip, gate, use_reentrant=False)

    def same(self, x, skip, gate):
        if self.grad_ckpt and self.training:
            return self._checkpointed(x, gate, skip)
        return self.inner(x, gate=gate, skip=skip)

    def in_two_steps(self, x):
        if self.grad_ckpt and self.training:
            return self.drop(checkpoint(self.mlp, x, use_reentrant=False))
        hidden = self.mlp(x)
        return self.drop(hidden)

    def without_effect(self, x):
        if self.grad_ckpt:
            return checkpoint(self.mlp, x, use_reentrant=False)
        return self.drop(self.out(self.scale * self.mlp(x).contiguous()))  # `drop` is 0 unless a caller says otherwise

    def by_default(self, x, bias):
        if self.grad_ckpt:
            return checkpoint(self.biased, x, bias, use_reentrant=False)
        return self.biased(x, bias, scale=1.0, return_dict=True)

    def biased(self, x, bias, scale=1.0, return_dict=False):
        return (self.mlp(x) + bias) * scale

    def in_turn(self, x, gate):
        if self.grad_ckpt:
            x = checkpoint(self.out, x, gate, use_reentrant=False)
        else:
            x = self.out(x, gate)
        if self.grad_ckpt:
            x = checkpoint(self.out, x, [gate], use_reentrant=False)
        else:
            x = self.out(x, [gate])
        return x

    def of_evaluation(self, x):
        if self.training:
            return checkpoint(self.mlp, x, use_reentrant=False)
        return self.mlp(x).softmax(-1)

    def of_data(self, x, mask=None):
        if self.grad_ckpt and mask is None:
            return checkpoint(self.mlp, x, use_reentrant=False)
        x = self.mlp(x)
        return x if mask is None else x * mask
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
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Decoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(dim, 8) for _ in range(12))
        self.use_checkpoint = True

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.use_checkpoint else layer(x, mask)
        return x

    def masked_before(self, x, mask=None):
        if mask is not None:
            x = x * mask
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.use_checkpoint else layer(x, mask)
        return x

def train(loader):
    model = Decoder(64)
    for x in loader:
        model(x).sum().backward()  # nothing in the program has a mask
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def forward(self, x, past=None, use_cache=False):
        return (x + 1, past) if use_cache else x + 1

class Pair(nn.Module):
    def forward(self, x, past=None):
        return x + 1, past

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.pair, self.checkpointing = nn.ModuleList([Layer() for _ in range(4)]), Pair(), True

    def forward(self, x, stored=None):
        for layer, one in zip(self.layers, stored):
            if self.checkpointing:
                x = checkpoint(layer, x, use_reentrant=False)
            else:
                x, _ = layer(x, past=one, use_cache=True)
        if self.checkpointing:
            y = checkpoint(self.pair, x, use_reentrant=False)
            y = y[0]
        else:
            y, _ = self.pair(x, past=stored)
        return y
```

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Attention(nn.Module):
    def forward(self, x, context=None, timestep=None, scale=None, return_dict=True):
        x = x + context if timestep is None else x + context + timestep
        x = x if scale is None else x * scale
        return {"sample": x} if return_dict else (x,)

class Stage(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList([Attention() for _ in range(layers)])
        self.gradient_checkpointing = False

    def forward(self, x, context, scale=None):
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                def create_custom_forward(module, return_dict=None):
                    def custom_forward(*inputs):
                        if return_dict is not None:
                            return module(*inputs, return_dict=return_dict)
                        return module(*inputs)
                    return custom_forward

                passed = create_custom_forward(layer, return_dict=False)
                x = checkpoint(passed, x, context, None, scale, use_reentrant=False)[0]
            else:
                x = layer(x, context=context, scale=scale)["sample"]
        return x
```

```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.shift, self.scale = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, condition, time):
        return x * self.scale(time) + self.shift(condition)

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])

    def through(self, module):
        def run(*inputs):
            outputs = module(*inputs)
            return outputs
        return run

    def cast(self, module):
        def run(*inputs):
            with torch.autocast("cuda", torch.bfloat16):
                return module(*inputs)
        return run

    def forward(self, x, condition, time):
        for block in self.blocks:
            if self.training:
                x = checkpoint(self.through(block), x, condition, time, use_reentrant=False)
            else:
                x = block(x, condition, time)
        for block in self.blocks:
            if self.training:
                x = checkpoint(self.cast(block), x, condition, time, use_reentrant=False)
            else:
                x = block(x, condition, time)
        return x
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
from ..model.branches.argument_differences import difference, is_mask_to_pass
from ..model.branches.other_blocks import other_blocks
from ..model.branches.paired_calls import checkpointed_sides, paired
from ..model.events import LayerCheckpoint, TorchCheckpoint
from ..model.report import Remark, Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT128", "diverging-checkpoint-branch", Severity.ERROR
NEEDS = (TorchCheckpoint, LayerCheckpoint)


def check(run: Run) -> Iterator[Report]:
    """Report pairs of branches that differ in what they pass to the same block."""
    events: list[TorchCheckpoint | LayerCheckpoint] = [*run.of(TorchCheckpoint), *run.of(LayerCheckpoint)]
    for event in events:
        pairs = (paired(side, run) for side in checkpointed_sides(event, run))
        pair = next((pair for pair in pairs if pair is not None), None)
        found = None if pair is None else difference(pair, run)
        if pair is not None and found is not None:
            function = pair.mine.place.function
            meant = found.optional and all(is_mask_to_pass(run, part, function) for part in found.optional)
            yield Report(
                event.node,
                f"the checkpointed and the plain call of this block differ: {found.text}, so checkpointing "
                f"changes what is computed; {found.advice}",
                notes=(Remark(pair.plain.call.node, "the plain call", decides=False),),
                assumes=None if meant else found.assumes,
            )
    for checkpoint, other in other_blocks(run):
        yield Report(
            checkpoint.node,
            f"the checkpointed branch {other.text}, so checkpointing changes what is computed; run the same blocks in "
            "both",
            notes=(Remark(other.plain, "the plain call", decides=False),),
        )
