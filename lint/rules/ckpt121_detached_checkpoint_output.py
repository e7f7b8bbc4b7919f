"""A checkpointed result that is detached before the next segment gets it.

## What it does
Flags `x = checkpoint(...)` whose `x.detach()` becomes the input of another checkpoint, also through a dict or list of
saved boundaries, or in a function that does no more, and a detached result that is all the loss gets (`return
x.detach()` at the end of a `forward`), also the loss that a training step of Lightning returns. A recurrent cell whose
state is detached between steps, and detached results that go elsewhere (a target, a log), are not flagged. Neither is
what a linear probe does, a head trained on features that are cut off: whoever freezes the trunk, or gives the optimizer
the parameters of the head alone, means the trunk to get no gradients.

## Why is this bad?
The checkpoint keeps the boundary and recomputes the inside by itself; nothing has to be detached for that. Detaching
ends the graph: every segment before it gets no gradients, and the loss looks as it should. Where nothing behind it
trains either, `backward()` raises.

## Bad
```python
from torch.utils.checkpoint import checkpoint

def forward(layers, x):
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=False)
        x = x.detach()  # error
    return x
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

def forward(layers, x, k):
    def run(start, h):
        for layer in layers[start:start + k]:
            h = layer(h)
        return h
    saved = {0: x}
    for i in range(k, len(layers), k):
        x = checkpoint(run, i - k, saved[i - k], use_reentrant=False)
        saved[i] = x.detach()  # error
    return x

def known_layers(x):
    layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(4)])
    for layer in layers:
        x = checkpoint(layer, x.detach(), use_reentrant=False)  # error
    return x

def in_a_list(layers, x):
    saved = [x]
    for layer in layers:
        y = checkpoint(layer, saved[-1], use_reentrant=False)
        saved.append(y.detach())  # error
    return y
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x).relu()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(4)])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
            x = x.detach()  # error
        return x
```

```python
from torch.utils.checkpoint import checkpoint

def forward(segments, x, y):
    for segment in segments:
        x = checkpoint(segment, x.detach().requires_grad_(), use_reentrant=True)  # error
    for segment in segments:
        y = y.detach()  # error
        y = checkpoint(segment, y, use_reentrant=False)
        print("one more segment")
    for segment in segments:
        x = x.detach().requires_grad_(True)  # error
        x = checkpoint(segment, x, use_reentrant=True)
    return x + y
```

```python
from torch.utils.checkpoint import checkpoint

def forward(layers, x):
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=False)
        x = x.detach().requires_grad_(True)  # error
    return x
```

```python
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(4)])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x.detach()  # error

def train(loader, optimizer):
    net = Net()
    for x, y in loader:
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
```

## Good
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        features = checkpoint(self.trunk, x, use_reentrant=False)
        features = features.detach()
        return self.head(features)

model = Probe()
optimizer = torch.optim.AdamW(model.head.parameters())
for batch in torch.randn(4, 2, 8):
    model(batch).sum().backward()
    optimizer.step()
```
```python
from torch.utils.checkpoint import checkpoint

def forward(segments, x, y, z, outputs):
    x = x.detach().requires_grad_()
    for segment in segments:
        x = checkpoint(segment, x, use_reentrant=True)
    for segment in segments:
        y = checkpoint(segment, y.detach(), use_reentrant=False)
        outputs.append(y)  # each has a loss of its own
    for index, segment in enumerate(segments):
        if index == 0:
            z = z.detach()
        z = checkpoint(segment, z, use_reentrant=False)
    for segment in segments:
        x = x.detach().requires_grad_(True)
        x = checkpoint(segment, x, use_reentrant=True)
        outputs.append(x)
    return x

def features_in_a_list(layers, x, history):
    seen = [x]
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=False)
        seen.append(x.detach())
    for layer in layers:
        x = checkpoint(layer, x, history[-1], use_reentrant=False)
    return x, seen[-1], seen[0]
```
```python
import torch
from torch.utils.checkpoint import checkpoint

def forward(layers, x, log):
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=False)
        log.append(x.detach())
    return x

def truncated(cell, state, inputs):
    # Gradients are not to go further back than this step.
    for x in inputs:
        state = checkpoint(cell, x, state, use_reentrant=False)
        state = state.detach()
    return state

def step_by_step(layers, x, losses):
    for layer, loss in zip(layers, losses):
        x = checkpoint(layer, x, use_reentrant=False)
        loss(x).backward()
        x = x.detach()

def loss_of_each(layers, heads, x):
    total = 0
    for layer, head in zip(layers, heads):
        x = checkpoint(layer, x, use_reentrant=False)
        total = total + head(x)
        x = x.detach().requires_grad_(True)
    return total

def backward_by_hand(layers, x, boundaries):
    for layer in layers:
        y = checkpoint(layer, x, use_reentrant=False)
        boundaries.append((x, y))
        x = y.detach().requires_grad_(True)
    return x

def truncated_at(layers, x, cuts):
    for i, layer in enumerate(layers):
        x = checkpoint(layer, x, use_reentrant=False)
        if i in cuts:
            x = x.detach().requires_grad_(True)
    return x

def target(teacher, student, x):
    with torch.no_grad():
        wanted = checkpoint(teacher, x, use_reentrant=False).detach()
    return (checkpoint(student, x, use_reentrant=False) - wanted).pow(2).mean()
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint

layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(4))

def trained(detach):
    layers.zero_grad()
    x = torch.ones(2, 4, requires_grad=True)
    for layer in layers:
        x = checkpoint(layer, x.detach() if detach else x, use_reentrant=False)
    x.sum().backward()
    return [layer.weight.grad is not None for layer in layers]

assert trained(detach=True) == [False, False, False, True]
assert trained(detach=False) == [True] * 4

out = checkpoint(layers[0], torch.ones(2, 4), use_reentrant=False)
layers.zero_grad()
layers[1](out.detach()).sum().backward()
assert layers[0].weight.grad is None
try:
    out.detach().sum().backward()
except RuntimeError as error:
    assert "does not require grad" in str(error)
```

## References
torch 2.13 `torch/utils/checkpoint.py`. The pattern goes around as "sqrt(L) checkpointing".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Attr, Element, Instance, Param, Result, options
from ..finding import Severity
from ..model.events import Backward, Checkpoint, Detach, TorchCheckpoint
from ..model.flow.cuts import cuts
from ..model.flow.entries_in_turn import cuts_entries, cuts_entries_in_helper, cuts_kept_leaf, goes_on_besides
from ..model.flow.iterations import changes_by_iteration, leaves_out_last
from ..model.flow.own_results import (
    cuts_own_result,
    goes_on_through_helper,
    is_read_beside,
    leaf_for_next_iteration,
)
from ..model.flow.statements import appended_to, base_name, list_ending_in, stored_under
from ..model.needs import together
from ..model.report import Remark, Report
from ..model.results.detached import computed_from, cut_off_from_loss, learns_beside, may_train
from ..model.tensors.gradient_free import is_gradient_free

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ..facts.values import Call, Value
    from ..model.flow.cuts import Cut
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT121", "detached-checkpoint-output", Severity.ERROR
NEEDS = together(Detach, TorchCheckpoint)
_MOVES = frozenset(("to", "cpu", "cuda", "float", "half", "bfloat16", "double", "contiguous", "clone"))
_HOOKS = ("register_forward_hook", "register_module_forward_hook")


def check(run: Run) -> Iterator[Report]:
    """Report results that are cut off before the next segment."""
    events = {event.call: event for event in run.of(Checkpoint)}
    for cut in cuts(run):
        source = next((events[call] for call in _moved(cut.source) if call in events), None)
        again = None if source is not None else next(_of_last_iteration(run, cut, events.values()), None)
        source = source or again
        if source is None:
            yield from _cut_off_later(run, cut, events)
            continue
        if is_gradient_free(cut.call) or not may_train(run, source):
            continue
        following = _next_segment(run, cut, source, again, events.values())
        if (
            following is None
            and not any(run.method_calls(*_HOOKS))
            and goes_on_through_helper(run, cut.call, source.call)
        ):
            following = source
        is_read = again is None and is_read_beside(run, cut.call, source.call)
        if following is not None and is_read and learns_beside(run, cut.call, source):
            continue  # Each segment has a loss of its own.
        loss = cut_off_from_loss(run, cut.call, source) if following is None else None
        if loss is not None:
            yield _report_loss(cut, source, loss)
        if following is not None:
            yield Report(
                cut.node,
                "the next checkpoint gets this detached result, so every segment before it gets no gradients; pass "
                "the result on as it is, since a checkpoint keeps only its input anyway",
                notes=(Remark(source.node, "this segment is cut off"), Remark(following.node, "the next segment")),
            )


def _moved(value: Value) -> Iterator[Call]:
    """The calls that ``value`` is the result of, on another device or in another type perhaps."""
    for option in options(value):
        held = option
        while isinstance(held, Result):
            yield held.call
            if held.call.method not in _MOVES:
                break
            held = held.call.receiver


def _cut_off_later(run: Run, cut: Cut, events: Mapping[Call, Checkpoint]) -> Iterator[Report]:
    """What is cut off behind more than the checkpoint: `F.normalize(h.mean(1)).detach()`."""
    if _ends_in_backward(run, cut) or not run.detached_losses.is_returned(cut.call):
        return  # A leaf for a backward pass by hand, or what is only looked at.
    source = next((events[call] for call in computed_from(run, cut.source) if call in events), None)
    loss = cut_off_from_loss(run, cut.call, source) if source is not None else None
    if source is not None and loss is not None:
        yield _report_loss(cut, source, loss)


def _report_loss(cut: Cut, source: Checkpoint, loss: Call) -> Report:
    return Report(
        cut.node,
        "this detached result is all that the loss gets, so no segment before it gets a gradient; pass the result on "
        "as it is",
        notes=(Remark(source.node, "this segment is cut off"), Remark(loss.node, "the loss comes from it")),
    )


def _next_segment(
    run: Run, cut: Cut, source: Checkpoint, again: Checkpoint | None, events: Iterable[Checkpoint]
) -> Checkpoint | None:
    """The checkpoint that gets what is cut off, in the next iteration ``again``; None where that may be meant."""
    if _is_recurrent(source) or _ends_in_backward(run, cut):
        return None
    stored = stored_under(run, cut.call) or _stored_as_leaf(run, cut, source)
    last = appended_to(run, cut.call)
    feeds = (event for event in events if _feeds(cut, stored, last, event) or _goes_on_in_container(run, cut, event))
    return again or next(feeds, None)


def _goes_on_in_container(run: Run, cut: Cut, event: Checkpoint) -> bool:
    """Whether the next iteration gets what is cut off out of a list or dict."""
    is_leaf = not any(run.method_calls(*_HOOKS)) and cuts_kept_leaf(run, cut.call, event.call)
    if is_leaf or cuts_entries(run, cut.call, event.call):
        return True
    return not any(run.method_calls(*_HOOKS)) and cuts_entries_in_helper(run, cut.call, event.call)


def _stored_as_leaf(run: Run, cut: Cut, source: Checkpoint) -> frozenset[str]:
    """The variable of `x = y.detach().requires_grad_()` in a loop that does nothing else with it than checkpoint it.

    A leaf that goes elsewhere too may be there for a backward pass by hand, or the result for a loss of its own.
    """
    name, loop = cut.name, cut.place.loops[-1] if cut.place.loops else None
    if not name or loop is None or source.place.deeper_than(cut.place) or any(run.method_calls(*_HOOKS)):
        return frozenset()
    alike = source.place.loops == cut.place.loops and all(
        leaves_out_last(guard, loop) for guard in cut.place.beyond(source.place)
    )
    if not alike:
        return frozenset()
    return frozenset((leaf_for_next_iteration(cut.node, name, loop, source.node.args[1:]),)) - {""}


def _of_last_iteration(run: Run, cut: Cut, events: Iterable[Checkpoint]) -> Iterator[Checkpoint]:
    """The checkpoint that gets what is cut off of its own result in the iteration before."""
    name = cut.name
    if any(run.method_calls(*_HOOKS)):
        return  # A hook may take a loss from each of the results.
    for event in events:
        if event.place.function is not cut.place.function or event.place.loops != cut.place.loops:
            continue
        varies = bool(event.node.args) and changes_by_iteration(event.node.args[0], event.place)
        if not varies or not all(isinstance(it, Element | Result | Instance) for it in options(event.function)):
            continue  # The same module each time: a recurrent cell, whose gradients may be cut on purpose.
        own = event.order > cut.order and bool(name) and cuts_own_result(run, cut.call, event.call, name)
        if own or cuts_entries(run, cut.call, event.call):
            yield event


def _is_recurrent(event: Checkpoint) -> bool:
    """Whether each step runs the same module, as a recurrent cell does."""
    varies = bool(event.node.args) and changes_by_iteration(event.node.args[0], event.place)
    return not varies and any(isinstance(option, Param | Attr | Instance) for option in options(event.function))


def _ends_in_backward(run: Run, cut: Cut) -> bool:
    return any(event.place.function is cut.place.function for event in run.of(Backward))


def _feeds(cut: Cut, stored: frozenset[str], last: str, event: Checkpoint) -> bool:
    """Whether ``event`` reads a variable of ``stored``, the detached tensor, later or in the next iteration.

    The tensor may be the last one of the list ``last``, too.
    """
    if event.place.function is not cut.place.function or event.place.excludes(cut.place):
        return False
    again = any(loop in event.place.loops for loop in cut.place.loops)
    if not again and event.order < cut.order:
        return False
    given, result = event.node.args[1:], cut.name
    if result and result not in stored and goes_on_besides(cut.call, result, event.call):
        return False  # The next one gets it with its gradient, too, beside a memory without one.
    return any(base_name(it) in stored or (bool(last) and list_ending_in(it) == last) for it in given)
