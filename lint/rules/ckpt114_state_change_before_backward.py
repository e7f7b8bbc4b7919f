"""A change of the model between a checkpointed forward pass and its backward pass.

## What it does
Flags what stands between the call of a checkpointed model and the `backward()` of the loss it feeds: `set_adapter`,
`load_state_dict` or `step()` of an optimizer that holds the model's parameters, `eval()` on a model with dropout; and
a `backward()` inside `with model.disable_adapter()`. A forward pass under `no_grad` in between, as for the reference
model of DPO, is fine.

## Why is this bad?
Layers run again in the backward pass, with the model as it is then: gradients belong to neither state, 40 to 380 %
off. Without checkpointing, torch refuses a backward pass after `optimizer.step()`; with it, nothing is said.

## Bad
```python
from transformers import AutoModelForCausalLM

def train(name, batches, optimizer):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    model.gradient_checkpointing_enable()
    model.load_adapter("first", adapter_name="a")
    model.load_adapter("second", adapter_name="b")
    for batch in batches:
        model.set_adapter("a")
        first = model(**batch).loss
        model.set_adapter("b")  # error
        second = model(**batch).loss
        loss = first + second
        loss.backward()
        optimizer.step()
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)

def train(batches):
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    for batch in batches:
        loss = net(batch).square().mean()
        optimizer.step()  # error
        loss.backward()
        optimizer.zero_grad()
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.Linear(8, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

def train(x, other):
    first = checkpoint(net, x, use_reentrant=False).sum()
    second = net(other).sum()
    second.backward()
    optimizer.step()  # error
    first.backward()

def measure(x):
    y = checkpoint(net, x, use_reentrant=False)
    net.eval()  # error
    loss = y.sum()
    loss.backward()
```

## Good
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
head = nn.Linear(8, 1)
optimizer = torch.optim.SGD(head.parameters(), lr=0.1)

def train(x, other):
    first = checkpoint(net, x, use_reentrant=False).sum()
    head(other).sum().backward()
    optimizer.step()
    net.eval()
    first.backward()
    net.train()
```
```python
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

def preference(name, batches):
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(name), LoraConfig())
    model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in batches:
        policy = model(**batch).logits
        with torch.no_grad(), model.disable_adapter():
            reference = model(**batch).logits
        loss = (policy - reference).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

def one_after_the_other(name, batches, optimizer):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    model.gradient_checkpointing_enable()
    for batch in batches:
        for adapter in ("a", "b"):
            model.set_adapter(adapter)
            loss = model(**batch).loss
            loss.backward()
        model.set_adapter("a")
        first = model(**batch).loss
        first.backward()
        model.set_adapter("b")
        second = model(**batch).loss
        second.backward()
        optimizer.step()

def without_checkpointing(name, batches):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    for batch in batches:
        first = model(**batch).loss
        model.set_adapter("b")
        second = model(**batch).loss
        loss = first + second
        loss.backward()
```

## Evidence
```python
import torch
from peft import LoraConfig, get_peft_model
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, LlamaForCausalLM

def step_first(checkpointing):
    torch.manual_seed(0)
    block, head = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()), torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD([*block.parameters(), *head.parameters()], lr=0.5)
    x, run = torch.randn(4, 8), torch.nn.Sequential(block, head)
    run(x).square().sum().backward()
    loss = (checkpoint(run, x, use_reentrant=False) if checkpointing else run(x)).square().sum()
    wanted = torch.autograd.grad(run(x).square().sum(), block[0].weight)[0]
    optimizer.step()
    optimizer.zero_grad()
    loss.backward()
    return float((block[0].weight.grad - wanted).norm() / wanted.norm())

assert step_first(True) > 0.5  # not a word
try:
    step_first(False)
except RuntimeError as error:
    assert "modified by an inplace operation" in str(error)
else:
    raise AssertionError("no error")

def adapter_gradient(checkpointing, switch):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1,
    )
    lora = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    model = get_peft_model(LlamaForCausalLM(config), lora, adapter_name="a").train()
    model.add_adapter("b", lora)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    ids = torch.arange(3, 19).reshape(2, 8)
    model.set_adapter("a")
    loss = model(input_ids=ids, labels=ids).loss
    weight = model.base_model.model.model.layers[0].self_attn.q_proj.lora_B["a"].weight
    if switch:
        model.set_adapter("b")
        weight.requires_grad_()
    loss.backward()
    return weight.grad

wanted = adapter_gradient(False, False)
assert torch.allclose(adapter_gradient(False, True), wanted)
assert torch.allclose(adapter_gradient(True, False), wanted)
try:
    lost = adapter_gradient(True, True)
except RuntimeError:
    lost = None
assert lost is None or not torch.allclose(lost, wanted)
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`recompute_fn` runs the function with the module's present state).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Instance, Result, Value, equals, options, same
from ..finding import Severity
from ..model.events import ApplyCheckpointing, Backward, Checkpoint, HfEnable, TorchCheckpoint
from ..model.flow.loss import feeds
from ..model.libraries.enabled import checkpoints_in, is_checkpointed
from ..model.needs import together
from ..model.report import Remark, Report
from ..model.state.modes import is_gradient_free
from ..model.state.randomness import adapter_dropout, config_dropout, torch_draws
from ..model.types import is_hf_model, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Call
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT114", "state-change-before-backward", Severity.ERROR
NEEDS = together(Backward, (TorchCheckpoint, ApplyCheckpointing, HfEnable))


def check(run: Run) -> Iterator[Report]:
    """Report changes that the recomputation sees and the forward pass did not."""
    backwards = [event.call for event in run.of(Backward)]
    if not backwards:
        return
    for forward, model in _forwards(run, backwards):
        ends = [call for call in backwards if _follows(call, forward) and feeds(run.program.tree, forward, call)]
        for change in _changes(run, model, forward, ends[0]) if ends else ():
            yield Report(
                change.node,
                f"this changes the model between a checkpointed forward pass and its backward pass (line "
                f"{ends[0].node.lineno}), which runs the layers again as they are then: gradients are wrong; "
                "call `backward()` first",
                notes=(Remark(forward.node, "the forward pass that will be run again"),),
            )


def _forwards(run: Run, backwards: list[Call]) -> Iterator[tuple[Call, Value]]:
    """The calls before a backward pass that run a checkpointed model, or checkpoint a module, with what they run."""
    for forward in run.program.calls:
        model = unwrapped(forward.func)
        known = isinstance(model, Instance) or (isinstance(forward.func, Result) and is_hf_model(model))
        if not known or not any(_follows(call, forward) for call in backwards):
            continue
        if not is_gradient_free(forward) and is_checkpointed(run, model, forward):
            yield forward, model
    for event in run.replayed(Checkpoint):
        module = unwrapped(event.function)
        if isinstance(module, Instance | Result) and not is_gradient_free(event.call):
            yield event.call, module


def _follows(later: Call, earlier: Call) -> bool:
    """Whether both are in the same iteration of the same loops, one after the other."""
    places = later.place, earlier.place
    same_iteration = places[0].walk == places[1].walk and places[0].loops == places[1].loops
    return same_iteration and later.order > earlier.order and not places[0].excludes(places[1])


def _changes(run: Run, model: Value, forward: Call, backward: Call) -> Iterator[Call]:
    for change in run.method_calls("set_adapter", "load_state_dict", "step", "eval"):
        if _follows(change, forward) and _follows(backward, change) and _changes_model(run, model, change):
            yield change
    for change in run.method_calls("disable_adapter"):
        inside = any(same(value, Result(change)) for value in backward.place.contexts)
        outside = not any(same(value, Result(change)) for value in forward.place.contexts)
        if inside and outside and _is(change.receiver, model):
            yield change


def _changes_model(run: Run, model: Value, change: Call) -> bool:
    match change.method:
        case "step":
            return any(_optimizes(option, model) for option in options(change.receiver))
        case "eval":
            return _is(change.receiver, model) and _drops(run, model)
    return _is(change.receiver, model)


def _is(value: Value, model: Value) -> bool:
    return same(unwrapped(value), model)


def _optimizes(optimizer: Value, model: Value) -> bool:
    """Whether ``optimizer`` is one of torch over all parameters of ``model``, with a learning rate that is not 0."""
    if not isinstance(optimizer, Result) or not optimizer.call.name.startswith("torch.optim."):
        return False
    held = optimizer.call.argument(0, "params")
    is_whole = isinstance(held, Result) and held.call.method == "parameters" and _is(held.call.receiver, model)
    return is_whole and equals(optimizer.call.argument(1, "lr"), 0, 0.0) is not True


def _drops(run: Run, model: Value) -> bool:
    regions = [run.region(event) for event in checkpoints_in(run, model)]
    regions += [run.region(event) for event in run.replayed(Checkpoint) if _is(event.function, model)]
    regions += [run.region(event) for event in run.replayed(ApplyCheckpointing) if _is(event.model, model)]
    drawing = any(draw for region in regions for draw in torch_draws(run, region))
    return drawing or adapter_dropout(run, model) is not None or config_dropout(model) is not None
