"""Parameters that a program computes and gives to a module that checkpoints inside."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint
"""

WRONG = {
    "filled by update": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
net, new = Net(), {}
for name, value in net.named_parameters():
    new.update({name: value * 0.9})
functional_call(net, new, (x,)).sum().backward()
""",
    "foreach": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
net = Net()
own = dict(net.named_parameters())
fast = dict(zip(own, torch._foreach_sub(list(own.values()), 0.1)))
functional_call(net, fast, (x,)).sum().backward()
""",
    "dictcomp loop": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
def maml(net: Net, tasks, opt, lr):
    for xs, ys, xq, yq in tasks:
        fast = dict(net.named_parameters())
        for _ in range(5):
            loss = F.mse_loss(functional_call(net, fast, (xs,)), ys)
            grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
            fast = {n: p - lr * g for (n, p), g in zip(fast.items(), grads)}
        F.mse_loss(functional_call(net, fast, (xq,)), yq).backward()
        opt.step()
""",
    "zip dict": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
def step(xs, ys, xq, yq):
    net = Net()
    names, params = zip(*net.named_parameters())
    loss = F.mse_loss(net(xs), ys)
    grads = torch.autograd.grad(loss, params, create_graph=True)
    fast = [p - 0.1 * g for p, g in zip(params, grads)]
    out = functional_call(net, dict(zip(names, fast)), (xq,))
    F.mse_loss(out, yq).backward()
""",
    "module class trainer": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
class MAML:
    def __init__(self):
        self.net = Net()
        self.opt = torch.optim.Adam(self.net.parameters())
    def adapt(self, x, y):
        loss = F.mse_loss(self.net(x), y)
        grads = torch.autograd.grad(loss, self.net.parameters(), create_graph=True)
        return {name: p - 0.1 * g for (name, p), g in zip(self.net.named_parameters(), grads)}
    def outer(self, batch):
        fast = self.adapt(batch[0], batch[1])
        out = torch.func.functional_call(self.net, fast, (batch[2],))
        loss = F.mse_loss(out, batch[3])
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
""",
    "tuple params buffers": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
def f(x, delta):
    net = Net()
    params = {k: v + delta[k] for k, v in net.named_parameters()}
    buffers = dict(net.named_buffers())
    functional_call(net, (params, buffers), (x,)).sum().backward()
""",
    "copied params": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
def f(x):
    net = Net()
    params = {k: v.clone().detach().requires_grad_(True) for k, v in net.named_parameters()}
    functional_call(net, params, (x,)).sum().backward()
""",
    "update in place loop": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
def f(x, y, grads):
    net = Net()
    fast = dict(net.named_parameters())
    for name in fast:
        fast[name] = fast[name] - 0.1 * grads[name]
    functional_call(net, fast, (x,)).sum().backward()
""",
    "helper update": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
def sgd(params, grads, lr):
    return {n: params[n] - lr * g for n, g in grads.items()}
def f(x, y, grads):
    net = Net()
    fast = sgd(dict(net.named_parameters()), grads, 0.1)
    functional_call(net, fast, (x,)).sum().backward()
""",
    "items pairs": """
from collections import OrderedDict
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
def f(x, y, grads, lr):
    net = Net()
    fast = OrderedDict()
    for (name, p), g in zip(net.named_parameters(), grads):
        fast[name] = p - lr * g
    functional_call(net, fast, (x,)).sum().backward()
""",
    "hf fast": """
from transformers import AutoModelForCausalLM
def f(ids, grads):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    model.gradient_checkpointing_enable()
    model.train()
    fast = {n: p - 0.1 * grads[n] for n, p in model.named_parameters()}
    functional_call(model, fast, (), {"input_ids": ids, "labels": ids}).loss.backward()
""",
}

RIGHT = {
    "its own by update": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
net, new = Net(), {}
for name, value in net.named_parameters():
    new.update({name: value})
functional_call(net, new, (x,)).sum().backward()
""",
    "foreach in place": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
net = Net()
own = dict(net.named_parameters())
with torch.no_grad():
    torch._foreach_mul_(list(own.values()), 0.9)
functional_call(net, own, (x,)).sum().backward()
""",
    "own dict": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
def f(x):
    net = Net()
    params = {k: v for k, v in net.named_parameters()}
    functional_call(net, params, (x,)).sum().backward()
""",
    "no grad eval": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
def f(x, y):
    net = Net()
    fast = {n: p * 0.9 for n, p in net.named_parameters()}
    with torch.no_grad():
        functional_call(net, fast, (x,))
    net(x).sum().backward()
""",
    "optional ckpt": """
class Net(nn.Module):
    def __init__(self, ckpt):
        super().__init__()
        self.ckpt = ckpt
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False) if self.ckpt else self.block(x)
def f(x, y, args):
    net = Net(args.ckpt)
    fast = {n: p * 0.9 for n, p in net.named_parameters()}
    functional_call(net, fast, (x,)).sum().backward()
