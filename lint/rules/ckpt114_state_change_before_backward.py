"""A change of the model between a checkpointed forward pass and its backward pass.

## What it does
Flags what stands between the call of a checkpointed model and the `backward()` of the loss it feeds: `set_adapter`,
`load_state_dict` or `step()` of an optimizer that holds the model's parameters, a change of its weights in place,
`eval()` on a model with dropout, a schedule that sets an attribute which the layers compute with, another strength of
the adapters in the layers (`module.set_scale("default", 0.0)` in a loop over the modules); and a `backward()` inside
`with model.disable_adapter()`. Functions of the program that run the forward pass, change the model or call
`backward()` are followed, a loss that a loop keeps for the `backward()` of its next iteration, and losses that a loop
takes in turn. A forward pass under `no_grad` in between, as for the reference model of DPO, is fine, and so is a change
that is taken back before `backward()`, by a context manager, a callback of an `ExitStack` or a hook too, an adapter
whose name is asked for (`model.active_adapter`), and a `step()` behind `zero_grad()`, which finds no gradients.

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
        optimizer.zero_grad()
        loss.backward()
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

```python
import torch
from transformers import AutoModelForCausalLM

def log_probability(model, batch):
    return model(**batch).logits.log_softmax(-1).sum((-1, -2))

def preference(name, batches):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    model.gradient_checkpointing_enable()
    for batch in batches:
        model.set_adapter("policy")
        policy = log_probability(model, batch)
        model.set_adapter("reference")  # error
        with torch.no_grad():
            reference = log_probability(model, batch)
        loss = (reference - policy).mean()
        loss.backward()

def two_losses(name, batches):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in batches:
        out = model(**batch)
        first, second = out.loss, out.logits.square().mean()
        first.backward(retain_graph=True)
        optimizer.step()  # error
        second.backward()
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

def loss_of(model, x):
    return model(x).square().mean()

def overlapped(batches):
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    pending = loss_of(net, next(batches))
    for batch in batches:
        upcoming = loss_of(net, batch)
        optimizer.zero_grad()
        pending.backward()
        optimizer.step()  # error
        pending = upcoming

def step_first(batches):
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    pending = net(next(batches)).mean()
    for batch in batches:
        optimizer.step()  # error
        pending.backward()
        pending = net(batch).mean()
```

```python
import torch
from mine import batches
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

def activate(model, name):
    model.set_adapter(name)

def loss_of(model, first, second):
    activate(model, "helpful")
    loss = model(**first).loss
    activate(model, "harmless")  # error
    return loss + model(**second).loss

def train(batches):
    model = get_peft_model(AutoModelForCausalLM.from_pretrained("base"), LoraConfig(), adapter_name="helpful")
    model.add_adapter("harmless", LoraConfig())
    model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    for first, second in batches:
        loss_of(model, first, second).backward()
        optimizer.step()

train(batches)
```
```python
import torch
from mine import batches
from transformers import AutoModelForCausalLM

TASKS = ("summarize", "translate")

def train(name):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in batches:
        total = 0.0
        for task in TASKS:
            model.set_adapter(task)  # error
            total = total + model(**batch[task]).loss
        total.backward()
        losses = []
        for task in ["translate", "rewrite"]:
            model.set_adapter(task)  # error
            losses.append(model(**batch[task]).loss)
        loss = torch.stack(losses).mean()
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

def losses_of(net, first, second):
    return net(first).mean(), net(second).mean()

def in_turn(batches):
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    for first, second in batches:
        for loss in (net(first).mean(), net(second).mean()):
            loss.backward()
            optimizer.step()  # error
        one, other = losses_of(net, first, second)
        one.backward()
        optimizer.step()  # error
        other.backward()

def clipped(batches):
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    for batch in batches:
        loss = net(batch).mean()
        for weight in net.parameters():
            weight.data.clamp_(-1, 1)  # error
        loss.backward()
        optimizer.step()
```
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

VOICES = ("narrator", "dialogue")

def setup():
    base = AutoModelForCausalLM.from_pretrained("base")
    base.gradient_checkpointing_enable()
    model = get_peft_model(base, LoraConfig(), adapter_name=VOICES[0])
    model.add_adapter(VOICES[1], LoraConfig())
    return model.train()

def joint_loss(model, batches):
    parts = []
    for voice in VOICES:
        model.set_adapter(voice)  # error
        parts.append(model(**batches[voice]).loss)
    return sum(parts) / len(parts)

def run(loader):
    model = setup()
    for batches in loader:
        joint_loss(model, batches).backward()
```
```python
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

def run(loader):
    base = AutoModelForCausalLM.from_pretrained("base", quantization_config=BitsAndBytesConfig(load_in_4bit=True))
    base = prepare_model_for_kbit_training(base, gradient_checkpointing_kwargs={"use_reentrant": False})
    model = get_peft_model(base, LoraConfig(), adapter_name="policy")
    model.load_adapter("first", adapter_name="reference")
    model.train()
    for batch in loader:
        model.set_adapter("policy")
        wanted = model(**batch).loss
        model.set_adapter("reference")  # error
        with torch.no_grad():
            reference = model(**batch).loss
        (wanted - reference).backward()
```

## Good
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

VOICES = ("narrator", "dialogue")

def setup():
    base = AutoModelForCausalLM.from_pretrained("base")
    base.gradient_checkpointing_enable()
    model = get_peft_model(base, LoraConfig(), adapter_name=VOICES[0])
    model.add_adapter(VOICES[1], LoraConfig())
    return model.train()

def losses(model, batches):
    parts = []
    for voice in VOICES:
        model.set_adapter(voice)
        loss = model(**batches[voice]).loss
        loss.backward()
        parts.append(loss.detach())
    return sum(parts) / len(parts)

def run(loader):
    model = setup()
    for batches in loader:
        print(losses(model, batches))
```
```python
import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

def run(loader):
    base = AutoModelForCausalLM.from_pretrained("base", quantization_config=BitsAndBytesConfig(load_in_4bit=True))
    base = prepare_model_for_kbit_training(base, use_gradient_checkpointing=False)
    model = get_peft_model(base, LoraConfig(), adapter_name="policy")
    model.load_adapter("first", adapter_name="reference")
    model.train()
    for batch in loader:
        model.set_adapter("policy")
        wanted = model(**batch).loss
        model.set_adapter("reference")
        with torch.no_grad():
            reference = model(**batch).loss
        (wanted - reference).backward()
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

def in_turn(batches):
    net, average = Net(), Net()
    optimizer = torch.optim.AdamW(net.parameters())
    for first, second in batches:
        for loss in (net(first).mean(), net(second).mean()):
            loss.backward()
        for kept, weight in zip(average.parameters(), net.parameters()):
            kept.data.lerp_(weight.data, 0.01)
        optimizer.step()
        for weight in net.parameters():
            weight.data.clamp_(-1, 1)
```
```python
import torch
from mine import batches
from transformers import AutoModelForCausalLM

TASKS = ("summarize", "translate")

def train(name, tasks):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in batches:
        logged = 0.0
        for task in TASKS:
            model.set_adapter(task)
            loss = model(**batch[task]).loss
            loss.backward()
            logged += loss.item()
        total = 0.0
        for task in TASKS:
            model.set_adapter("shared")
            total = total + model(**batch[task]).loss
        total.backward()
        total = 0.0
        for task in tasks[:1]:
            model.set_adapter(task)
            total += model(**batch[task]).loss
        total.backward()
        best = []
        for task in TASKS:
            model.set_adapter(task)
            with torch.no_grad():
                best.append(model(**batch[task]).loss)
        model.set_adapter("shared")
        loss = model(**batch["all"]).loss * torch.stack(best).min()
        loss.backward()
        optimizer.step()

def without_checkpointing(name):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    for batch in batches:
        total = 0.0
        for task in TASKS:
            model.set_adapter(task)
            total = total + model(**batch[task]).loss
        total.backward()
```
```python
import torch
from mine import batches
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

def activate(model, name):
    model.set_adapter(name)

def train(batches):
    model = get_peft_model(AutoModelForCausalLM.from_pretrained("base"), LoraConfig(), adapter_name="helpful")
    model.add_adapter("harmless", LoraConfig())
    model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    for first, second in batches:
        activate(model, "helpful")
        loss = model(**first).loss
        activate(model, "harmless")
        with torch.no_grad():
            weight = model(**second).loss
        activate(model, "helpful")
        (weight * loss).backward()
        optimizer.step()

train(batches)
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

def step_before_forward(batches):
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    pending = net(next(batches)).mean()
    for batch in batches:
        pending.backward()
        optimizer.step()
        pending = net(batch).mean()

def summed(batches):
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    total = 0
    for index, batch in enumerate(batches):
        if index % 4 == 3:
            total.backward()
            optimizer.step()
            total = 0
        total = total + net(batch).mean()

def every_second(batches):
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    kept = net(next(batches)).mean()
    for index, batch in enumerate(batches):
        loss = net(batch).mean()
        if index % 2:
            kept.backward()
            optimizer.step()
        kept = loss

def logged(batches):
    net, head = Net(), nn.Linear(8, 1)
    optimizer, other = torch.optim.AdamW(net.parameters()), torch.optim.AdamW(head.parameters())
    mean, pending = 0.0, net(next(batches)).mean()
    for batch in batches:
        upcoming = net(batch).mean()
        pending.backward()
        other.step()
        pending = upcoming
    for batch in batches:
        loss = net(batch).mean() + mean
        loss.backward()
        optimizer.step()
        mean = 0.9 * mean + 0.1 * loss.detach()
```
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

def taken_back(name, batches):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    model.gradient_checkpointing_enable()
    for batch in batches:
        model.set_adapter("policy")
        policy = model(**batch).logits
        model.set_adapter("reference")
        with torch.no_grad():
            reference = model(**batch).logits
        model.set_adapter("policy")
        loss = (reference - policy).mean()
        loss.backward()

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

def step_between_losses(checkpointing):
    torch.manual_seed(0)
    block = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8))
    optimizer, x = torch.optim.SGD(block.parameters(), lr=0.5), torch.randn(4, 8)
    wanted = torch.autograd.grad(block(x).square().sum(), block[0].weight)[0]
    out = checkpoint(block, x, use_reentrant=False) if checkpointing else block(x)
    out.sum().backward(retain_graph=True)
    optimizer.step()
    optimizer.zero_grad()
    out.square().sum().backward()
    return float((block[0].weight.grad - wanted).norm() / wanted.norm())

assert step_between_losses(True) > 0.1
try:
    step_between_losses(False)
except RuntimeError as error:
    assert "modified by an inplace operation" in str(error)
else:
    raise AssertionError("no error")

def clipped(checkpointing):
    torch.manual_seed(0)
    block, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8)), torch.randn(4, 8)
    wanted = torch.autograd.grad(block(x).square().sum(), block[0].weight)[0]
    loss = (checkpoint(block, x, use_reentrant=False) if checkpointing else block(x)).square().sum()
    for weight in block.parameters():
        weight.data = weight.data.clamp(-0.1, 0.1)
    loss.backward()
    return float((block[0].weight.grad - wanted).norm() / wanted.norm())

assert clipped(True) > 0.1 and clipped(False) < 1e-6

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
    if switch == "off":
        model.base_model.disable_adapter_layers()
    if switch == "there and back":
        model.set_adapter("a")
    loss.backward()
    return weight.grad

wanted = adapter_gradient(False, False)
assert torch.allclose(adapter_gradient(False, True), wanted)
assert torch.allclose(adapter_gradient(True, False), wanted)
assert torch.allclose(adapter_gradient(True, "there and back"), wanted)
for switch in (True, "off"):
    try:
        lost = adapter_gradient(True, switch)
    except RuntimeError:
        lost = None
    assert lost is None or not torch.allclose(lost, wanted)
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`recompute_fn` runs the function with the module's present state).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from ..facts.origin import origin
from ..facts.values import Instance, Result, Value
from ..finding import Severity
from ..model.events import Backward, BlockWrapping, Checkpoint, HfEnable, KbitPrepare, TorchCheckpoint
from ..model.flow.frames import call_beside, comes_behind
from ..model.libraries.enabled import is_checkpointed
from ..model.needs import together
from ..model.report import Remark, Report
from ..model.state.adapter_layers import layers_set
from ..model.state.adapters_in_turn import adapters_in_turn
from ..model.state.changes_between import (
    attributes_between,
    changes_between,
    steps_before_next_iteration,
    steps_between_losses,
)
from ..model.state.losses_in_turn import is_always, keeps_graph, loop_over_losses
from ..model.state.weights_in_place import weights_set
from ..model.tensors.gradient_free import is_gradient_free, may_lack_graph
from ..model.types import is_hf_model, unwrapped

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Call
    from ..model.flow.loss import Losses
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT114", "state-change-before-backward", Severity.ERROR
NEEDS = together(Backward, (TorchCheckpoint, BlockWrapping, HfEnable, KbitPrepare))


def check(run: Run) -> Iterator[Report]:
    """Report changes that the recomputation sees and the forward pass did not."""
    backwards = [event.call for event in run.of(Backward)]
    if not backwards:
        return
    losses = run.losses
    for forward, model in _summed_up(run, losses):
        for backward in (it for it in losses.fed_by(forward) if not may_lack_graph(forward, it)):
            for change in adapters_in_turn(run, model, forward, backward):
                yield _report(change.node, forward, backward)
    for forward, model in _forwards(run, losses):
        for backward in _backwards_of(run, model, forward, losses):
            for change in changes_between(run, model, forward, backward):
                yield _report(_shown(run, change, forward), forward, backward)
            moments = weights_set(run, model, forward, backward), layers_set(run, model, forward, backward)
            for moment in chain(*moments):
                beside = call_beside(run, moment, forward)
                yield _report(moment.node if beside is None else beside.node, forward, backward)
            for node in attributes_between(run, model, forward, backward):
                yield _report(node, forward, backward)
    yield from _between_losses(run, losses, backwards)
    for backward in backwards:
        kept = losses.kept_for_next_iteration(backward)
        for forward, model in _forwards_kept(run, losses, backward) if kept else ():
            for change in steps_before_next_iteration(run, model, forward, backward, kept):
                yield _report(change.node, forward, backward, ", of the next iteration")


def _between_losses(run: Run, losses: Losses, backwards: list[Call]) -> Iterator[Report]:
    """The steps of a loop over losses that were all computed before it."""
    turns = {call.node: (call, loop) for call in backwards if (loop := loop_over_losses(call)) is not None}
    for forward in run.program.calls if turns else ():
        model = unwrapped(forward.func)
        known = isinstance(model, Instance) or (isinstance(forward.func, Result) and is_hf_model(model))
        fed = {call.node for call in losses.fed_by(forward) if call.node in turns} if known else set()
        if not fed or not is_checkpointed(run, model, forward) or not is_always(run, forward, model):
            continue
        for backward, loop in (turns[node] for node in turns if node in fed):
            if loop in forward.place.loops or may_lack_graph(forward, backward) or _cuts_off(run, model):
                continue
            for step in steps_between_losses(run, model, forward, backward, loop):
                yield _report(step.node, forward, backward, ", of the next iteration")


def _shown(run: Run, change: Call, forward: Call) -> ast.AST:
    """Where the mistake is: the call beside ``forward`` of a helper that others call too, or the change itself."""
    several = len({other.place.stack for other in run.calls_at(change.node)}) > 1
    beside = call_beside(run, change, forward) if several else None
    return change.node if beside is None else beside.node


def _report(change: ast.AST, forward: Call, backward: Call, which: str = "") -> Report:
    beside = origin(change) == origin(backward.node)
    line = f" (line {backward.node.lineno}{which})" if beside else which
    ends = () if beside else (Remark(backward.node, "its backward pass"),)
    return Report(
        change,
        f"this changes the model between a checkpointed forward pass and its backward pass{line}, which runs the "
        "layers again as they are then: gradients are wrong; call `backward()` first",
        notes=(Remark(forward.node, "the forward pass that will be run again"), *ends),
    )


def _forwards(run: Run, losses: Losses) -> Iterator[tuple[Call, Value]]:
    """The calls, before a backward pass of theirs, that run a checkpointed model or checkpoint a module, with that."""
    for forward in run.program.calls:
        model = unwrapped(forward.func)
        known = isinstance(model, Instance) or (isinstance(forward.func, Result) and is_hf_model(model))
        if not known or not any(comes_behind(run, call, forward) for call in losses.fed_by(forward)):
            continue
        if is_checkpointed(run, model, forward):
            yield forward, model
    for event in run.replayed(Checkpoint):
        module = unwrapped(event.function)
        if isinstance(module, Instance | Result):
            yield event.call, module


def _summed_up(run: Run, losses: Losses) -> Iterator[tuple[Call, Value]]:
    """The calls of checkpointed models in loops that set adapters; a backward pass behind the loop gets their sum."""
    for forward in run.program.calls if any(run.method_calls("set_adapter")) else ():
        model = unwrapped(forward.func)
        known = isinstance(forward.func, Result) and is_hf_model(model)
        if known and any(losses.fed_by(forward)) and is_checkpointed(run, model, forward):
            yield forward, model


def _forwards_kept(run: Run, losses: Losses, backward: Call) -> Iterator[tuple[Call, Value]]:
    """The calls of checkpointed models that feed ``backward`` in the iteration behind theirs."""
    for forward in run.program.calls:
        model = unwrapped(forward.func)
        known = isinstance(model, Instance) or (isinstance(forward.func, Result) and is_hf_model(model))
        if not known or may_lack_graph(forward, backward) or not losses.feeds_next_iteration(forward, backward):
            continue
        if is_checkpointed(run, model, forward):
            yield forward, model


def _backwards_of(run: Run, model: Value, forward: Call, losses: Losses) -> Iterator[Call]:
    """The backward passes that run the layers of ``forward`` again: only one that keeps the graph has another one."""
    for call in losses.fed_by(forward):
        if comes_behind(run, call, forward) and not may_lack_graph(forward, call):
            yield call
            if not keeps_graph(call) or _cuts_off(run, model):
                return


def _cuts_off(run: Run, model: Value) -> bool:
    """Whether a part of what ``model`` gives may have no graph, so that the loss of that part runs no layer again."""
    calls = run.bodies.of(model).calls
    return any(call.method in ("detach", "detach_") or is_gradient_free(call) for call in calls)
