"""A reentrant checkpoint around something that a loss reads from the side.

## What it does
Flags reentrant checkpointing of a transformers model with `output_router_logits=True`, and a reentrant checkpoint in
whose region a module of this file stores a tensor in an attribute (`self.aux_loss = ...`), or puts it into a list, a
dict or an object from outside of the region or that the checkpoint hands in, that other code then adds up, or stacks
for a `backward()`. What is detached, computed under `no_grad` or only looked at is fine.
`deepspeed.checkpointing.checkpoint` is reentrant.

## Why is this bad?
The reentrant forward pass runs under `no_grad`; only what the region returns is connected to the graph again. The
value of the auxiliary loss is right, and its gradient is missing: routers of Mixtral, Qwen MoE and OLMoE lose 10 to
100 % of theirs.

## Bad
```python
from transformers import MixtralConfig, MixtralForCausalLM, Trainer, TrainingArguments

model = MixtralForCausalLM(MixtralConfig(output_router_logits=True))
args = TrainingArguments(
    "out",
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": True},  # error
)
Trainer(model, args).train()
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.linear = nn.Linear(8, 4), nn.Linear(8, 8)

    def forward(self, x):
        self.balance = self.gate(x).softmax(-1).mean(0).square().sum()
        return self.linear(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList(Expert() for _ in range(4))

    def forward(self, x):
        for expert in self.experts:
            x = checkpoint(expert, x, use_reentrant=True)  # error
        return x, sum(expert.balance for expert in self.experts)
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        losses = []

        def run(index, h):
            h = self.blocks[index](h)
            losses.append(h.pow(2).mean())
            return h

        for index in range(3):
            x = checkpoint(run, index, x, use_reentrant=True)  # error
        return x.sum() + torch.stack(losses).sum()
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.linear = nn.Linear(8, 4), nn.Linear(8, 8)
        self.balance, self.entropy = None, None

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        self.balance = scores.mean(0).square().sum()
        self.entropy = (scores * scores.log()).sum(-1)
        return self.linear(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.experts = nn.ModuleList(Expert() for _ in range(4))
        self.last = Expert()

    def forward(self, x):
        x = self.embed(x)
        for expert in self.experts:
            x = checkpoint(expert, x, use_reentrant=True)  # error
        return checkpoint(self.last, x, use_reentrant=True)  # error

    def balance_loss(self):
        return torch.stack([expert.balance for expert in self.experts]).sum()

def train(batches):
    net = Net()
    for batch in batches:
        loss = net(batch).square().mean() + 0.01 * net.balance_loss() - net.last.entropy.mean()
        loss.backward()
```

```python
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.side = nn.Linear(8, 8), nn.Linear(8, 3)

class Supervised(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.stages = nn.Linear(8, 8), nn.ModuleList([Stage(), Stage()])
        self.sides = []

    def stage(self, index):
        stage = self.stages[index]
        def run(h):
            h = stage.body(h)
            self.sides.append(stage.side(h))
            return h
        return run

    def forward(self, x):
        h, self.sides = self.first(x), []
        for index in range(2):
            h = checkpoint(self.stage(index), h, use_reentrant=True)  # error
        return h

def criterion(y, sides, target):
    loss = F.mse_loss(y, target)
    for weight, side in zip((0.25, 0.5), sides):
        loss = loss + weight * nn.functional.cross_entropy(side, target)
    return loss

def train(loader, optimizer):
    net = Supervised()
    for x, target in loader:
        y = net(x)
        criterion(y, net.sides[:2], target).backward()
        optimizer.step()
```

## Good
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.linear = nn.Linear(8, 4), nn.Linear(8, 8)
        self.balance, self.load = None, None

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        self.balance = scores.mean(0).square().sum()
        self.load = scores.mean(0)
        return self.linear(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.experts = nn.ModuleList(Expert() for _ in range(4))

    def forward(self, x):
        x = self.embed(x)
        for expert in self.experts:
            x = checkpoint(expert, x, use_reentrant=True)
        return x

    def report(self):
        return torch.stack([expert.balance for expert in self.experts]).mean()

    @torch.no_grad()
    def target(self):
        return torch.stack([expert.load for expert in self.experts]).mean(0)

def train(batches):
    net = Net()
    for batch in batches:
        loss = net(batch).square().mean()
        loads = torch.stack([expert.load for expert in net.experts])
        weight = loads.detach().max() + net.target().max()
        chosen = torch.cat([expert.load for expert in net.experts]).argmax()
        spread = net.experts[0].load.mean().item()
        loss = loss * weight * spread + chosen
        print(net.report())
        loss.backward()
```
```python
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        norms, kept, losses = [], [], []

        def run(index, h):
            parts = []
            h = self.blocks[index](h)
            parts.append(h.pow(2).mean())
            norms.append(h.norm().item())
            kept.append(h.detach())
            return h, sum(parts)

        for index in range(3):
            x, loss = checkpoint(run, index, x, use_reentrant=True)
            losses.append(loss)
        print(sum(norms), torch.stack(kept).shape)
        return x.sum() + sum(losses)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from transformers import MixtralConfig, MixtralForCausalLM

def experts():
    model = MixtralForCausalLM(MixtralConfig(output_router_logits=True)).train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    plain = MixtralForCausalLM(MixtralConfig()).train()
    plain.gradient_checkpointing_enable({"use_reentrant": True})
    return model, plain

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.linear = nn.Linear(8, 4), nn.Linear(8, 8)

    def forward(self, x):
        scores = self.gate(x).softmax(-1)
        self.load = scores.detach().mean(0)
        self.last_scores = scores.mean()
        return self.linear(x), scores.square().sum()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))

    def forward(self, x):
        balance = 0.0
        for block in self.blocks:
            x, loss = checkpoint(block, x, use_reentrant=True)
            balance = balance + loss
        return x, balance

    def report(self):
        return [(float(block.last_scores), sum(block.load)) for block in self.blocks]
```

## Fix safety
Unsafe: the non-reentrant variant runs instead, which gives the missing gradients.

```python
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.side = nn.Linear(8, 8), nn.Linear(8, 3)

class Supervised(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.stages = nn.Linear(8, 8), nn.ModuleList([Stage(), Stage()])
        self.sides = []

    def stage(self, index):
        stage = self.stages[index]
        def run(h):
            h = stage.body(h)
            self.sides.append(stage.side(h))
            return h
        return run

    def forward(self, x):
        h, self.sides = self.first(x), []
        for index in range(2):
            h = checkpoint(self.stage(index), h, use_reentrant=False)
        return h

def criterion(y, sides, target):
    loss = F.mse_loss(y, target)
    for weight, side in zip((0.25, 0.5), sides):
        loss = loss + weight * nn.functional.cross_entropy(side, target)
    return loss

def train(loader, optimizer):
    net = Supervised()
    for x, target in loader:
        y = net(x)
        criterion(y, net.sides[:2], target).backward()
        optimizer.step()
```

```python
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

class Stage(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.side = nn.Linear(8, 8), nn.Linear(8, 3)

class Supervised(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.stages = nn.Linear(8, 8), nn.ModuleList([Stage(), Stage()])
        self.sides = []

    def stage(self, index):
        stage = self.stages[index]
        def run(h):
            h = stage.body(h)
            self.sides.append(stage.side(h))
            return h
        return run

    def forward(self, x):
        h, self.sides = self.first(x), []
        for index in range(2):
            h = checkpoint(self.stage(index), h, use_reentrant=True)
        return h

def criterion(y, sides, target):
    loss = F.mse_loss(y, target)
    for weight, side in zip((0.25, 0.5), sides):
        loss = loss + weight * nn.functional.cross_entropy(side, target)
    return loss

def train(loader, optimizer):
    net = Supervised()
    for x, target in loader:
        y = net(x)
        criterion(y, [], target).backward()
        print(len(net.sides))
        optimizer.step()
```

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint
from transformers import MixtralConfig, MixtralForCausalLM

class Expert(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.linear = torch.nn.Linear(8, 4), torch.nn.Linear(8, 8)

    def forward(self, x):
        self.balance = self.gate(x).softmax(-1).mean(0).square().sum()
        return self.linear(x)

def gate_gradient(reentrant):
    torch.manual_seed(0)
    expert, x = Expert(), torch.randn(4, 8, requires_grad=True)
    y = expert(x) if reentrant is None else checkpoint(expert, x, use_reentrant=reentrant)
    (y.sum() + expert.balance).backward()
    return expert.gate.weight.grad

assert torch.equal(gate_gradient(False), gate_gradient(None))
assert gate_gradient(None) is not None and gate_gradient(True) is None

def router_gradient(reentrant):
    torch.manual_seed(0)
    config = MixtralConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, num_local_experts=4, output_router_logits=True, router_aux_loss_coef=1.0,
    )
    model = MixtralForCausalLM(config).train()
    if reentrant is not None:
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    ids = torch.arange(3, 19).reshape(2, 8)
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    name = next(name for name, _ in model.named_parameters() if name.endswith("gate.weight"))
    return loss.item(), model.get_parameter(name).grad

(loss, wanted), (same_loss, kept), (also_loss, lost) = (router_gradient(variant) for variant in (None, False, True))
assert loss == same_loss == also_loss and torch.allclose(kept, wanted)
assert (lost - wanted).norm() > 0.5 * wanted.norm()
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`CheckpointFunction.forward` runs under `no_grad`), and DeepSpeed 0.19.8
`runtime/activation_checkpointing/checkpointing.py` (likewise).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Attr, Result, Value, equals, same
from ..finding import Applicability, Severity
from ..model.events import DeepSpeedCheckpoint, TorchCheckpoint
from ..model.libraries.enabled import reentrant_settings
from ..model.libraries.trainer import default_versions, written_at
from ..model.needs import CHECKPOINTS, together
from ..model.report import Remark, Report, Rewrite, SetKeyword
from ..model.results.side_outputs import side_outputs
from ..model.types import is_hf_model, unwrapped

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Call
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT113", "side-output-of-reentrant-checkpoint", Severity.ERROR
NEEDS = (TorchCheckpoint, DeepSpeedCheckpoint, *together("output_router_logits", CHECKPOINTS))


def check(run: Run) -> Iterator[Report]:
    """Report what a reentrant region hands out beside its result."""
    if not run.is_compiled:
        yield from _router_logits(run)
    for event in (*run.replayed(TorchCheckpoint), *run.replayed(DeepSpeedCheckpoint)):
        side = next(side_outputs(run, event), None) if run.runs_reentrant(event) else None
        if side is not None:
            of_torch = isinstance(event, TorchCheckpoint)
            keyword = (SetKeyword(event.node, "use_reentrant", "False"),)
            yield Report(
                event.node,
                f"`{side.name}` leaves this reentrant checkpoint without its gradient, and a loss adds it up; "
                f"{'write `use_reentrant=False` or ' if of_torch else ''}return it",
                notes=(Remark(side.node, f"`{side.name}` is stored under `no_grad`", decides=not side.is_settled),),
                fix=Rewrite(Applicability.UNSAFE, "Use the non-reentrant variant", keyword) if of_torch else None,
            )


def _router_logits(run: Run) -> Iterator[Report]:
    for model, node in _models_with_router_logits(run):
        for setting in reentrant_settings(run, model):
            yield Report(
                written_at(setting),
                "the reentrant variant detaches the router logits, so the routers get no gradient from the auxiliary "
                'loss; write `"use_reentrant": False`',
                notes=(Remark(node, "the auxiliary loss is switched on here"),),
                versions=default_versions(setting),
            )


def _models_with_router_logits(run: Run) -> Iterator[tuple[Value, ast.AST]]:
    for call in run.program.calls:
        if equals(call.keyword("output_router_logits"), True) and not _is_without_weight(call):
            made = Result(call)
            users = (user for user in run.program.calls if _is_built_with(user, made))
            for model in (unwrapped(call.func), made, *(Result(user) for user in users)):
                if is_hf_model(model):
                    yield model, call.node
    for write in run.writes:
        match write.obj:
            case Attr(base=model, name="config") if write.field == "output_router_logits" and equals(write.value, True):
                yield unwrapped(model), write.node
            case Result() as config if write.field == "output_router_logits" and equals(write.value, True):
                for user in run.uses.handed_over.of(config):
                    gets_it = any(same(given, config) for given in (*user.args, *user.kwargs.values()))
                    if gets_it and is_hf_model(Result(user)):
                        yield Result(user), write.node


def _is_built_with(call: Call, config: Value) -> bool:
    return any(same(value, config) for value in (*call.args[:1], call.keyword("config")))


def _is_without_weight(call: Call) -> bool:
    return equals(call.keyword("router_aux_loss_coef"), 0, 0.0) is True
