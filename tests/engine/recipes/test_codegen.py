"""What a rebuild's source calls a value that the layer computes twice."""

import pytest
import torch

from hf_ckpt.engine import Mode

from ..stacks import PlainLayer, Stack, gradients
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
