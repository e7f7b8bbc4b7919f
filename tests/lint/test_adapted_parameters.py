"""Parameters that a program adapts in a loop, and then gives to a module that checkpoints."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

_NET = """\
import torch
import torch.nn as nn
from collections import OrderedDict
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=False)

"""
ADAPTED = {
    "a loop of three steps": """\
def inner(x, y):
    net = Net()
    params = dict(net.named_parameters())
    for _ in range(3):
        grads = torch.autograd.grad(functional_call(net, params, (x,)).sum(), list(params.values()))
        params = {n: p - 0.1 * g for (n, p), g in zip(params.items(), grads)}
    functional_call(net, params, (y,)).sum().backward()  # error
""",
    "steps that the caller leaves at their default": """\
def adapt(net, x, steps=2):
    params = dict(net.named_parameters())
    for _ in range(steps):
        grads = torch.autograd.grad(functional_call(net, params, (x,)).sum(), list(params.values()))
        params = {n: p - 0.1 * g for (n, p), g in zip(params.items(), grads)}
    return params
def train(data):
    net = Net()
    for x, y in data:
        functional_call(net, adapt(net, x), (y,)).sum().backward()  # error
train([])
""",
    "an OrderedDict": """\
def inner(x, y):
    net = Net()
    params = dict(net.named_parameters())
    for _ in range(3):
        grads = torch.autograd.grad(functional_call(net, params, (x,)).sum(), list(params.values()))
        params = OrderedDict((n, p - 0.1 * g) for (n, p), g in zip(params.items(), grads))
    functional_call(net, params, (y,)).sum().backward()  # error
""",
    "a function of torch": """\
def inner(x, y):
    net = Net()
    params = dict(net.named_parameters())
    for _ in range(3):
        grads = torch.autograd.grad(functional_call(net, params, (x,)).sum(), list(params.values()))
        params = {n: torch.sub(p, 0.1 * g) for (n, p), g in zip(params.items(), grads)}
    functional_call(net, params, (y,)).sum().backward()  # error
""",
    "a helper that makes the step": """\
def sgd(params, grads):
    return {n: p - 0.1 * g for (n, p), g in zip(params.items(), grads)}
def inner(x, y):
    net = Net()
    params = dict(net.named_parameters())
    for _ in range(3):
        grads = torch.autograd.grad(functional_call(net, params, (x,)).sum(), list(params.values()))
        params = sgd(params, grads)
    functional_call(net, params, (y,)).sum().backward()  # error
""",
    "steps that the object holds": """\
class Maml:
    def __init__(self):
        self.net, self.steps = Net(), 5
    def step(self, x, y):
        fast = dict(self.net.named_parameters())
        for k in range(self.steps):
            loss = functional_call(self.net, fast, (x,)).sum()
            grads = torch.autograd.grad(loss, fast.values(), create_graph=True)
            fast = {n: p - 0.1 * g for (n, p), g in zip(fast.items(), grads)}
        functional_call(self.net, fast, (y,)).sum().backward()  # error
m = Maml()
m.step(1, 2)
""",
    "steps that an option counts, which the learner holds": """\
import argparse
class Learner:
    def __init__(self, net, steps):
        self.net, self.steps = net, steps
    def predict(self, weights, x):
        return functional_call(self.net, weights, (x,))  # error
    def adapt(self, x):
        fast = dict(self.net.named_parameters())
        for _ in range(self.steps):
            grads = torch.autograd.grad(self.predict(fast, x).sum(), list(fast.values()), create_graph=True)
            fast = {n: p - 0.1 * g for (n, p), g in zip(fast.items(), grads)}
        return fast
cli = argparse.ArgumentParser()
cli.add_argument("--steps", type=int, default=3)
learner = Learner(Net(), cli.parse_args().steps)
learner.predict(learner.adapt(torch.ones(2, 8)), torch.ones(2, 8)).sum().backward()
""",
    "a list of tensors beside their names": """\
def inner(x, y):
    net = Net()
    names, fast = zip(*net.named_parameters())
    fast = list(fast)
    for _ in range(3):
        loss = functional_call(net, dict(zip(names, fast)), (x,)).sum()
        grads = torch.autograd.grad(loss, fast, create_graph=True)
        fast = [w - 0.1 * g for w, g in zip(fast, grads)]
    functional_call(net, dict(zip(names, fast)), (y,)).sum().backward()  # error