""",
    "own zip": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
def f(x):
    net = Net()
    names, params = zip(*net.named_parameters())
    functional_call(net, dict(zip(names, params)), (x,)).sum().backward()
""",
    "own loop": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
def f(x):
    net = Net()
    given = {}
    for name, p in net.named_parameters():
        given[name] = p
    functional_call(net, given, (x,)).sum().backward()
""",
}


#: A step by a function, as often as a default says.
STEPS = """
from collections import OrderedDict
from tqdm import tqdm, trange
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)
def adapt(net, weights, x, y, lr):
    loss = F.mse_loss(functional_call(net, weights, (x,)), y)
    grads = torch.autograd.grad(loss, list(weights.values()))
    return {k: w - lr * g for (k, w), g in zip(weights.items(), grads)}
def meta_train(tasks, inner_lr=0.01, inner_steps=3):
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for x, y in tasks:
        opt.zero_grad()
        fast = dict(net.named_parameters())
        for step in range(inner_steps):
            fast = adapt(net, fast, x, y, inner_lr)
        F.mse_loss(functional_call(net, fast, (x,)), y).backward()
        opt.step()
"""
COMPREHENSION = "{k: w - lr * g for (k, w), g in zip(weights.items(), grads)}"
WAYS_TO_STEP = {
    "a default": (),
    "from one on": (("range(inner_steps)", "range(1, inner_steps + 1)"),),
    "a bar": (("range(inner_steps)", "tqdm(range(inner_steps), leave=False)"),),
    "a range with a bar": (("range(inner_steps)", "trange(inner_steps)"),),
    "pairs": ((COMPREHENSION, "OrderedDict((k, w - lr * g) for (k, w), g in zip(weights.items(), grads))"),),
    "zipped": ((COMPREHENSION, "dict(zip(weights, [w - lr * g for w, g in zip(weights.values(), grads)]))"),),
    "filled": (
        (
            "return " + COMPREHENSION,
            "new = {}\n    for (k, w), g in zip(weights.items(), grads):\n        new[k] = w - lr * g\n    return new",
        ),
    ),
    "a loop in a helper": (
        (
            "def meta_train",
            "def inner(net, fast, x, y, n):\n    for _ in range(n):\n        fast = adapt(net, fast, x, y, 0.1)\n    return fast\ndef meta_train",
        ),
        (
            "        for step in range(inner_steps):\n            fast = adapt(net, fast, x, y, inner_lr)\n",
            "        fast = inner(net, fast, x, y, inner_steps)\n",
        ),
    ),
}
WAYS_TO_STAY = {
    "no step": (("inner_steps=3", "inner_steps=0"),),
    "as often as the caller says": (("tasks, inner_lr=0.01, inner_steps=3", "tasks, inner_steps, inner_lr=0.01"),),
    "no step by a switch": (
        ("    net = Net()\n", "    net = Net()\n    if len(tasks) < 2:\n        inner_steps = 0\n"),
    ),
    "no range": (("range(inner_steps)", "range(3, inner_steps)"),),
    "no checkpoint": (("checkpoint(self.block, x, use_reentrant=False)", "self.block(x)"),),
    "its own parameters": (("adapt(net, fast, x, y, inner_lr)", "dict(net.named_parameters())"),),
}


def steps(changes: tuple[tuple[str, str], ...]) -> str:
    script = STEPS
    for old, new in changes:
        script = script.replace(old, new)
    return script


def codes(case: str) -> set[str]:
    return {finding.code for finding in check_source(HEAD + case, "train.py")}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_a_mistake_is_found(case):
    assert "CKPT119" in codes(case)


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_its_right_neighbour_is_not(case):
    assert "CKPT119" not in codes(case)


@pytest.mark.parametrize("way", WAYS_TO_STEP)
def test_a_step_is_made(way):
    assert "CKPT119" in codes(steps(WAYS_TO_STEP[way]))


@pytest.mark.parametrize("way", WAYS_TO_STAY)
def test_no_step_may_be_made(way):
    assert "CKPT119" not in codes(steps(WAYS_TO_STAY[way]))
