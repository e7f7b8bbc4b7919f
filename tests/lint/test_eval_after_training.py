"""`eval()` behind the training leaves what it did to running statistics as it is: torch counts the updates."""

from __future__ import annotations

import contextlib
import io

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

SCRIPT = """\
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.block = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

    def forward(self, x):
        return checkpoint(self.block, self.stem(x), use_reentrant=False)

def step(net):
    net(torch.randn(3, 4)).sum().backward()

{helper}def main():
    net = Net()
    {body}
    return net

if __name__ == "__main__":
    trained = main()
"""
HELPERS = {
    "fit(net": """\
def fit(net, epochs=2):
    for _ in range(epochs):
        step(net)

""",
    "test(net)": """\
def test(net):
    net.eval()
    with torch.no_grad():
        return net(torch.randn(3, 4)).sum()

""",
    "freeze(net)": """\
def freeze(net):
    for module in net.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.eval()

""",
}
#: Every training step updates the statistics twice.
TWICE = (
    "fit(net)",
    "fit(net)\nnet.eval()",
    "fit(net)\nnet = net.eval()",
    "fit(net)\nnet.train(False)",
    "fit(net)\nprint(test(net))",
    "fit(net)\nnet.block.eval()\ntorch.save(net.state_dict(), io.BytesIO())",
    "fit(net)\nfreeze(net)",
    "for _ in range(2):\n    step(net)\nfor _ in range(2):\n    test(net)",
    "for _ in range(2):\n    step(net)\nelse:\n    net.eval()",
    "net.train()\nfor _ in range(2):\n    fit(net, 1)\n    net.train()\nnet.eval()",
    "try:\n    fit(net)\nfinally:\n    net.eval()",
)
#: Some steps, or all of them, leave the statistics as they are.
KEPT = (
    "net.eval()\nfit(net)",
    "freeze(net)\nfit(net)",
    "fit(net)\nnet.eval()\nfit(net)",
    "for _ in range(2):\n    fit(net, 1)\n    net.eval()",
    "for _ in range(2):\n    step(net)\n    test(net)",
    "test(net)\nfit(net)",
    "fit(net)\nfreeze(net)\nstep(net)",
    "for run in range(6):\n    pass\nfit(net)\nfit(net)\nfit(net)\nfit(net)\nnet.eval()\nfit(net)",
    "net.block.eval()\nfor _ in range(2):\n    step(net)\nnet.eval()",
)


def _program(body: str) -> str:
    helper = "".join(code for call, code in HELPERS.items() if call in body)
    return "import io\n" + SCRIPT.format(body=body.replace("\n", "\n    "), helper=helper)


def _codes(text: str) -> list[str]:
    return [finding.code for finding in check_source(text, "train.py") if finding.code == "CKPT106"]


def _updates(text: str) -> tuple[int, int]:
    """How often the statistics were updated, and how many backward passes ran."""
    steps = []
    names = {"__name__": "__main__", "steps": steps}
    counted = text.replace("def step(net):\n", "def step(net):\n    steps.append(1)\n")
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(counted, "train.py", "exec"), names)
    return int(names["trained"].block[1].num_batches_tracked), len(steps)


@pytest.mark.parametrize("body", TWICE)
def test_statistics_that_the_training_updated_twice(body):
    text = _program(body)
    updates, steps = _updates(text)
    assert updates == 2 * steps
    assert _codes(text) == ["CKPT106"]


@pytest.mark.parametrize("body", KEPT)
def test_an_eval_that_a_training_step_sees_keeps_statistics(body):
    text = _program(body)
    updates, steps = _updates(text)
    assert updates < 2 * steps
    assert _codes(text) == []


@pytest.mark.parametrize(
    "later", ["trainer.fit(net)", "Trainer(model=net).train()", "finetune(net, loader)", "net.train()", "launch(net)"]
)
def test_a_training_that_is_not_shown_may_see_the_eval(later):
    text = "from helpers import Trainer, finetune, launch, loader, trainer\n" + _program(
        f"fit(net)\nnet.eval()\n{later}"
    )
    assert _codes(text) == ([] if later != "net.train()" else ["CKPT106"])


@pytest.mark.parametrize("later", ["evaluate(net, loader)", "export(net)", "net.train(False)", "print(net)"])
def test_what_follows_the_eval_does_not_train(later):
    text = "from helpers import evaluate, export, loader\n" + _program(f"fit(net)\nnet.eval()\n{later}")
    assert _codes(text) == ["CKPT106"]