""",
    "buffers beside them, and an option": """\
import argparse
def main(args, x, y):
    net = Net()
    params, buffers = dict(net.named_parameters()), dict(net.named_buffers())
    for _ in range(args.steps):
        grads = torch.autograd.grad(functional_call(net, (params, buffers), (x,)).sum(), list(params.values()))
        params = {n: p - 0.1 * g for (n, p), g in zip(params.items(), grads)}
    functional_call(net, (params, buffers), (y,)).sum().backward()  # error
cli = argparse.ArgumentParser()
cli.add_argument("--steps", type=int, default=2)
main(cli.parse_args(), torch.ones(2, 8), torch.ones(2, 8))
""",
}
MAYBE_NOT = {
    "an open number of steps": """\
def inner(x, y, steps):
    net = Net()
    params = dict(net.named_parameters())
    for _ in range(steps):
        grads = torch.autograd.grad(functional_call(net, params, (x,)).sum(), list(params.values()))
        params = {n: p - 0.1 * g for (n, p), g in zip(params.items(), grads)}
    functional_call(net, params, (y,)).sum().backward()
""",
    "a loop that may be left at once": """\
def inner(x, y):
    net = Net()
    params = dict(net.named_parameters())
    for _ in range(3):
        if x.sum() > 0:
            break
        grads = torch.autograd.grad(functional_call(net, params, (x,)).sum(), list(params.values()))
        params = {n: p - 0.1 * g for (n, p), g in zip(params.items(), grads)}
    functional_call(net, params, (y,)).sum().backward()
""",
    "no step": """\
def inner(x, y):
    net = Net()
    params = dict(net.named_parameters())
    for _ in range(0):
        grads = torch.autograd.grad(functional_call(net, params, (x,)).sum(), list(params.values()))
        params = {n: p - 0.1 * g for (n, p), g in zip(params.items(), grads)}
    functional_call(net, params, (y,)).sum().backward()
""",
    "a step under a condition": """\
def inner(x, y):
    net = Net()
    params = dict(net.named_parameters())
    for _ in range(3):
        grads = torch.autograd.grad(functional_call(net, params, (x,)).sum(), list(params.values()))
        if y.sum() > 0:
            params = {n: p - 0.1 * g for (n, p), g in zip(params.items(), grads)}
    functional_call(net, params, (y,)).sum().backward()
""",
    "the own parameters, in a loop": """\
def inner(x, y):
    net = Net()
    params = dict(net.named_parameters())
    for _ in range(3):
        params = {n: p for n, p in params.items()}
        total = functional_call(net, params, (x,)).sum()
    functional_call(net, params, (y,)).sum().backward()
""",
    "an option that makes no step by default": """\
import argparse
cli = argparse.ArgumentParser()
cli.add_argument("--steps", type=int, default=0)
args = cli.parse_args()
net, x = Net(), torch.ones(2, 8)
params = dict(net.named_parameters())
for _ in range(args.steps):
    grads = torch.autograd.grad(functional_call(net, params, (x,)).sum(), list(params.values()))
    params = {n: p - 0.1 * g for (n, p), g in zip(params.items(), grads)}
functional_call(net, params, (x,)).sum().backward()
""",
    "a step that an option may leave out": """\
import argparse
cli = argparse.ArgumentParser()
cli.add_argument("--steps", type=int, default=3)
args = cli.parse_args()
net, x = Net(), torch.ones(2, 8)
params = dict(net.named_parameters())
for _ in range(args.steps):
    grads = torch.autograd.grad(functional_call(net, params, (x,)).sum(), list(params.values()))
    if args.steps > 1:
        params = {n: p - 0.1 * g for (n, p), g in zip(params.items(), grads)}
functional_call(net, params, (x,)).sum().backward()
""",
    "an option for steps that may end before": """\
import argparse
cli = argparse.ArgumentParser()
cli.add_argument("--steps", type=int, default=3)
args = cli.parse_args()
net, x = Net(), torch.ones(2, 8)
params = dict(net.named_parameters())
for _ in range(args.steps):
    grads = torch.autograd.grad(functional_call(net, params, (x,)).sum(), list(params.values()))
    if not any(grad.norm() > 0 for grad in grads):
        break
    params = {n: p - 0.1 * g for (n, p), g in zip(params.items(), grads)}
functional_call(net, params, (x,)).sum().backward()
""",
    "an option that brings the own ones back": """\
