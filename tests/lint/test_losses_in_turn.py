"""CKPT114: losses, adapters and weights that change in turn between the forward and the backward passes."""

import textwrap

import pytest
from hf_ckpt.lint import check_source

CODE = """
import copy
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        self.temperature = 1.0

    def scaled(self, x):
        return self.block(x) / self.temperature

    def forward(self, x):
        return checkpoint(self.scaled, x, use_reentrant=False)

class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.temperature = nn.Linear(8, 8), 1.0

    def forward(self, x):
        return self.up(x) / self.temperature

class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
        self.actor, self.critic = nn.Linear(8, 2), nn.Linear(8, 1)

    def forward(self, x):
        h = checkpoint(self.trunk, x, use_reentrant=False)
        return self.actor(h), self.critic(h)

class Separate(ActorCritic):
    def forward(self, x):
        h = checkpoint(self.trunk, x, use_reentrant=False)
        return self.actor(h), self.critic(h.detach())

def both(net, x, y):
    first = net(x).mean()
    second = net(y).mean()
    return first, second

def measured(net, x):
    out = net(x)
    return out.mean(), out.detach()

@torch.no_grad()
def clip(model, bound=0.1):
    for p in model.parameters():
        p.clamp_(-bound, bound)

def main(batches):
    net, other = Net(), Other()
    optimizer = torch.optim.AdamW(net.parameters())
    for step, (x, y, parts) in enumerate(batches):
{body}
"""

ADAPTERS = """
import torch
from mine import batches
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

def use(model, name):
    model.set_adapter(name)

def loss_with(model, name, batch):
    use(model, name)
    return model(**batch).loss

def main():
    model = get_peft_model(AutoModelForCausalLM.from_pretrained("base"), LoraConfig(), adapter_name="a")
    model.add_adapter("b", LoraConfig())
    model.gradient_checkpointing_enable()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in batches:
{body}
        optimizer.step()
"""
PAIR = """
        model = {kind}()
        actor = torch.optim.Adam([*model.trunk.parameters(), *model.actor.parameters()])
        critic = torch.optim.Adam(model.critic.parameters())
        logits, value = model(x)
        losses = [logits.mean(), value.square().mean()]
        for loss, chosen in zip(losses, [actor, critic]):
            chosen.zero_grad()
            loss.backward(retain_graph=True)
            chosen.step()
"""


def codes(body: str, code: str = CODE) -> list[str]:
    body = textwrap.indent(textwrap.dedent(body.strip("\n")), " " * 8)
    return [finding.code for finding in check_source(code.replace("{body}", body))]


@pytest.mark.parametrize(
    "body",
    [
        "first, second = both(net, x, y)\nfirst.backward()\noptimizer.step()\nsecond.backward()",
        "a, b = net(x).mean(), net(y).mean()\nfor loss in (a, b):\n    loss.backward()\n    optimizer.step()",
        "losses = {'a': net(x).mean(), 'b': net(y).mean()}\n"
        "for name, loss in losses.items():\n    loss.backward()\n    optimizer.step()",
        "losses = [net(part).mean() for part in parts]\nfor loss in losses:\n    loss.backward()\n    optimizer.step()",
        "losses = []\nfor part in parts:\n    losses.append(net(part).mean())\n"
        "for loss in losses:\n    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()",
        "losses = [net(part).mean() for part in parts]\nfor loss in losses[:-1]:\n    loss.backward()\n"
        "optimizer.step()\nlosses[-1].backward()",
        PAIR.replace("{kind}", "ActorCritic"),
        "first, second = both(net, x, y)\nfor loss in (first, second):\n    loss.backward()\n    optimizer.step()",
        "again = torch.optim.SGD(net.parameters())\nfirst, second = both(net, x, y)\n"
        "for chosen, loss in ((optimizer, first), (again, second)):\n    loss.backward()\n    chosen.step()",
    ],
)
def test_a_step_before_the_backward_pass_of_another_loss_is_found(body):
    assert codes(body) == ["CKPT114"]


@pytest.mark.parametrize(
    "body",
    [
        "a, b = net(x).mean(), net(y).mean()\nfor loss in (a, b):\n    loss.backward()\noptimizer.step()",
        "a, b = net(x).mean(), net(y).mean()\n"
        "for i, loss in enumerate((a, b)):\n    loss.backward()\n    if i == 1:\n        optimizer.step()",
        "for part in parts:\n    loss = net(part).mean()\n    loss.backward()\n    optimizer.step()",
        "for loss in (net(part).mean() for part in parts):\n    loss.backward()\n    optimizer.step()",
        "loss, out = measured(net, x)\nloss.backward()\noptimizer.step()\nother(out).mean().backward()",
        "first, second = net(x).mean(), other(y).mean()\n"
        "steps = torch.optim.SGD(other.parameters())\n"
        "for loss, chosen in zip([first, second], [optimizer, steps]):\n    loss.backward()\n    chosen.step()",
        "nets = [Net() for _ in range(3)]\nsteps = [torch.optim.SGD(n.parameters()) for n in nets]\n"
        "losses = [n(x).mean() for n in nets]\n"
        "for loss, chosen in zip(losses, steps):\n    loss.backward()\n    chosen.step()",
        "total = 0\nfor i, part in enumerate(parts):\n    total = total + net(part).mean()\n    if i % 4 == 3:\n"
        "        total.backward()\n        optimizer.step()\n        total = 0\ntotal.backward()",
        PAIR.replace("{kind}", "Separate"),
        "first, second = both(net, x, y)\nfor loss in (first, second):\n    loss.backward()\noptimizer.step()",
        "steps = torch.optim.SGD(other.parameters())\n"
        "def apart(x, y):\n    return net(x).mean(), other(y).mean()\nfirst, second = apart(x, y)\n"
        "for chosen, loss in ((optimizer, first), (steps, second)):\n    loss.backward()\n    chosen.step()",
    ],
)
def test_a_step_behind_the_backward_passes_it_matters_to_is_right(body):
    assert codes(body) == []


