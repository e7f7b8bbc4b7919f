"""Checkpointing the same blocks twice where that costs a forward pass.

## What it does
Flags a block that is checkpointed by two means of which at least one is reentrant: `checkpoint_wrapper` twice, or
torch's wrappers together with the model's own `gradient_checkpointing_enable`, which a Trainer may call, or with the
model's own calls of `checkpoint`. Also a block of this file that a loop checkpoints, by a helper or in a wrapper class
too, and whose `forward` checkpoints one of its parts, or several whose results it adds up
(`x = x + checkpoint(self.mlp, x)`), or always calls a part that checkpoints itself, as a class does from which both
derive, and an `apply_activation_checkpointing` whose `check_fn` accepts both a class of this file and a class of its
parts, or two of them for one model. A loop that wraps a part of each block and the block itself counts as well; a
check that asks for more than classes may choose some of the blocks and does not.

## Why is this bad?
With a reentrant variant among them, each level runs the block once more: three forward passes a step instead of two. A
wrapped part inside a wrapped block is recomputed once for itself and once for the block. Two non-reentrant checkpoints
around the very same block cost nothing and are not reported; neither are they when nothing that keeps tensors follows
the inner one, because the outer recomputation stops before it. A checkpointed loop over checkpointed blocks, or several
of them one after the other, spends time to save memory at two levels and is not reported either; two or three modules
of different classes in one block are its layers.

## Bad
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper

def wrap(block):
    inner = checkpoint_wrapper(block)
    return checkpoint_wrapper(inner, checkpoint_impl=CheckpointImpl.REENTRANT)  # error
```
```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

class Mlp(nn.Module):
    def forward(self, x):
        return x

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp, self.norm = Mlp(), nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(x + self.mlp(x))

def wrap(model):
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, (Block, Mlp)))  # error
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp, self.out = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)), nn.Linear(8, 8)

    def forward(self, x):
        return self.out(x + checkpoint(self.mlp, x, use_reentrant=False))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # error
        return x
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def _run(self, x):
        return self.down(self.up(x).relu())

    def forward(self, x):
        return checkpoint(self._run, x, use_reentrant=True)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), Mlp()

    def forward(self, x):
        return x + self.mlp(self.norm(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)  # error
        return x
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, use_checkpoint=True):
        super().__init__()
        self.use_checkpoint = use_checkpoint
        self.mlp = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        if self.use_checkpoint and self.training:
            x = checkpoint(self.mlp, x, use_reentrant=False)
        else:
            x = self.mlp(x)
        return self.out(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(4)])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # error
        return x

Net()
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp, self.out = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)), nn.Linear(8, 8)

    def forward(self, x):
        return self.out(x + checkpoint(self.mlp, x, use_reentrant=False))

class Recomputed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args):
        return checkpoint(self.module, *args, use_reentrant=False)  # error

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[Recomputed(Block()) for _ in range(4)])

    def forward(self, x):
        return self.blocks(x)
```
```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.utils.checkpoint import checkpoint
from transformers import LlamaForCausalLM, Trainer, TrainingArguments
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(self.up(x).relu())

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.blocks = nn.Linear(8, 8), nn.ModuleList([Block() for _ in range(4)])

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x

net = Net()
apply_activation_checkpointing(net, check_fn=lambda module: isinstance(module, Block))  # error

def train(name):
    model = LlamaForCausalLM.from_pretrained(name)
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))  # error
    kwargs = {"use_reentrant": True}
    args = TrainingArguments("out", gradient_checkpointing=True, gradient_checkpointing_kwargs=kwargs)
    Trainer(model, args).train()
```

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Recomputed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args):
        return checkpoint(self.module, *args, use_reentrant=True)  # error

class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def _run(self, x):
        return self.down(self.up(x).relu())

    def forward(self, x):
        return checkpoint(self._run, x, use_reentrant=True)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), Mlp()

    def forward(self, x):
        return x + self.mlp(self.norm(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Recomputed(Block()) for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
```

## Good
```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

class Mlp(nn.Module):
    def forward(self, x):
        return x

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), Mlp()

    def forward(self, x):
        return x + self.mlp(self.norm(x))

def wrap(model):
    # The recomputation of the block stops before its last part.
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, (Block, Mlp)))
```
```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.utils.checkpoint import checkpoint
from transformers import CLIPModel

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.mlp, self.out = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)), nn.Linear(8, 8)

    def forward(self, x):
        return self.out(x + checkpoint(self.mlp, x, use_reentrant=False))

class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(4)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

class Recomputed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return checkpoint(self.module, x, use_reentrant=False)  # stages of blocks, two levels on purpose

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stages = nn.Sequential(*[Recomputed(Stage()) for _ in range(4)])

    def forward(self, x):
        return self.stages(x)

class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(self.up(x).relu())

class Plain(nn.Module):
    def __init__(self, checkpointed=False):
        super().__init__()
        self.blocks, self.checkpointed = nn.ModuleList([Mlp() for _ in range(4)]), checkpointed

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True) if self.checkpointed else block(x)
        return x

def by_torch():
    model = Plain()
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Mlp))
    return model

def the_other_tower(name, is_text_layer):
    model = CLIPModel.from_pretrained(name)
    model.vision_model.gradient_checkpointing_enable({"use_reentrant": True})
    apply_activation_checkpointing(model, check_fn=is_text_layer)
    return model.train()
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, use_checkpoint=False):
        super().__init__()
        self.use_checkpoint = use_checkpoint
        self.mlp = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
        self.out = nn.Linear(8, 8)

    def forward(self, x, cached=False):
        if self.use_checkpoint and self.training:
            x = checkpoint(self.mlp, x, use_reentrant=False)
        elif cached and self.training:
            x = checkpoint(self.mlp, x, use_reentrant=False)
        else:
            x = self.mlp(x)
        return self.out(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(4)])

    def forward(self, x, cached):
        for block in self.blocks:
            x = checkpoint(block, x, cached, use_reentrant=False)
        return x

Net()
```
```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from transformers import AutoModelForCausalLM

class Encoder(nn.Module):
    def forward(self, x):
        return x

class Decoder(nn.Module):
    def forward(self, x):
        return x

def wrap(model, block):
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, (Encoder, Decoder)))
    return checkpoint_wrapper(checkpoint_wrapper(block))

def both_non_reentrant(name, is_layer):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable()
    apply_activation_checkpointing(model, check_fn=is_layer)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(self.up(x).relu())

class Block(nn.Module):
    def __init__(self, checkpoint_mlp=False):
        super().__init__()
        self.mlp, self.out, self.checkpoint_mlp = Mlp(), nn.Linear(8, 8), checkpoint_mlp

    def forward(self, x):
        return self.out(checkpoint(self.mlp, x, use_reentrant=False) if self.checkpoint_mlp else self.mlp(x))

class Last(Block):
    def forward(self, x):
        x = self.out(x)
        return x + checkpoint(self.mlp, x, use_reentrant=False)  # the outer recomputation stops before it

class Segment(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks, self.out = nn.ModuleList(Block() for _ in range(4)), nn.Linear(8, 8)

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # two levels, on purpose
        return self.out(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.last, self.segment = Last(), Segment()

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        x = checkpoint(self.segment, x, use_reentrant=False)
        return checkpoint(self.last, x, use_reentrant=False)
```

```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Mlp(nn.Module):
    def __init__(self, checkpointed):
        super().__init__()
        self.up, self.down, self.checkpointed = nn.Linear(8, 32), nn.Linear(32, 8), checkpointed

    def run(self, x):
        return self.down(self.up(x).relu())

    def forward(self, x):
        return checkpoint(self.run, x, use_reentrant=True) if self.checkpointed else self.run(x)

class Chosen(nn.Module):
    def __init__(self, is_wide):
        super().__init__()
        self.mlp = Checkpointed() if is_wide else nn.Linear(8, 8)
        self.norm = nn.LayerNorm(8)

    def forward(self, x):
        return self.norm(self.mlp(x))

class Checkpointed(Mlp):
    def __init__(self):
        super().__init__(True)

    def forward(self, x):
        return checkpoint(self.run, x, use_reentrant=False)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp, self.aside, self.last = nn.LayerNorm(8), Mlp(False), Checkpointed(), Checkpointed()

    def forward(self, x):
        with torch.no_grad():
            y = self.aside(x)
        return x + self.last(self.mlp(self.norm(x + y)))  # the outer recomputation stops before the last one

class Net(nn.Module):
    def __init__(self, is_wide):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.chosen = nn.ModuleList(Chosen(is_wide) for _ in range(4))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        for block in self.chosen:
            x = checkpoint(block, x, use_reentrant=False)
        return x
```

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Recomputed(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args):
        return checkpoint(self.module, *args, use_reentrant=True)

class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def _run(self, x):
        return self.down(self.up(x).relu())

    def forward(self, x):
        return checkpoint(self._run, x, use_reentrant=True)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), Mlp()

    def forward(self, x):
        return x + self.mlp(self.norm(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = Recomputed(nn.Sequential(*[Block() for _ in range(4)]))

    def forward(self, x):
        return self.tower(x)
```

## Evidence
```python
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper

def runs(*implementations, part=False):
    count = 0
    block = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 8))

    def seen(module, args):
        nonlocal count
        count += 1

    block[0].register_forward_pre_hook(seen)
    if part:
        block[0] = checkpoint_wrapper(block[0])
    for implementation in implementations:
        block = checkpoint_wrapper(block, checkpoint_impl=implementation)
    block(torch.ones(2, 8, requires_grad=True)).sum().backward()
    return count

REENTRANT, OTHER = CheckpointImpl.REENTRANT, CheckpointImpl.NO_REENTRANT
assert runs(OTHER) == runs(REENTRANT) == runs(OTHER, OTHER) == 2
assert runs(OTHER, REENTRANT) == runs(REENTRANT, REENTRANT) == 3
assert runs(OTHER, part=True) == 3
```
```python
import torch
from torch.utils.checkpoint import checkpoint

def runs(outer, inner, is_last):
    count = 0
    part, out = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)

    def run_part(x):
        nonlocal count
        count += 1
        return part(x).tanh()

    def block(x):
        x = out(x) if is_last else x
        x = x + checkpoint(run_part, x, use_reentrant=inner)
        return x if is_last else out(x)

    checkpoint(block, torch.ones(2, 8, requires_grad=True), use_reentrant=outer).sum().backward()
    return count

assert runs(False, False, is_last=False) == 3
assert runs(False, False, is_last=True) == 2
for outer, inner in ((True, False), (False, True), (True, True)):
    assert runs(outer, inner, is_last=True) == 3
```

## References
torch 2.13 `torch/utils/checkpoint.py` (early stop ends the nested recomputation of the same region).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Class, Instance, Result, options
from ..finding import Severity
from ..model.events import BlockWrapping, Checkpoint, Checkpointing, CheckpointWrap, WrapperCheckpointing
from ..model.libraries.enabled import enablings
from ..model.libraries.sharding import is_in, may_be_same_module, root
from ..model.libraries.trainer import default_versions
from ..model.names import canonical
from ..model.regions.bodies import classes_checked
from ..model.regions.module_tree import may_hold_method
from ..model.regions.nested import is_run_before_more, nested_checkpoint
from ..model.report import Remark, Report
from ..model.types import whole_model
from ..model.wrapping.check_functions import asks_for_kinds_alone
from ..model.wrapping.wrapped import wrapped_classes
from ..model.wrapping.wrapped_twice import wrapped_twice

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT402", "double-checkpointing", Severity.WARNING
NEEDS = (Checkpointing,)
_WRAPPER = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.checkpoint_wrapper"


def check(run: Run) -> Iterator[Report]:
    """Report blocks, and parts of blocks, that run three times a step."""
    for outer in run.of(CheckpointWrap):
        inner = _wrapper_around(outer.module)
        if inner is not None and (outer.reentrant or inner.reentrant):
            yield _report(outer, Remark(inner.node, "the block is checkpointed here already"))
    for checkpoint in run.used(Checkpoint):
        made = [_wrapper_around(option) for option in options(checkpoint.function)]
        wrapper = made[0] if None not in made else None
        if wrapper is not None and True in (checkpoint.reentrant, wrapper.reentrant):
            yield _report(checkpoint, Remark(wrapper.node, "the block is wrapped here already"))
    for event in run.of(WrapperCheckpointing):
        for enabling in enablings(run):
            enabled = enabling.event
            together = _is_around(enabling.model, event.module) and not enabled.place.excludes(event.place)
            if (
                together
                and None not in (event.reentrant, enabling.reentrant)
                and (event.reentrant or enabling.reentrant)
            ):
                found = _report(event, Remark(enabled.node, "the model checkpoints its layers itself"))
                yield found._replace(versions=None if event.reentrant else default_versions(enabled))
        called = _checkpointed_in_forward(run, event)
        if called is not None:
            yield _report(event, Remark(called.node, "the forward pass checkpoints the block itself"))
    for apply in run.of(BlockWrapping):
        is_plain = all(map(asks_for_kinds_alone, options(apply.check)))
        accepted = [cls for cls in classes_checked(apply.check, run.bodies) if isinstance(cls, Class) and is_plain]
        if (part := _part_of_another(run, accepted, apply.reentrant is True)) is not None:
            yield _report(apply, Remark(part.node, "this class is accepted, and so is one that contains it"))
    for event, other, is_part in wrapped_twice(run):
        what = "a part of these blocks, or all of them, is" if is_part else "the blocks are"
        yield _report(event, Remark(other.node, f"{what} wrapped here, too"))
    for outer_event in run.of(Checkpointing):
        nested = nested_checkpoint(run, outer_event)
        if nested is not None:
            yield Report(
                nested.node,
                "this block checkpoints a part of itself, so that part runs three times a step; keep one of the two",
                notes=(Remark(nested.inner, "the part is checkpointed here"),),
            )


def _checkpointed_in_forward(run: Run, wrap: WrapperCheckpointing) -> Checkpoint | None:
    """The call of `checkpoint` for what ``wrap`` wraps, where one of the two is reentrant; None for none."""
    classes = wrapped_classes(run, wrap)
    for event in run.used(Checkpoint) if classes else ():
        entered = options(event.function)
        is_it = all(isinstance(it, Instance) and it.cls in classes for it in entered) and _goes_into(wrap, event)
        if is_it and True in (wrap.reentrant, event.reentrant) and not event.place.excludes(wrap.place):
            return event
    return None


def _goes_into(wrap: WrapperCheckpointing, event: Checkpoint) -> bool:
    """Whether what ``wrap`` gives may be what ``event`` checkpoints."""
    if isinstance(wrap, CheckpointWrap):
        return may_be_same_module(wrap.module, event.function)
    return may_hold_method(wrap.module, event.place.function)


def _is_around(model: Value, module: Value) -> bool:
    """Whether what checkpoints its own layers surely holds ``module``: a tower holds none of another one's."""
    whole = whole_model(model)
    return root(model) is root(module) and (whole is root(model) or is_in(module, whole))


def _wrapper_around(module: Value) -> CheckpointWrap | None:
    if isinstance(module, Result) and canonical(module.call.name) == _WRAPPER:
        return CheckpointWrap(module.call)
    return None


def _part_of_another(run: Run, accepted: list[Class], is_reentrant: bool) -> Class | None:
    """The accepted class whose objects run inside those of another accepted class, once more than in that alone."""
    for whole in accepted:
        inside = run.bodies.of(whole.instance).modules
        for part in accepted:
            is_inside = part is not whole and any(getattr(module, "cls", None) is part for module in inside)
            if is_inside and (is_reentrant or is_run_before_more(run, whole, part)):
                return part
    return None


def _report(event: WrapperCheckpointing | Checkpoint, note: Remark) -> Report:
    return Report(
        event.node,
        "the same block is checkpointed twice, so it runs three times a step; keep one of the two",
        notes=(note,),
    )
