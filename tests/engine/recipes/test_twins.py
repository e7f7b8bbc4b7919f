"""Values that two equal ops make: a rebuild makes one of them, and ledgers say so."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hf_ckpt.engine import Mode, ledger_of

from ..stacks import PlainLayer, Stack, gradients, hidden_states
from ..zoo import equal


class CastsTwice(PlainLayer):
    """As adapters in float64 beside a float32 matrix: each casts what it reads, and autograd saves both casts."""

    def __init__(self) -> None:
        super().__init__()
        self.double()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        one, two = self.up(hidden.double()), torch.relu(self.up.weight.sum() + hidden.double() @ self.up.weight.T)
        return hidden + self.down((one * two).tanh()).float()


class CastsTwiceFor(PlainLayer):
    """Likewise, each cast read by a matrix product, which saves a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.double()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down((self.up(hidden.double()) * self.up(hidden.double())).tanh()).float()


class DrawsTwice(PlainLayer):
    """Equal calls that make different values."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        one, two = (self.up(torch.nn.functional.dropout(hidden, 0.5)) for _ in range(2))
        return hidden + self.down(one * two)


class WritesBetween(PlainLayer):
    """Equal calls with a write to what they read in between."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        work = hidden * 1.0
        one = self.up(work.exp())
        with torch.no_grad():
            work += 1.0
        return hidden + self.down(one * self.up(work.exp()))


class MakesQuicklyAgain(PlainLayer):
    """An activation that nothing saves, at both ends of a layer whose middle is wide."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        first = (hidden + 1.0).sin()
        wide = self.down(torch.tanh(self.up(first).repeat(1, 1, 8))[..., : 2 * hidden.shape[-1]])
        return wide + (hidden + 1.0).cos()


def twins(kind: type[PlainLayer]) -> list[tuple[int, int]]:
    ledger = ledger_of(kind().forward, hidden_states(3))
    return [(b.twin, b.index) for b in ledger.buffers if b.twin is not None]


def test_a_saved_value_that_an_earlier_op_made_is_its_twin() -> None:
    ((first, second),) = twins(CastsTwice)
    assert first < second


@pytest.mark.parametrize("kind", [DrawsTwice, WritesBetween, PlainLayer])
def test_what_is_not_sure_to_be_equal_has_no_twin(kind: type[PlainLayer]) -> None:
    assert twins(kind) == []


class Casts(TorchDispatchMode):
    """Counts casts of float32 to float64."""

    found = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.found += func is torch.ops.aten._to_copy.default and kwargs.get("dtype") is torch.float64
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", [CastsTwice, CastsTwiceFor])
def test_a_replay_makes_and_holds_one_of_two(kind: type[PlainLayer]) -> None:
    stack = Stack(kind, count=1)
    stack.checkpoint()
    for _ in range(2):
        loss = stack(hidden_states(3)).sum()
        with Casts() as casts:
            loss.backward()
    gradient_of_the_result = 1
    assert casts.found == 1 + gradient_of_the_result


@pytest.mark.parametrize("kind", [CastsTwice, CastsTwiceFor, DrawsTwice, MakesQuicklyAgain])
def test_gradients_are_equal(kind: type[PlainLayer]) -> None:
    torch.manual_seed(0)
    expected = gradients(Stack(kind))
    torch.manual_seed(0)
    stack = Stack(kind)
    engines = stack.checkpoint()
    assert equal(gradients(stack), expected)
    assert {engine.report().mode for engine in engines} == {Mode.SYMBOLIC}