@pytest.mark.parametrize(
    "change",
    [
        "for p in net.parameters():\n    p.data.clamp_(-0.1, 0.1)",
        "with torch.no_grad():\n    for p in net.parameters():\n        p.mul_(0.999)",
        "for p, e in zip(net.parameters(), other.parameters()):\n    p.data.copy_(e.data)",
        "for name, p in net.named_parameters():\n    if p.requires_grad:\n        p.data = p.data.clamp(-0.1, 0.1)",
        "clip(net)",
        "nn.utils.vector_to_parameters(torch.zeros(144), net.parameters())",
        "net.temperature = max(0.1, net.temperature * 0.99)",
        "for module in net.modules():\n    if hasattr(module, 'temperature'):\n        module.temperature = 0.99**step",
    ],
)
def test_what_changes_the_recomputation_is_right_behind_backward_alone(change):
    assert codes(f"loss = net(x).mean()\n{change}\nloss.backward()\noptimizer.step()") == ["CKPT114"]
    assert codes(f"loss = net(x).mean()\nloss.backward()\noptimizer.step()\n{change}") == []


@pytest.mark.parametrize(
    "change",
    [
        "with torch.no_grad():\n    for e, p in zip(other.parameters(), net.parameters()):\n        e.lerp_(p, 0.01)",
        "copied = copy.deepcopy(net)\nfor p in copied.parameters():\n    p.data.zero_()",
        "for p in net.parameters():\n    p.grad.data.zero_()",
        "for name, p in net.named_parameters():\n    if name.startswith('head'):\n        p.data.zero_()",
        "kept = [p.data.clone() for p in net.parameters()]\nfor p in net.parameters():\n    p.data.zero_()\n"
        "for p, k in zip(net.parameters(), kept):\n    p.data.copy_(k)",
        "old, net.temperature = net.temperature, step\nnet.temperature = old",
        "for module in other.modules():\n    module.temperature = 0.99**step",
    ],
)
def test_what_leaves_the_recomputation_as_it_was_is_right(change):
    assert codes(f"loss = net(x).mean()\n{change}\nloss.backward()\noptimizer.step()") == []


@pytest.mark.parametrize(
    "body",
    [
        "losses = {}\nfor name in ['a', 'b']:\n    use(model, name)\n    losses[name] = model(**batch[name]).loss\n"
        "total = losses['a'] + losses['b']\ntotal.backward()",
        "losses = []\nfor name, part in {'a': batch[0], 'b': batch[1]}.items():\n    model.set_adapter(name)\n"
        "    losses.append(model(**part).loss)\ntorch.stack(losses).sum().backward()",
        "loss = sum(loss_with(model, name, batch) for name in ('a', 'b'))\nloss.backward()",
        "losses = []\nfor name in ('a', 'b'):\n    losses.append(loss_with(model, name, batch))\nsum(losses).backward()",
    ],
)
def test_adapters_that_a_helper_sets_in_turn_are_found(body):
    assert codes(body, ADAPTERS) == ["CKPT114"]


@pytest.mark.parametrize(
    "body",
    [
        "for name in ('a', 'b'):\n    loss_with(model, name, batch).backward()",
        "losses = [loss_with(model, name, batch) for name in ('a', 'b')]\nlosses[-1].backward()",
        "with torch.no_grad():\n    base = [loss_with(model, name, batch) for name in ('a', 'b')]\n"
        "loss = loss_with(model, 'a', batch) + sum(base)\nloss.backward()",
        "losses = []\nfor name in ('a', 'b'):\n    use(model, 'a')\n    losses.append(model(**batch[name]).loss)\n"
        "sum(losses).backward()",
    ],
)
def test_losses_of_one_adapter_at_a_time_are_right(body):
    assert codes(body, ADAPTERS) == []


@pytest.mark.parametrize(
    "body",
    [
        "net, target = build(), build()\noptimizer = torch.optim.SGD(net.parameters())\nloss = net(x).mean()\n"
        "for t, p in zip(target.parameters(), net.parameters()):\n    t.data.lerp_(p.data, 0.1)\n"
        "loss.backward()\noptimizer.step()",
        "a, b = Agent(), Agent()\nfirst, second = a.net(x).mean(), b.net(x).mean()\nfirst.backward()\n"
        "a.optimizer.step()\nsecond.backward()\nb.optimizer.step()",
        "net, target = [Net() for _ in range(2)]\nloss = net(x).mean()\n"
        "for t in target.parameters():\n    t.data.clamp_(-1, 1)\nloss.backward()",
        "net = build()\nfor p in net.block.parameters():\n    p.requires_grad_(False)\nloss = other(net(x)).mean()\n"
        "for p in net.parameters():\n    if p.requires_grad:\n        p.data.clamp_(-1, 1)\nloss.backward()",
    ],
)
def test_models_that_one_expression_builds_are_not_taken_for_one(body):
    agent = """
def build():
    return Net()

class Agent:
    def __init__(self):
        self.net = Net()
        self.optimizer = torch.optim.Adam(self.net.parameters())

def main("""
    assert codes(body, CODE.replace("\ndef main(", agent)) == []
