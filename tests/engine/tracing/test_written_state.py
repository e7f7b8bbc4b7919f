"""A layer that writes state of its own in the forward is traced; its state moves as often as without checkpointing."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hf_ckpt.engine import EngineReport, Mode

from .. import stacks
from ..stacks import PlainLayer, Stack, gradients, hidden_states
from ..zoo import equal


class BatchNormed(PlainLayer):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(16)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        normed = torch.relu(self.norm(hidden.transpose(1, 2)).transpose(1, 2))
        return hidden + self.down(torch.tanh(self.up(normed)))


class BatchNormedWithoutACount(PlainLayer):
    """No op that torch sees writes its buffers: still the running statistics move once."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(16))
        self.register_buffer("var", torch.ones(16))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        rows = torch.batch_norm(
            hidden.flatten(0, 1), None, None, self.mean, self.var, True, 0.1, 1e-5, torch.backends.cudnn.enabled
        )
        return super().forward(torch.relu(rows).view_as(hidden))


class ReadsWhatItWrites(PlainLayer):
    """What stands in the buffer in backward is neither what was read before the write nor after it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(16))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        before = self.scale * 2.0
        self.scale.mul_(0.9)
        return super().forward(torch.tanh(hidden * before))


class ReadsAView(ReadsWhatItWrites):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        scale = self.scale[:]
        self.scale.mul_(0.9)
        return PlainLayer.forward(self, torch.tanh(hidden * (scale + 1.0)))


class ReadsRunningStatistics(BatchNormed):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return super().forward(hidden - self.norm.running_mean.clone())


class ClampsAWeight(PlainLayer):
    """As Gemma 3n does."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        self.up.weight.data.clamp_(-0.1, 0.1)
        return super().forward(hidden)


class ClampsAWeightTwice(PlainLayer):
    """Two writes that would each change nothing again may do so together."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        self.up.weight.data.clamp_(-0.1, 0.1)
        self.up.weight.data.clamp_(-0.05, 0.05)
        return super().forward(hidden)


class ClampsAWeightThatItRead(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        before = self.up.weight.sum()
        self.up.weight.data.clamp_(-10.0, 10.0)
        return super().forward(torch.tanh(hidden * before))


TRACED = [stacks.WritesABuffer, BatchNormed, BatchNormedWithoutACount, ClampsAWeight]
WHOLE = [ReadsWhatItWrites, ReadsAView, ReadsRunningStatistics, ClampsAWeightTwice, ClampsAWeightThatItRead]


def _twice(stack: nn.Module, length: int) -> list[torch.Tensor]:
    """Two forwards before one backward: the second one moves the state on."""
    stack.zero_grad()
    x = hidden_states(length)
    (stack(x.clone()) + stack(2 * x)).pow(2).sum().backward()
    return [x.grad, *(p.grad.clone() for p in stack.parameters() if p.grad is not None)]


def _trained_alike(kind: type[PlainLayer]) -> EngineReport:
    stack, reference = Stack(kind), Stack(kind)
    engines = stack.checkpoint()
    for run, length in ((gradients, 5), (gradients, 7), (_twice, 5), (_twice, 5)):
        assert equal(run(stack, length), run(reference, length))
        assert equal([*stack.state_dict().values()], [*reference.state_dict().values()])
    return engines[0].report()


@pytest.mark.parametrize("kind", TRACED)
def test_it_is_traced_and_its_state_moves_once_a_forward(kind: type[PlainLayer]) -> None:
    report = _trained_alike(kind)
    assert report.mode is Mode.SYMBOLIC
    assert report.replays


@pytest.mark.parametrize("kind", WHOLE)
def test_a_layer_that_reads_what_it_writes_is_replayed_whole(kind: type[PlainLayer]) -> None:
    report = _trained_alike(kind)
    assert report.mode is Mode.WHOLE
    assert "in place" in report.reason
    assert report.replays


def test_what_a_batch_norm_makes_is_rebuilt() -> None:
    stack = Stack(BatchNormed)
    engines = stack.checkpoint()
    gradients(stack)
    # the statistics of the batch and its number of rows, nothing of the size of the batch
    assert engines[0].report().kept_bytes < hidden_states().nbytes