import argparse
cli = argparse.ArgumentParser()
cli.add_argument("--steps", type=int, default=3)
args = cli.parse_args()
net, x = Net(), torch.ones(2, 8)
params = dict(net.named_parameters())
for _ in range(args.steps):
    grads = torch.autograd.grad(functional_call(net, params, (x,)).sum(), list(params.values()))
    params = {n: p - 0.1 * g for (n, p), g in zip(params.items(), grads)}
    params = dict(net.named_parameters())
functional_call(net, params, (x,)).sum().backward()
""",
}


@pytest.mark.parametrize("code", ADAPTED.values(), ids=ADAPTED.keys())
def test_parameters_that_a_loop_surely_adapts(code):
    code = _NET + code
    expected = [n for n, line in enumerate(code.splitlines(), 1) if line.endswith("# error")]
    assert [(finding.span.line, finding.code) for finding in check_source(code)] == [(n, "CKPT119") for n in expected]


@pytest.mark.parametrize("code", MAYBE_NOT.values(), ids=MAYBE_NOT.keys())
def test_parameters_that_may_be_the_own_ones(code):
    assert [(finding.span.line, finding.code) for finding in check_source(_NET + code)] == []


GUESSED = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call
from torch.utils.checkpoint import checkpoint
class Stage(nn.Sequential):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)
class Learner(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.stages = nn.ModuleList(Stage(nn.Linear(d, d), nn.ReLU()) for _ in range(3))
        self.fc = nn.Linear(d, 2)
    def forward(self, x):
        for s in self.stages:
            x = s(x)
        return self.fc(x)
"""
OF_THE_ONE_MODEL = {
    "helper": """
def inner(model, xs, ys):
    params = dict(model.named_parameters())
    loss = F.cross_entropy(functional_call(model, params, (xs,)), ys)
    grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
    return {k: p - 0.1 * g for (k, p), g in zip(params.items(), grads)}
def outer(model, batches, opt):
    for xs, ys, xq, yq in batches:
        fast = inner(model, xs, ys)
        loss = F.cross_entropy(functional_call(model, fast, (xq,)), yq)
        loss.backward()
        opt.step()
""",
    "copies": """
def outer(net, batches, opt):
    for xs, ys, xq, yq in batches:
        fast = {k: v.detach().clone().requires_grad_() for k, v in net.named_parameters()}
        loss = F.cross_entropy(functional_call(net, fast, xq), yq)
        loss.backward()
        opt.step()
""",
}
OF_ANOTHER = {
    "one of two models": """
class Other(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.a = nn.Linear(d, d)
    def forward(self, x):
        return self.a(x)
def outer(net, batches, opt):
    for xs, ys, xq, yq in batches:
        fast = {k: v.detach().clone().requires_grad_() for k, v in net.named_parameters()}
        loss = F.cross_entropy(functional_call(net, fast, (xq,)), yq)
        loss.backward()
        opt.step()
""",
    "other inputs": """
def outer(net, batches, opt):
    for xs, ys, xq, yq in batches:
        fast = {k: v.detach().clone().requires_grad_() for k, v in net.named_parameters()}
        loss = F.cross_entropy(functional_call(net, fast, (xq, ys)), yq)
        loss.backward()
        opt.step()
""",
    "its own parameters": """
def outer(net, batches, opt):
    for xs, ys, xq, yq in batches:
        own = dict(net.named_parameters())
        loss = F.cross_entropy(functional_call(net, own, (xq,)), yq)
        loss.backward()
        opt.step()
""",
}


@pytest.mark.parametrize("script", OF_THE_ONE_MODEL.values(), ids=OF_THE_ONE_MODEL)
def test_a_parameter_that_only_functional_call_calls_is_the_one_model(script):
    assert "CKPT119" in {found.code for found in check_source(GUESSED + script)}


@pytest.mark.parametrize("script", OF_ANOTHER.values(), ids=OF_ANOTHER)
def test_a_parameter_that_may_be_another_model(script):
    assert "CKPT119" not in {found.code for found in check_source(GUESSED + script)}


def test_a_model_without_checkpoints():
    script = GUESSED.replace("checkpoint(super().forward, x, use_reentrant=False)", "super().forward(x)")
    assert "CKPT119" not in {found.code for found in check_source(script + OF_THE_ONE_MODEL["helper"])}
