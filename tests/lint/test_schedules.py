"""CKPT114: a schedule that moves between the forward and the backward pass of checkpointed layers."""

import textwrap

import pytest
from hf_ckpt.lint import check_source

CODE = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.up = nn.Linear(d, d)
        self.temperature = 1.0
        self.steps, self.verbose = 0, False

    def forward(self, x):
        scaled = self.up(x) / self.temperature
        if self.verbose:
            print(self.steps)
        return x + torch.tanh(scaled)

class Net(nn.Module):
    def __init__(self, d=8, n=3):
        super().__init__()
        self.scale = 1.0
        self.blocks = nn.ModuleList(Block(d) for _ in range(n))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x * self.scale

    def set_temperature(self, t):
        for block in self.blocks:
            block.temperature = t

    def set_steps(self, t):
        for block in self.blocks:
            block.steps = t

def schedule(step, first=1.0):
    return max(0.2, first - 0.1 * step)

def main(batches):
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    step = 0
    for step, x in enumerate(batches):
{body}
"""


def codes(body: str) -> list[str]:
    code = CODE.format(body=textwrap.indent(textwrap.dedent(body), " " * 8))
    return [finding.code for finding in check_source(code)]


@pytest.mark.parametrize(
    "change",
    [
        "net.set_temperature(max(0.2, 1.0 - 0.2 * (step + 1)))",
        "net.set_temperature(t=1.0 / (step + 1))",
        "net.set_temperature(schedule(step))",
        "for block in net.blocks:\n    block.temperature = 0.9**step",
        "for block in net.blocks:\n    block.temperature *= 0.99",
        "for i, block in enumerate(net.blocks):\n    setattr(block, 'temperature', schedule(step, first=2.0))",
        "if step % 10 == 0:\n    net.set_temperature(schedule(step // 10))",
        "net.blocks[0].temperature -= 0.01",
    ],
)
@pytest.mark.parametrize("loss", ["loss = net(x).mean()", "out = net(x)\nloss = nn.functional.mse_loss(out, x)"])
def test_a_schedule_before_backward_is_found(change, loss):
    assert codes(f"{loss}\n{change}\noptimizer.zero_grad()\nloss.backward()\noptimizer.step()") == ["CKPT114"]


@pytest.mark.parametrize(
    "body",
    [
        "net.set_temperature(schedule(step))\nnet(x).mean().backward()\noptimizer.step()",
        "loss = net(x).mean()\nloss.backward()\nnet.set_temperature(schedule(step))\noptimizer.step()",
        "loss = net(x).mean()\nnet.set_steps(step)\nloss.backward()",
        "loss = net(x).mean()\nnet.scale = schedule(step)\nloss.backward()",
        "loss = net(x).mean()\nnet.set_temperature(1.0)\nloss.backward()",
        "loss = net(x).mean()\nnet.set_temperature(schedule(step))\nwith torch.no_grad():\n    net(x)\n"
        "net.set_temperature(1.0)\nloss.backward()",
        "other = Net()\nloss = net(x).mean()\nother.set_temperature(schedule(step))\nloss.backward()",
        "with torch.no_grad():\n    loss = net(x).mean()\nnet.set_temperature(schedule(step))",
    ],
)
def test_a_schedule_that_changes_no_recomputation_is_right(body):
    assert codes(body) == []
