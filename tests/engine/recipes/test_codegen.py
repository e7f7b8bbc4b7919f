"""What a rebuild's source calls a value that the layer computes twice."""

import pytest
import torch

from hf_ckpt.engine import Mode
from hf_ckpt.measuring.peak import PeakMeter

from ..stacks import PlainLayer, Stack, gradients, hidden_states
from ..zoo import equal


class ProjectsTwice(PlainLayer):
    """The same product twice: a view of the second one folds into a window of a product that is written once."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(torch.tanh(self.up(hidden)) * torch.sigmoid(self.up(hidden)))


class WindowsOfTheSame(PlainLayer):
    """Windows into the second of two equal products."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        one, two = self.up(hidden.tanh()).chunk(2, -1)
        three, four = self.up(hidden.tanh()).chunk(2, -1)
        return hidden + one * four + two * three


@pytest.mark.parametrize("kind", [ProjectsTwice, WindowsOfTheSame])
def test_a_value_that_is_computed_twice_is_written_once_and_known_by_its_first_name(kind: type[PlainLayer]) -> None:
    expected = gradients(Stack(kind))
    stack = Stack(kind)
    engines = stack.checkpoint()
    for _ in range(2):
        assert equal(gradients(stack), expected)
    assert {engine.report().mode for engine in engines} == {Mode.SYMBOLIC}


def test_what_is_compared_is_dropped_at_once_so_the_first_use_takes_no_more_than_backward() -> None:
    class Long(PlainLayer):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            for _ in range(12):
                hidden = hidden.sin().transpose(-1, -2).contiguous().transpose(-1, -2)
            return super().forward(hidden)

    stack = Stack(Long)
    stack.checkpoint()
    peaks = []
    for _ in range(2):
        with PeakMeter(torch.device("cpu")) as meter:
            stack(hidden_states(512)).sum().backward()
        peaks.append(meter.peak_bytes)
    assert peaks[0] <= 1.1 * peaks[1]
