"""A checkpoint call whose result nobody uses.

## What it does
Flags `checkpoint(block, x)` whose result goes nowhere: a statement of its own, a comprehension that is one, a name that
nothing reads afterwards, a `return` whose callers drop it. In a method of a module this holds when the block is one of
its modules, elsewhere when this file shows that the function returns a value and changes nothing else, or when a loop
gives each block of a module the same input and the code behind it goes on with that. Where a function returns the
result, its callers count: one that drops it is flagged though others use it. A file that registers forward hooks is
left alone: they may keep what is returned.

The same goes for `checkpoint_wrapper(layer)`, which returns a new module and leaves the model as it is: bound to the
variable of the loop, sharded there and nothing else, collected in a list that nobody reads
(`list(map(checkpoint_wrapper, layers))`), given to `Module.apply`.

## Why is this bad?
A checkpointed function gives its result back like any other. When it is dropped, the block computes for nothing: `x`
stays what it was, and the block gets no gradients. A wrapper that is dropped checkpoints nothing.

## Bad
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        for block in self.blocks:
            checkpoint(block, x, use_reentrant=False)  # error
        return x
```
```python
from torch.utils.checkpoint import checkpoint

def block(x):
    return x.relu()

def run(x):
    checkpoint(block, x, use_reentrant=False)  # error
    return x
```

```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x):
        for block in self.blocks:
            _ = checkpoint(block, x, use_reentrant=False)  # error
        y = checkpoint(self.blocks[0], x, use_reentrant=False)  # error
        [checkpoint(block, x, use_reentrant=False) for block in self.blocks]  # error
        return x
```
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard

def wrap_layers(model):
    for layer in model.layers:
        layer = checkpoint_wrapper(layer)  # error
    for index, layer in enumerate(model.layers):
        checkpoint_wrapper(layer)  # error
    wrapped = [checkpoint_wrapper(layer) for layer in model.layers]  # error
    return model

def shard_layers(model):
    for layer in model.layers:
        layer = checkpoint_wrapper(layer)  # error
        fully_shard(layer)
    fully_shard(model)

def wrapped(module):
    return checkpoint_wrapper(module)  # error

def wrap_head(model):
    wrapped(model.head)
    model.apply(lambda module: checkpoint_wrapper(module))  # error
    return model
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(*[nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)) for _ in range(8)])

def features(model, x):
    for block in model.tower:
        checkpoint(block, x, use_reentrant=False)  # error
    return x.mean(1)
```
```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

def wrap_blocks(module):
    for name, child in module.named_children():
        if isinstance(child, nn.TransformerEncoderLayer):
            child = checkpoint_wrapper(child)  # error
        else:
            wrap_blocks(child)

def wrap_first(module):
    for name, child in module.named_children():
        if isinstance(child, nn.TransformerEncoderLayer):
            child = checkpoint_wrapper(child)  # error
            continue
        wrap_first(child)
```

## Good
```python
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

def wrap_blocks(module):
    for name, child in module.named_children():
        if isinstance(child, nn.TransformerEncoderLayer):
            child = checkpoint_wrapper(child)
        else:
            wrap_blocks(child)
        setattr(module, name, child)

def wrap_once(module):
    last = None
    for child in module.layers:
        if last is None:
            last = checkpoint_wrapper(child)
        else:
            module.last = last
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

torch.set_grad_enabled(False)  # whoever trains the module switches gradients on

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.kept = nn.Linear(4, 4), []

    def remember(self, x):
        self.kept.append(self.block(x))

    def forward(self, x):
        checkpoint(self.remember, x, use_reentrant=False)
        return self.kept[-1]

net = Net()

def train(x):
    with torch.enable_grad():
        net(x).sum().backward()

train(torch.ones(2, 4))
```
```python
import torch
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

def wrap_layers(model):
    for index, layer in enumerate(model.layers):
        layer = checkpoint_wrapper(layer)
        fully_shard(layer)
        model.layers[index] = layer
    wrapped = [checkpoint_wrapper(layer) for layer in model.blocks]
    model.blocks = nn.ModuleList(wrapped)
    model.head = checkpoint_wrapper(model.head)
    return model

class Net(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block
        self.kept = []

    def remember(self, x):
        self.kept.append(x * 2)

    def double(self, x):
        self.last = x * 2
        return self.last

    def forward(self, x):
        checkpoint(self.remember, x, use_reentrant=False)
        checkpoint(self.double, x, use_reentrant=False)
        x = checkpoint(self.block, x, use_reentrant=False)
        checkpoint(self.block, x, use_reentrant=False).sum().backward()
        return x

class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower = nn.Sequential(*[nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8)) for _ in range(8)])

def warm_up(model, x):
    for block in model.tower:
        checkpoint(block, x, use_reentrant=False)

@torch.no_grad()
def dry_run(model, x):
    for block in model.tower:
        checkpoint(block, x, use_reentrant=False)
    return x

def each(functions, x):
    for function in functions:
        checkpoint(function, x, use_reentrant=False)
    return x

def measure(block, x):
    with torch.profiler.profile() as profile:
        checkpoint(block, x, use_reentrant=False)
    return profile
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Collecting(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block, self.outputs = block, []
        self.block.register_forward_hook(lambda module, inputs, output: self.outputs.append(output))

    def forward(self, x):
        checkpoint(self.block, x, use_reentrant=False)
        return self.outputs[-1]
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint

block, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
x = torch.ones(2, 4)
checkpoint(block, x, use_reentrant=False)
head(x).sum().backward()
assert block.weight.grad is None and head.weight.grad is not None
assert torch.equal(x, torch.ones(2, 4))
```

## References
torch 2.13 `torch/utils/checkpoint.py`, `checkpoint` ("Output of running function on args").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Function
from ..finding import Severity
from ..model.events import Checkpoint, CheckpointWrap, TorchCheckpoint, names_wrapper
from ..model.flow.unused import dropped_at
from ..model.report import Report
from ..model.results.dropped import dropping_call, is_dropped

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT209", "discarded-checkpoint-result", Severity.ERROR
NEEDS = (TorchCheckpoint, CheckpointWrap)


def check(run: Run) -> Iterator[Report]:
    """Report results that nothing uses."""
    yield from _wrappers(run)
    for event in run.of(Checkpoint):
        at = dropped_at(run, event.call) or event.call if is_dropped(run, event) else dropping_call(run, event)
        if at is not None:
            yield Report(
                at.node,
                "the result of this checkpoint is not used, so the block computes for nothing and gets no gradients; "
                "assign it: `x = checkpoint(block, x, ...)`",
            )


def _wrappers(run: Run) -> Iterator[Report]:
    """Wrappers that are made and never put into a model."""
    dropped = [event.node for event in run.of(CheckpointWrap) if is_dropped(run, event)]
    dropped += [at.node for event in run.of(CheckpointWrap) if (at := dropping_call(run, event)) is not None]
    for call in run.method_calls("apply"):
        dropped += [node for value in call.args[:1] for node in _wrapped_by(run, value)]
        if call.args and names_wrapper(call.args[0]):
            dropped.append(call.node)
    for node in dict.fromkeys(dropped):
        yield Report(
            node,
            "`checkpoint_wrapper` returns a new module, and nothing puts this one into the model, so nothing is "
            "checkpointed; assign it to where the layer was: `model.layers[i] = checkpoint_wrapper(layer)`",
        )


def _wrapped_by(run: Run, function: Value) -> list[ast.Call]:
    """The wrappers that ``function``, given to `Module.apply`, returns to nobody."""
    if not isinstance(function, Function):
        return []
    inside = [event.node for event in run.of(CheckpointWrap) if _is_in(event, function)]
    returned = {id(found.value.node) for found in run.program.returns.get(function.node, ())}
    return [node for node in inside if function.is_lambda or id(node) in returned]


def _is_in(event: CheckpointWrap, function: Function) -> bool:
    return event.place.function is not None and event.place.function.node is function.node
