"""`checkpoint(block)` that was to wrap the block: it runs at once without an input, as the programs show that are run."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
from functools import partial
import torch
from torch import nn
import torch.utils.checkpoint as cp
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x).relu()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = Block()
        self.layers = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return x

"""
CALL = "\nmodel = Net()\nenable(model)\nmodel(torch.randn(2, 4, requires_grad=True)).sum().backward()\n"
LOOP = "def enable(model):\n    for layer in model.layers:\n        "
NAMED = "def enable(model):\n    for name, module in model.named_children():\n        "
WRAP = "def wrap(block):\n    return checkpoint(block, use_reentrant=False)\n\n"
WRONG = {
    "forward of an element": LOOP + "layer.forward = checkpoint(layer.forward, use_reentrant=False)",
    "the module as its forward": LOOP + "layer.forward = checkpoint(layer, use_reentrant=True)",
    "by index": "def enable(model):\n    for i in range(len(model.layers)):\n"
    "        layer = model.layers[i]\n        layer.forward = cp.checkpoint(layer.forward, use_reentrant=False)",
    "item put back": "def enable(model):\n    for i in range(2):\n"
    "        model.layers[i] = checkpoint(model.layers[i], use_reentrant=False)",
    "item of enumerate": "def enable(model):\n    for i, layer in enumerate(model.layers):\n"
    "        model.layers[i] = checkpoint(layer, use_reentrant=False)",
    "rebound loop variable": LOOP + "layer = checkpoint(layer, use_reentrant=False)",
    "every module": "def enable(model):\n    for m in model.modules():\n        if hasattr(m, 'forward'):\n"
    "            m.forward = checkpoint(m.forward, use_reentrant=False)",
    "an attribute": "def enable(model):\n    model.stem = checkpoint(model.stem, use_reentrant=False)",
    "behind hasattr": "def enable(model):\n    if hasattr(model, 'stem'):\n"
    "        model.stem = cp.checkpoint(model.stem, use_reentrant=False)",
    "setattr": NAMED + "setattr(model, name, checkpoint(module, use_reentrant=False))",
    "setattr by a variable": NAMED + "wrapped = checkpoint(module, use_reentrant=False)\n"
    "        setattr(model, name, wrapped)",
    "setattr of forward": NAMED + "setattr(module, 'forward', checkpoint(module.forward, use_reentrant=False))",
    "the dict of modules": NAMED + "model._modules[name] = checkpoint(module, use_reentrant=False)",
    "add_module": NAMED + "model.add_module(name, checkpoint(module, use_reentrant=False))",
    "getattr": "def enable(model, name='stem'):\n"
    "    setattr(model, name, checkpoint(getattr(model, name), use_reentrant=False))",
    "a list": "def enable(model):\n"
    "    model.layers = nn.ModuleList([checkpoint(m, use_reentrant=False) for m in model.layers])",
    "stars": "def enable(model):\n"
    "    model.layers = nn.Sequential(*[checkpoint(m, use_reentrant=False) for m in model.layers])",
    "a partial": "run = partial(checkpoint, use_reentrant=False)\n" + LOOP + "layer.forward = run(layer.forward)",
    "a helper": WRAP + LOOP + "layer.forward = wrap(layer.forward)",
    "a helper of a setattr": WRAP + NAMED + "setattr(model, name, wrap(module))",
    "an annotated helper": "def enable(model: nn.Module) -> nn.Module:\n"
    "    return checkpoint(model, use_reentrant=False)",
    "isinstance": "def enable(model):\n    for m in model.modules():\n        if isinstance(m, (nn.Linear, nn.Conv2d)):\n"
    "            return checkpoint(m, use_reentrant=False)",
    "a model that is called": "def enable(model):\n    model = checkpoint(model, use_reentrant=False)\n"
    "    return model(torch.ones(1, 4))",
    "modules dropped": "def enable(model):\n    for m in model.children():\n        checkpoint(m, use_reentrant=False)",
}
RIGHT = {
    "a lambda": LOOP + "layer.table = checkpoint(lambda: layer.linear.weight * 2, use_reentrant=False)",
    "a function without parameters": "def enable(model):\n    def run():\n        return model.stem.linear.weight * 2\n"
    "    run = checkpoint(run, use_reentrant=False)\n    run.sum().backward()",
    "inputs": "def enable(model):\n    x = torch.ones(1, 4)\n    for layer in model.layers:\n"
    "        x = checkpoint(layer, x, use_reentrant=False)\n    x.sum().backward()",
    "a partial with its input": "def enable(model):\n    run = partial(model.stem, torch.ones(1, 4))\n"
    "    run = checkpoint(run, use_reentrant=False)\n    run.sum().backward()",
    "a partial of checkpoint": LOOP + "layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)",
    "the lambda of a forward": "def enable(model):\n    old = model.stem.forward\n"
    "    model.stem.forward = lambda x: checkpoint(old, x, use_reentrant=False)",
    "functions of a list": "def enable(model):\n    parts = [lambda: model.stem.linear.weight.sum()]\n"
    "    for i, part in enumerate(parts):\n        parts[i] = checkpoint(part, use_reentrant=False)\n"
    "    sum(parts).backward()",
    "functions by name": "def enable(model, makers=None):\n"
    "    makers = makers or {'table': lambda: model.stem.linear.weight * 2}\n"
    "    for name, make in makers.items():\n        setattr(model, name, checkpoint(make, use_reentrant=False))",
    "a function that is given": "def total(loss):\n    loss = checkpoint(loss, use_reentrant=False)\n"
    "    return loss.sum()\n\n"
    "def enable(model):\n    total(lambda: model.stem.linear.weight * 2).backward()",
    "another checkpoint": "def checkpoint(f, **options):\n"
    "    return lambda *args: cp.checkpoint(f, *args, use_reentrant=False)\n\n"
    + LOOP
    + "layer.forward = checkpoint(layer.forward)",
}


def program(body: str) -> str:
    return HEAD + body + CALL


def found(body: str) -> list[str]:
    return [finding.message for finding in check_source(program(body), "train.py") if finding.code == "CKPT308"]


@pytest.mark.parametrize("name", WRONG)
def test_it_runs_without_an_input(name):
    assert len(found(WRONG[name])) == 1
    with pytest.raises(TypeError, match="argument"):
        exec(program(WRONG[name]), {})


@pytest.mark.parametrize("name", RIGHT)
def test_it_is_right(name):
    assert found(RIGHT[name]) == []
    exec(program(RIGHT[name]), {})


CAUGHT = """def enable(model):
    for layer in model.layers:
        try:
            layer.forward = checkpoint(layer.forward, use_reentrant=False)
        except HANDLER
"""


def test_the_error_is_caught_and_nothing_is_checkpointed():
    body = CAUGHT.replace("HANDLER", "Exception as error:\n            print(f'no checkpointing: {error}')")
    assert len(found(body)) == 1
    assert "nothing is checkpointed" in found(body)[0]
    names = {}
    exec(program(body), names)
    assert all("forward" not in vars(layer) for layer in names["model"].layers)


def test_a_handler_that_checkpoints_is_the_way_that_runs():
    rest = "TypeError:\n            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)"
    assert found(CAUGHT.replace("HANDLER", rest)) == []
    exec(program(CAUGHT.replace("HANDLER", rest)), {})


def test_a_handler_for_something_else_does_not_catch_it():
    body = CAUGHT.replace("HANDLER", "ImportError:\n            pass")
    assert len(found(body)) == 1
    assert "nothing is checkpointed" not in found(body)[0]
    with pytest.raises(TypeError):
        exec(program(body), {})
