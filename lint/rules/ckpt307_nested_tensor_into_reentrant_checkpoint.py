"""A tensor with a graph inside a container or closure that several reentrant checkpoints share.

## What it does
Flags a reentrant checkpoint in a loop that gets a tensor, computed by a module before the loop, inside a list, tuple or
dict, by a `functools.partial`, or through a lambda that closes over it.

## Why is this bad?
The reentrant variant detaches only what it is given directly. Each segment's own backward pass then goes on through the
graph of the shared tensor, and the second one finds it freed:
`RuntimeError: Trying to backward through the graph a second time`. `retain_graph=True` does not help.

## Bad
```python
import torch
import torch.nn as nn
from functools import partial
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 1, batch_first=True)

    def forward(self, x, context):
        return x + self.attend(x, context["memory"], context["memory"])[0]

class Decoder(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.context = nn.Linear(8, 8)
        self.blocks = blocks

    def forward(self, x, condition):
        context = self.context(condition)
        for block in self.blocks:
            x = checkpoint(block, x, [context], use_reentrant=True)  # error
        for block in self.blocks:
            x = checkpoint(block, x, {"context": context}, use_reentrant=True)  # error
        for block in self.blocks:
            x = checkpoint(partial(block, context=context), x, use_reentrant=True)  # error
        for block in self.blocks:
            x = checkpoint(lambda h, block=block: block(h, context), x, use_reentrant=True)  # error
        memory = torch.tanh(context) + 1
        for block in self.blocks:
            x = checkpoint(block, x, [memory, memory.flip(1)], use_reentrant=True)  # error
        for block in self.blocks:
            x = checkpoint(block, x, {"both": (memory, condition)}, use_reentrant=True)  # error
        return x
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 1, batch_first=True)

    def forward(self, x, context):
        return x + self.attend(x, context["memory"], context["memory"])[0]

class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.layers = nn.Conv2d(3, 8, 4), nn.ModuleList(Layer() for _ in range(4))

    def encode(self, image):
        return self.stem(image).flatten(2).transpose(1, 2)

    def forward(self, image, x):
        context = {"memory": self.encode(image)}
        for layer in self.layers:
            x = checkpoint(layer, x, context, use_reentrant=True)  # error
        return x
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 1, batch_first=True)

    def forward(self, x, context):
        return x + self.attend(x, context[0], context[0], key_padding_mask=context[1])[0]

class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), 2)
        self.states, self.layers = nn.LSTM(8, 8), nn.ModuleList(Layer() for _ in range(4))

    def encode(self, source, padding):
        return self.encoder(source, src_key_padding_mask=padding), padding

    def forward(self, x, source, padding):
        context = self.encode(source, padding)
        for layer in self.layers:
            x = checkpoint(layer, x, context, use_reentrant=True)  # error
        states, _ = self.states(source)
        for layer in self.layers:
            x = checkpoint(layer, x, [states, padding], use_reentrant=True)  # error
        return x
```

## Good
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 1, batch_first=True)

    def forward(self, x, context):
        return x + self.attend(x, context[0], context[0])[0]

class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), 2)
        self.states, self.layers = nn.LSTM(8, 8), nn.ModuleList(Layer() for _ in range(4))
        self.attend = nn.MultiheadAttention(8, 1, batch_first=True)

    def forward(self, x, source):
        with torch.no_grad():
            fixed, _ = self.states(source)
        attended, weights = self.attend(x, x, x, need_weights=False)
        for layer in self.layers:
            x = checkpoint(layer, x, [fixed, self.encoder(source).detach()], use_reentrant=True)
        for layer in self.layers:
            states, _ = self.states(x)
            x = checkpoint(layer, x, [states, weights], use_reentrant=True)
        for layer in self.layers:
            x = checkpoint(layer, x, self.encoder(source), use_reentrant=True)
        return x + attended
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 1, batch_first=True)

    def forward(self, x, context):
        return x + self.attend(x, context["memory"], context["memory"])[0]

class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.layers = nn.Conv2d(3, 8, 4), nn.ModuleList(Layer() for _ in range(4))

    @torch.no_grad()
    def encode(self, image):
        return self.stem(image).flatten(2).transpose(1, 2)

    def project(self, x):
        return self.stem(x)

    def forward(self, image, x):
        x, context = self.stem(x), {"memory": self.encode(image)}
        for layer in self.layers:
            x = checkpoint(layer, x, context, use_reentrant=True)
        for layer in self.layers:
            x = checkpoint(layer, x, {"memory": self.project(x)}, use_reentrant=True)
        return x
```
```python
import torch
import torch.nn as nn
from functools import partial
from torch.utils.checkpoint import checkpoint

class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("frequencies", torch.ones(8))

    def forward(self, x):
        return x.detach() * self.frequencies

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 1, batch_first=True)

    def forward(self, x, context):
        return x + self.attend(x, context["memory"], context["memory"])[0]

class Decoder(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.context = nn.Linear(8, 8)
        self.rotary = Rotary()
        self.blocks = blocks

    def forward(self, x, condition, mask):
        context = self.context(condition)
        positions = self.rotary(x)
        with torch.no_grad():
            fixed = self.context(condition)
        x = checkpoint(lambda h: h + context, x, use_reentrant=True)
        for block in self.blocks:
            x = checkpoint(block, x, context, use_reentrant=True)
            x = checkpoint(block, x, [context], use_reentrant=False)
            x = checkpoint(block, x, [mask, fixed], use_reentrant=True)
            x = checkpoint(block, x, [context.detach()], use_reentrant=True)
            x = checkpoint(partial(block, mask=mask, positions=positions), x, use_reentrant=True)
            x = checkpoint(lambda h, block=block: block(h, context.detach()), x, use_reentrant=True)
            x = checkpoint(block, x, [self.context(x)], use_reentrant=True)
            x = checkpoint(block, x, [torch.tanh(context.detach()), context > 0], use_reentrant=True)
            x = checkpoint(block, x, [context.argmax(-1), context.to(torch.long)], use_reentrant=True)
            x = checkpoint(block, x, [torch.tanh(fixed) + mask, fixed.flip(0)], use_reentrant=True)
            x = checkpoint(block, x, [x, x.flip(0)], use_reentrant=True)
        return x
```

## Fix safety
Unsafe: the non-reentrant variant runs instead of none at all.

## Evidence
```python
import torch
from functools import partial
from torch.utils.checkpoint import checkpoint

context_layer, blocks = torch.nn.Linear(4, 4), [torch.nn.Linear(4, 4) for _ in range(2)]

def block_forward(block, x, context):
    held = context["context"] if isinstance(context, dict) else context
    return (block(x) + (held[0] if isinstance(held, list) else held)).tanh()

def problem(form, reentrant, segments=2):
    context, x = context_layer(torch.ones(2, 4)), torch.ones(2, 4, requires_grad=True)
    for block in blocks[:segments]:
        run = partial(block_forward, block)
        if form == "flat":
            x = checkpoint(run, x, context, use_reentrant=reentrant)
        elif form == "list":
            x = checkpoint(run, x, [context], use_reentrant=reentrant)
        elif form == "dict":
            x = checkpoint(run, x, {"context": context}, use_reentrant=reentrant)
        elif form == "partial":
            x = checkpoint(partial(run, context=context), x, use_reentrant=reentrant)
        else:
            x = checkpoint(lambda h, run=run: run(h, context), x, use_reentrant=reentrant)
    try:
        x.sum().backward()
    except RuntimeError as error:
        return str(error)
    return ""

for form in ("list", "dict", "partial", "closure"):
    assert "backward through the graph a second time" in problem(form, True)
    assert problem(form, False) == problem(form, True, segments=1) == ""
assert problem("flat", True) == ""
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`detach_variable` looks at the arguments themselves only).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Dict, Function, Partial, Result, Seq, options
from ..finding import Applicability, Severity
from ..model.events import Checkpoint, TorchCheckpoint
from ..model.flow.frames import call_beside
from ..model.flow.iterations import bound_each_iteration, changes_by_iteration
from ..model.regions.free_variables import read_with_graph
from ..model.report import Remark, Report, Rewrite, SetKeyword
from ..model.tensors.graph_sources import graph_sources
from ..model.tensors.needs_gradient import gives_gradient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT307", "nested-tensor-into-reentrant-checkpoint", Severity.ERROR
NEEDS = (TorchCheckpoint,)


def check(run: Run) -> Iterator[Report]:
    """Report tensors that several segments reach past the checkpoint."""
    for event in run.replayed(Checkpoint):
        if not run.runs_reentrant(event) or not event.place.loops:
            continue
        shared = next((value for value in _hidden(event) if _is_shared(run, value, event)), None)
        if shared is not None:
            yield Report(
                event.node,
                "the first segment's backward frees the graph behind this shared tensor, so the second raises a "
                "RuntimeError; pass it as an argument of its own, or write `use_reentrant=False`",
                notes=(Remark(shared.call.node, "the tensor is computed here, once"),),
                fix=Rewrite(
                    Applicability.UNSAFE,
                    "Use the non-reentrant variant",
                    (SetKeyword(event.node, "use_reentrant", "False"),),
                ),
            )


def _hidden(event: Checkpoint) -> Iterator[Result]:
    """What gave the tensors that the segment gets other than as arguments, those of this iteration left out."""
    found: list[Value] = []
    for node, value in zip(event.node.args[1:], event.inputs, strict=False):
        found += [] if changes_by_iteration(node, event.place) or not isinstance(value, Seq | Dict) else [value]
    for function in options(event.function):
        if isinstance(function, Partial):
            found += [*function.args, *function.kwargs.values()]
            function = function.func
        if isinstance(function, Function):
            names = read_with_graph(function.node) - bound_each_iteration(event.place)
            found += [function.scope.look_up(name) for name in names]
    return (source for value in found for source in graph_sources(value))


def _is_shared(run: Run, value: Result, event: Checkpoint) -> bool:
    """Whether ``value`` is a module's output, with a graph, that was made before the loop: there, or in a method."""
    call = value.call
    made = call if call.place.stack == event.place.stack else call_beside(run, call, event)
    if made is None or made.place.function is not event.place.function:
        return False
    return not set(event.place.loops) <= set(made.place.loops) and gives_gradient(run, call)
