"""Ints among a layer's arguments that differ from step to step, as those of padding-free batches do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import DataCollatorWithFlattening

from hf_ckpt.engine import Mode, clear_traces
from hf_ckpt.policy.decision import RecomputeLayer

from ..stacks import PlainLayer, Stack, hidden_states
from ..zoo import build, equal, install, step, uninstall

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _no_traces() -> Iterator[None]:
    clear_traces()
    yield
    clear_traces()


def packed(*lengths: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(len(lengths))
    texts = [{"input_ids": torch.randint(3, 96, (n,), generator=generator).tolist()} for n in lengths]
    batch: dict[str, Any] = DataCollatorWithFlattening(return_flash_attn_kwargs=True)(texts)
    return batch


def test_padding_free_batches_share_a_trace() -> None:
    model, reference = build("llama", num_hidden_layers=2), build("llama", num_hidden_layers=2)
    uninstall(reference)
    engines = install(model, RecomputeLayer())
    for longest in (*range(9, 16), 9):
        inputs = packed(longest, 18 - longest)
        assert type(inputs["max_length_q"]) is int
        assert equal(step(model, inputs), step(reference, inputs)), longest
        assert engines[0].report().mode is Mode.SYMBOLIC
    for longest in range(9, 12):  # together with other totals
        inputs = packed(longest, longest + 5, 6)
        assert equal(step(model, inputs), step(reference, inputs)), longest
    assert all(engine.report().traces <= 2 for engine in engines)


class IgnoresIt(PlainLayer):
    def forward(self, hidden: torch.Tensor, number: int = 1, power: int = 1) -> torch.Tensor:
        return hidden + self.down(torch.tanh(self.up(hidden)).pow(power))


class SlicesByIt(PlainLayer):
    def forward(self, hidden: torch.Tensor, number: int = 1, power: int = 1) -> torch.Tensor:
        return hidden + self.down(torch.tanh(self.up(hidden[:, : number % 4 + 1]))).sum(1, keepdim=True)


class MultipliesByIt(PlainLayer):
    def forward(self, hidden: torch.Tensor, number: int = 1, power: int = 1) -> torch.Tensor:
        return hidden + self.down(torch.tanh(self.up(hidden) * number))


class ClampsToIt(PlainLayer):
    """Equal at first: the data reaches no bound until it grows."""

    def forward(self, hidden: torch.Tensor, number: int = 1, power: int = 1) -> torch.Tensor:
        return hidden + self.down(torch.sigmoid(self.up(hidden).clamp(max=number)))


class FillsWithIt(PlainLayer):
    def forward(self, hidden: torch.Tensor, number: int = 1, power: int = 1) -> torch.Tensor:
        return hidden + self.down(torch.tanh(self.up(hidden)) * torch.tensor(number))


class LoopsOverIt(PlainLayer):
    def forward(self, hidden: torch.Tensor, number: int = 1, power: int = 1) -> torch.Tensor:
        for _ in range(number % 3):
            hidden = super().forward(hidden)
        return hidden


class BranchesOnIt(PlainLayer):
    """The same saved tensors in either branch."""

    def forward(self, hidden: torch.Tensor, number: int = 1, power: int = 1) -> torch.Tensor:
        activation = torch.sigmoid if number > 20 else torch.tanh
        return hidden + self.down(activation(self.up(hidden)))


class BranchesUnseen(PlainLayer):
    """No symbol is an int, so no trace with symbols comes to the comparison."""

    def forward(self, hidden: torch.Tensor, number: int = 1, power: int = 1) -> torch.Tensor:
        activation = torch.sigmoid if type(number) is int and number > 20 else torch.tanh
        return hidden + self.down(activation(self.up(hidden)))


class StackWithNumbers(Stack):
    def forward(self, hidden: torch.Tensor, number: int = 1, power: int = 1) -> torch.Tensor:
        for layer in self.layers:
            hidden = layer(hidden, number, power=power)
        return hidden


def gradients(stack: Stack, scale: float, number: int, power: int = 2) -> list[torch.Tensor]:
    stack.zero_grad()
    x = hidden_states()
    stack(x * scale, number, power).pow(2).sum().backward()
    assert x.grad is not None
    return [x.grad, *(p.grad.clone() for p in stack.parameters() if p.grad is not None)]


NUMBERS = (5, 7, 9, 30, 6, 31, 7, 30)


@pytest.mark.parametrize(
    "kind",
    [
        IgnoresIt,
        SlicesByIt,
        MultipliesByIt,
        ClampsToIt,
        FillsWithIt,
        LoopsOverIt,
        BranchesOnIt,
        BranchesUnseen,
    ],
)
def test_an_int_that_is_read_is_never_left_out(kind: type[PlainLayer], caplog: pytest.LogCaptureFixture) -> None:
    stack, reference = StackWithNumbers(kind, count=1), StackWithNumbers(kind, count=1)
    engines = stack.checkpoint()
    for scale in (0.1, 100.0):
        for number in NUMBERS:
            assert equal(gradients(stack, scale, number), gradients(reference, scale, number)), (scale, number)
    keeps_a_symbol = kind in (IgnoresIt, SlicesByIt, MultipliesByIt, ClampsToIt)
    assert all((engine.report().traces <= 2) is keeps_a_symbol for engine in engines)
    assert not [r.getMessage() for r in caplog.records if r.name.startswith("hf_ckpt")]


class ShapedBySize(PlainLayer):
    """As vision layers pass the shape of their feature map on."""

    def forward(self, hidden: torch.Tensor, size: torch.Size) -> torch.Tensor:
        return super().forward(hidden.view(size[0] * size[1], size[2])).view(size)


def test_a_size_among_the_arguments() -> None:
    def run(layer: PlainLayer, length: int) -> list[torch.Tensor]:
        layer.zero_grad()
        x = hidden_states(length)
        layer(x, x.shape).pow(2).sum().backward()
        assert x.grad is not None
        return [x.grad, *(p.grad.clone() for p in layer.parameters() if p.grad is not None)]

    stack, reference = Stack(ShapedBySize, count=1), Stack(ShapedBySize, count=1)
    (engine,) = stack.checkpoint()
    for length in (5, 5, 7, 9, 7):
        assert equal(run(stack.layers[0], length), run(reference.layers[0], length)), length
        assert engine.report().mode in (Mode.SYMBOLIC, Mode.PER_SHAPE), engine.report().reason
    assert engine.report().replays == 5


def test_an_int_that_is_read_but_stays_costs_the_others_nothing() -> None:
    stack, reference = StackWithNumbers(IgnoresIt), StackWithNumbers(IgnoresIt)
    engines = stack.checkpoint()
    for number in NUMBERS:
        assert equal(gradients(stack, 1.0, number, power=3), gradients(reference, 1.0, number, power=3))
    assert engines[0].report().traces == 2
    for power in (2, 3):
        for number in NUMBERS[:3]:
            assert equal(gradients(stack, 1.0, number, power), gradients(reference, 1.0, number, power))


def test_every_value_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from hf_ckpt.engine import replay

    compared = []

    class Counting(replay.CheckedFrame):
        def run(self, *args: Any) -> Any:
            compared.append(self.prepared.signature.values)
            return super().run(*args)

    monkeypatch.setattr(replay, "CheckedFrame", Counting)
    stack = StackWithNumbers(IgnoresIt, count=1)
    stack.checkpoint()
    for _ in range(2):
        for number in (3, 4, 5, 6, 7):
            gradients(stack, 1.0, number)
    assert compared == [(number, 2) for number in (3, 4, 5, 6, 7)]
