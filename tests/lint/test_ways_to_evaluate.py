"""How an evaluation leaves the model in eval mode: whichever way, it is said; one that switches back is left alone."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import contextlib
import torch
from transformers import AutoModelForCausalLM

{0}
def main(name, loader, valid):
    net = AutoModelForCausalLM.from_pretrained(name)
    net.gradient_checkpointing_enable({"use_reentrant": False})
    net.train()
    optim = torch.optim.AdamW(net.parameters())
    for epoch in range(3):
        for batch in loader:
            net(**batch).loss.backward()
            optim.step()
        print(score(net, valid))
"""
WAYS = {
    "manager": """\
@contextlib.contextmanager
def evaluation(net):
    net.eval()
    with torch.inference_mode():
        yield net

def score(net, valid):
    total = 0
    with evaluation(net):
        for batch in valid:
            total += net(**batch).loss.item()
    return total
""",
    "finally": """\
@contextlib.contextmanager
def evaluation(net):
    net.eval()
    try:
        with torch.no_grad():
            yield net
    finally:
        print('done')

def score(net, valid):
    total = 0
    with evaluation(net):
        for batch in valid:
            total += net(**batch).loss.item()
    return total
""",
    "exit stack inside": """\
@contextlib.contextmanager
def evaluation(net):
    net.eval()
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        yield

def score(net, valid):
    total = 0
    with evaluation(net):
        for batch in valid:
            total += net(**batch).loss.item()
    return total
""",
    "exit stack": """\
@contextlib.contextmanager
def evaluation(net):
    net.eval()
    yield net

def score(net, valid):
    with contextlib.ExitStack() as stack:
        stack.enter_context(evaluation(net))
        return sum(net(**batch).loss.item() for batch in valid)
""",
    "two contexts": """\
@contextlib.contextmanager
def evaluation(net):
    net.eval()
    yield net

def score(net, valid):
    with torch.no_grad(), evaluation(net) as model:
        return sum(model(**batch).loss.item() for batch in valid)
""",
    "several models": """\
@contextlib.contextmanager
def evaluation(*models):
    for model in models:
        model.eval()
    yield

def score(net, valid):
    with torch.no_grad(), evaluation(net):
        return sum(net(**batch).loss.item() for batch in valid)
""",
    "callable object": """\
class Evaluator:
    def __init__(self, model, valid):
        self.model, self.valid = model, valid

    def __call__(self):
        self.model.eval()
        with torch.no_grad():
            return sum(self.model(**batch).loss.item() for batch in self.valid)

def score(net, valid):
    return Evaluator(net, valid)()
""",
    "decorator": """\
def evaluating(function):
    def run(model, *args):
        model.eval()
        with torch.no_grad():
            return function(model, *args)
    return run

@evaluating
def score(net, valid):
    return sum(net(**batch).loss.item() for batch in valid)
""",
    "wraps": """\
import functools
def evaluating(function):
    @functools.wraps(function)
    def run(model, *args, **kwargs):
        model.eval()
        with torch.no_grad():
            return function(model, *args, **kwargs)
    return run

@evaluating
def score(net, valid):
    return sum(net(**batch).loss.item() for batch in valid)
""",
    "generator": """\
def predictions(net, valid):
    net.eval()
    for batch in valid:
        with torch.no_grad():
            yield net(**batch).loss.item()

def score(net, valid):
    return sum(predictions(net, valid))
""",
    "registry": """\
METRICS = {}
def metric(f):
    METRICS[f.__name__] = f
    return f

@metric
def loss(net, valid):
    net.eval()
    with torch.no_grad():
        return sum(net(**batch).loss.item() for batch in valid)

def score(net, valid):
    return {name: f(net, valid) for name, f in METRICS.items()}
""",
    "base class": """\
class Base:
    def evaluate(self, net, valid):
        net.eval()
        return self.total(net, valid)

class Scorer(Base):
    @torch.inference_mode()
    def total(self, net, valid):
        return sum(net(**batch).loss.item() for batch in valid)

def score(net, valid):
    return Scorer().evaluate(net, valid)
""",
    "dataclass": """\
from dataclasses import dataclass
@dataclass
class Scorer:
    net: torch.nn.Module
    valid: list

    def run(self):
        self.net.eval()
        with torch.no_grad():
            return sum(self.net(**batch).loss.item() for batch in self.valid)

def score(net, valid):
    return Scorer(net, valid).run()
""",
    "ContextDecorator": """\
class Evaluating(contextlib.AbstractContextManager):
    def __init__(self, net):
        self.net = net
    def __enter__(self):
        self.net.eval()
        return self
    def __exit__(self, *error):
        return None

def score(net, valid):
    with Evaluating(net), torch.no_grad():
        return sum(net(**batch).loss.item() for batch in valid)
""",
    "partial": """\
from functools import partial
def score(net, valid):
    run = partial(_score, net)
    return run(valid)

@torch.no_grad()
def _score(net, valid):
    net.eval()
    return sum(net(**batch).loss.item() for batch in valid)
""",
    "manager in manager": """\
@contextlib.contextmanager
def quiet(net):
    net.eval()
    yield

@contextlib.contextmanager
def evaluation(net):
    with quiet(net), torch.no_grad():
        yield

def score(net, valid):
    total = 0
    with evaluation(net):
        for batch in valid:
            total += net(**batch).loss.item()
    return total
""",
    "static": """\
class Metrics:
    @staticmethod
    @torch.no_grad()
    def loss(net, valid):
        net.eval()
        return sum(net(**batch).loss.item() for batch in valid)

def score(net, valid):
    return Metrics.loss(net, valid)
""",
    "closure": """\
def make(net):
    def run(valid):
        net.eval()
        with torch.no_grad():
            return sum(net(**batch).loss.item() for batch in valid)
    return run

def score(net, valid):
    return make(net)(valid)
""",
    "method manager": """\
class Evaluator:
    def __init__(self, net):
        self.net = net

    @contextlib.contextmanager
    def mode(self):
        self.net.eval()
        with torch.no_grad():
            yield self.net

def score(net, valid):
    with Evaluator(net).mode() as net:
        return sum(net(**batch).loss.item() for batch in valid)
""",
}
#: Ways in which the model trains again afterwards, or may.
RIGHT = {
    "train in finally": """\
@contextlib.contextmanager
def evaluation(net):
    net.eval()
    try:
        with torch.no_grad():
            yield net
    finally:
        net.train()

def score(net, valid):
    total = 0
    with evaluation(net):
        for batch in valid:
            total += net(**batch).loss.item()
    return total
""",
    "the mode before": """\
@contextlib.contextmanager
def evaluation(net):
    before = net.training
    net.eval()
    yield net
    net.train(before)

def score(net, valid):
    total = 0
    with evaluation(net):
        for batch in valid:
            total += net(**batch).loss.item()
    return total
""",
    "exit stack": """\
@contextlib.contextmanager
def evaluation(net):
    net.eval()
    yield net
    net.train()

def score(net, valid):
    with contextlib.ExitStack() as stack:
        stack.enter_context(evaluation(net))
        return sum(net(**batch).loss.item() for batch in valid)
""",
    "imported": """\
from library import evaluation

def score(net, valid):
    total = 0
    with evaluation(net):
        for batch in valid:
            total += net(**batch).loss.item()
    return total
""",
    "callback": """\
@contextlib.contextmanager
def evaluation(net):
    net.eval()
    with contextlib.ExitStack() as stack:
        stack.callback(net.train)
        yield

def score(net, valid):
    total = 0
    with evaluation(net):
        for batch in valid:
            total += net(**batch).loss.item()
    return total
""",
    "decorator": """\
def evaluating(function):
    def run(model, *args):
        model.eval()
        with torch.no_grad():
            result = function(model, *args)
        model.train()
        return result
    return run

@evaluating
def score(net, valid):
    return sum(net(**batch).loss.item() for batch in valid)
""",
    "each module's own mode": """\
@contextlib.contextmanager
def evaluation(net):
    modes = [m.training for m in net.modules()]
    net.eval()
    yield net
    for m, mode in zip(net.modules(), modes):
        m.training = mode

def score(net, valid):
    total = 0
    with evaluation(net):
        for batch in valid:
            total += net(**batch).loss.item()
    return total
""",
    "each module": """\
@contextlib.contextmanager
def evaluation(net):
    net.eval()
    yield
    set_modes(net)

def set_modes(net):
    for m in net.modules():
        m.train()

def score(net, valid):
    total = 0
    with evaluation(net):
        for batch in valid:
            total += net(**batch).loss.item()
    return total
""",
    "applied": """\
@contextlib.contextmanager
def evaluation(net):
    net.eval()
    yield
    net.apply(lambda m: m.train())

def score(net, valid):
    total = 0
    with evaluation(net):
        for batch in valid:
            total += net(**batch).loss.item()
    return total
""",
}


def codes(scoring: str) -> set[str]:
    return {found.code for found in check_source(SCRIPT.replace("{0}", scoring))}


@pytest.mark.parametrize("way", WAYS)
def test_the_second_epoch_is_in_eval_mode(way):
    assert "CKPT203" in codes(WAYS[way])


@pytest.mark.parametrize("way", RIGHT)
def test_each_epoch_is_in_train_mode(way):
    assert "CKPT203" not in codes(RIGHT[way])
