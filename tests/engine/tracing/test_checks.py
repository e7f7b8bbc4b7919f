"""Layers that read True or False off what they computed, as DETR's do: traced, and right whatever the answer is."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.checkpoint import checkpoint
from transformers import DetrConfig
from transformers.models.detr.modeling_detr import DetrEncoderLayer
from transformers.utils.import_utils import torch_compilable_check

from hf_ckpt.engine import Mode, clear_traces
from hf_ckpt.policy.decision import RecomputeExcept, RecomputeSublayers, SaveableOps

from ..stacks import PlainLayer, Stack, hidden_states
from ..zoo import equal

if TYPE_CHECKING:
    from collections.abc import Iterator

ORDINARY, HUGE = 0.1, 1000.0


@pytest.fixture(autouse=True)
def _no_traces() -> Iterator[None]:
    clear_traces()
    yield
    clear_traces()


def is_huge(hidden: torch.Tensor) -> bool:
    return bool((hidden.abs() > 50).any())


class ClampsAtItsEnd(PlainLayer):
    """As DETR's layers do, with running statistics and dropout before; it counts its forwards on plain tensors."""

    def __init__(self, width: int = 16) -> None:
        super().__init__(width)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        normed = self.norm(hidden.flatten(0, 1)).view_as(hidden) + hidden
        hidden = super().forward(nn.functional.dropout(normed, 0.2, self.training)) + hidden
        if is_huge(hidden):
            hidden = hidden.clamp(-40.0, 40.0)
        return hidden


class ClampsOneOfTwo(PlainLayer):
    """The second check is asked after one answer only."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = super().forward(hidden)
        if is_huge(hidden):
            return hidden.sin() if bool((hidden > 50).any()) else hidden.cos()
        return hidden


class DrawsAfterItsCheck(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.dropout(super().forward(hidden), 0.2)
        return nn.functional.dropout(hidden, 0.5) if is_huge(hidden) else hidden


class MakesSomethingAfterItsCheck(PlainLayer):
    """Nothing that is saved: the answer only decides what is added."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = super().forward(hidden)
        if is_huge(hidden):
            offset = torch.zeros_like(hidden)
            offset.add_(3.0)
            return hidden + offset
        return hidden - 1.0


class RaisesInTheMiddle(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        widened = self.up(hidden)
        torch_compilable_check(widened.abs().amax() < 1e6, "too large")
        if torch.isnan(widened).any():
            raise ValueError("not a number")
        assert widened.shape[-1] > 1
        return hidden + self.down(torch.tanh(widened))


class RaisesThenClamps(RaisesInTheMiddle):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = super().forward(hidden)
        return hidden.clamp(-40.0, 40.0) if is_huge(hidden) else hidden


TRACED = [
    ClampsAtItsEnd, ClampsOneOfTwo, DrawsAfterItsCheck, MakesSomethingAfterItsCheck, RaisesInTheMiddle,
    RaisesThenClamps,
]  # fmt: skip


class ChecksBetween(PlainLayer):
    """What is saved after the check differs, in number or in what it is."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = hidden * 0.5 if is_huge(hidden) else hidden * 2.0
        return super().forward(hidden)


class AsksInALoop(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        while is_huge(hidden):
            hidden = hidden * 0.5
        return super().forward(hidden)


class AsksForEver(PlainLayer):
    """As a trace would see it: the answer is yes each time."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = super().forward(hidden)
        while is_huge(hidden):
            hidden = hidden * 0.5
        return hidden


class SavesMuchAfterItsCheck(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = super().forward(hidden)
        return hidden.sin().cos().tanh().exp() if is_huge(hidden) else hidden


class SavesAWeightAfterItsCheck(PlainLayer):
    """FSDP takes the weight away between forward and backward."""

    def __init__(self, width: int = 16) -> None:
        super().__init__(width)
        self.gate = nn.Parameter(torch.ones(width))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = super().forward(hidden)
        return hidden * self.gate if is_huge(hidden) else hidden


class WritesAfterItsCheck(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        inner = self.down(torch.tanh(self.up(hidden)))
        total = hidden + inner
        if is_huge(total):
            total.mul_(0.5)
        return total


class WritesWhatItMadeBeforeItsCheck(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = super().forward(hidden)
        offset = torch.zeros_like(hidden)
        if is_huge(hidden):
            offset.add_(3.0)
        return hidden + offset


class CountsAfterItsCheck(PlainLayer):
    """A buffer of its module."""

    def __init__(self, width: int = 16) -> None:
        super().__init__(width)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = super().forward(hidden)
        if is_huge(hidden):
            self.seen += 1
        return hidden


class CatchesItsError(PlainLayer):
    """Its error is another one's: perhaps that one is torch's, about fake tensors."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        widened = self.up(hidden)
        if is_huge(widened):
            try:
                widened = _on_plain_tensors_only(widened)
            except TypeError as error:
                raise ValueError("cannot go on") from error
        return hidden + self.down(torch.tanh(widened))


class RaisesElsewhere(PlainLayer):
    """A function that it calls raises on fake tensors."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        widened = self.up(hidden)
        if is_huge(widened):
            widened = _on_plain_tensors_only(widened)
        return hidden + self.down(torch.tanh(widened))


def _on_plain_tensors_only(hidden: torch.Tensor) -> torch.Tensor:
    if type(hidden) is not torch.Tensor:
        raise TypeError("only plain tensors")
    return hidden * 0.5


class RaisesWhereASizeIsASymbol(PlainLayer):
    """Or where a tensor is fake: a real run never comes to this raise."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        widened = self.up(hidden)
        if is_huge(widened):
            if not isinstance(hidden.shape[1], int) or type(hidden) is not torch.Tensor:
                raise TypeError("length must be an int")
            return hidden + self.down(torch.sigmoid(widened))
        return hidden + self.down(torch.tanh(widened))


class CatchesWhatATraceSays(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        widened = self.up(hidden)
        try:
            huge = bool((widened.abs().amax() > 50) & (int(widened.argmax()) >= 0))
        except Exception:
            huge = False
        return hidden + self.down(torch.sigmoid(widened) if huge else torch.tanh(widened))


class CatchesWhatItAsks(PlainLayer):
    """So often that a trace does not answer any more."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = super().forward(hidden)
        for bound in range(6):
            try:
                if bool((hidden > 1e5 + bound).any()):
                    raise ValueError("too large")
            except Exception:
                return hidden.sin()
        return hidden


class EndsTheProcess(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = super().forward(hidden)
        if torch.isnan(hidden).any():
            sys.exit("not a number")
        return hidden


class _HandsOver(Exception):
    def __init__(self, hidden: torch.Tensor) -> None:
        super().__init__()
        self.hidden = hidden


class LeavesEarly(PlainLayer):
    """Its error hands a tensor over, so there is a backward."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        try:
            return self._inner(hidden + torch.tanh(hidden))
        except _HandsOver as error:
            return error.hidden

    def _inner(self, hidden: torch.Tensor) -> torch.Tensor:
        widened = torch.tanh(self.up(hidden))
        early = _HandsOver(widened[..., : hidden.shape[-1]])
        if (hidden.abs() > 50).any():
            raise early
        return hidden + self.down(torch.sigmoid(widened))


class ReadsAnInteger(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = super().forward(hidden)
        return hidden.roll(int(hidden.argmax()))


REPLAYED_WHOLE = [
    ChecksBetween, AsksInALoop, AsksForEver, SavesMuchAfterItsCheck, SavesAWeightAfterItsCheck, WritesAfterItsCheck,
    WritesWhatItMadeBeforeItsCheck, CountsAfterItsCheck, CatchesItsError, RaisesElsewhere, ReadsAnInteger,
    RaisesWhereASizeIsASymbol, CatchesWhatATraceSays, CatchesWhatItAsks, EndsTheProcess, LeavesEarly,
]  # fmt: skip


class _Asks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor) -> torch.Tensor:
        factor = 2.0 if is_huge(hidden) else 3.0
        ctx.save_for_backward(hidden)
        ctx.factor = factor
        return hidden.square() * factor

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (hidden,) = ctx.saved_tensors
        return gradient * 2.0 * hidden * ctx.factor


class AsksInAFunction(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden + self.down(_Asks.apply(torch.tanh(self.up(hidden))))


def inputs(scale: float, length: int = 5) -> torch.Tensor:
    return (hidden_states(length, needs_grad=False) * scale).requires_grad_()


def gradients(stack: nn.Module, *steps: tuple[float, int]) -> list[torch.Tensor]:
    """Of as many forwards before their backward as there are steps; the buffers with them."""
    stack.zero_grad()
    torch.manual_seed(5)
    given = [inputs(*step) for step in steps]
    sum(stack(x.clone()).pow(2).sum() for x in given).backward()
    found = [x.grad for x in given] + [p.grad for p in stack.parameters()]
    return [g.clone() for g in found if g is not None] + [buffer.clone() for buffer in stack.buffers()]


ORDERS = [(ORDINARY, 0.2, HUGE, ORDINARY, HUGE, HUGE), (HUGE, ORDINARY, HUGE)]


@pytest.mark.parametrize("scales", ORDERS)
@pytest.mark.parametrize("kind", TRACED)
def test_gradients_are_right_whatever_the_answer(kind: type[PlainLayer], scales: tuple[float, ...]) -> None:
    stack, reference = Stack(kind), Stack(kind)
    engines = stack.checkpoint()
    for number, scale in enumerate(scales):
        step = scale, 5 + number % 3
        assert equal(gradients(stack, step), gradients(reference, step)), step
        assert [engine.report().mode for engine in engines] == [Mode.SYMBOLIC] * 2
        assert engines[0].report().kept_bytes == 0
    assert [engine.report().traces for engine in engines] == [1, 1]
    assert engines[0].report().replays == len(scales)


@pytest.mark.parametrize("kind", TRACED)
def test_a_mode_over_all_functions_is_no_obstacle(kind: type[PlainLayer]) -> None:
    """As ``torch.set_default_device`` has one."""
    stack, reference = Stack(kind), Stack(kind)
    engines = stack.checkpoint()
    with torch.device("cpu"):
        assert equal(gradients(stack, (ORDINARY, 5)), gradients(reference, (ORDINARY, 5)))
    assert [engine.report().mode for engine in engines] == [Mode.SYMBOLIC] * 2


@pytest.mark.parametrize("scales", ORDERS)
@pytest.mark.parametrize("kind", REPLAYED_WHOLE)
def test_a_check_that_changes_more_is_replayed_whole(kind: type[PlainLayer], scales: tuple[float, ...]) -> None:
    stack, reference = Stack(kind), Stack(kind)
    engines = stack.checkpoint()
    for scale in scales:
        assert equal(gradients(stack, (scale, 5)), gradients(reference, (scale, 5))), scale
        assert engines[0].report().mode is Mode.WHOLE


def test_a_function_that_asks_is_named() -> None:
    stack, reference = Stack(AsksInAFunction), Stack(AsksInAFunction)
    engines = stack.checkpoint()
    for scale in (*ORDERS[0], 1e5):
        assert equal(gradients(stack, (scale, 5)), gradients(reference, (scale, 5))), scale
        assert engines[0].report().mode is Mode.WHOLE
        assert "_Asks cannot run again" in engines[0].report().reason


def test_an_error_that_hands_a_tensor_over() -> None:
    class Catches(Stack):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                try:
                    hidden = layer(hidden)
                except _HandsOver as error:
                    return error.hidden
            return hidden

    class HandsOver(LeavesEarly):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return self._inner(hidden + torch.tanh(hidden))

    stack, reference = Catches(HandsOver), Catches(HandsOver)
    stack.checkpoint()
    for scale in ORDERS[0]:
        assert equal(gradients(stack, (scale, 5)), gradients(reference, (scale, 5))), scale


class CallsAModuleAfterItsCheck(PlainLayer):
    def __init__(self, width: int = 16) -> None:
        super().__init__(width)
        self.clip = nn.Hardtanh(-40.0, 40.0)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = super().forward(hidden)
        return self.clip(hidden) if is_huge(hidden) else hidden


@pytest.mark.parametrize("scales", ORDERS)
def test_a_hook_on_a_module_that_only_one_answer_calls(scales: tuple[float, ...]) -> None:
    stack, reference = Stack(CallsAModuleAfterItsCheck), Stack(CallsAModuleAfterItsCheck)
    engines = stack.checkpoint()
    for layer in (*stack.layers, *reference.layers):
        layer.clip.register_forward_hook(lambda module, args, output: output * 2.0)
    for scale in scales:
        assert equal(gradients(stack, (scale, 5)), gradients(reference, (scale, 5))), scale
    assert engines[0].report().mode is Mode.WHOLE


class WarnsAfterItsCheck(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = super().forward(hidden)
        if is_huge(hidden):
            warnings.warn("huge", stacklevel=1)
            hidden = hidden.clamp(-40.0, 40.0)
        return hidden


def test_no_warning_about_an_answer_that_nobody_gave() -> None:
    stack = Stack(WarnsAfterItsCheck)
    stack.checkpoint()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gradients(stack, (ORDINARY, 5))
    assert not [warning for warning in told if str(warning.message) == "huge"]
    with pytest.warns(UserWarning, match="huge"):
        gradients(stack, (HUGE, 5))


class SwitchedByNobodyKnowsWhat(PlainLayer):
    """Where it is switched, it saves one tensor more before its check, like the one that it may save after it."""

    switched = False

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = super().forward(hidden).tanh()
        if SwitchedByNobodyKnowsWhat.switched:
            hidden = hidden.sin()
        hidden = hidden.sigmoid().tanh()
        return hidden.clamp(-40.0, 40.0) if is_huge(hidden) else hidden


def test_a_tensor_more_before_the_check_is_not_taken_for_one_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = Stack(SwitchedByNobodyKnowsWhat)
    engines = stack.checkpoint()
    gradients(stack, (ORDINARY, 5))
    assert engines[0].report().mode is Mode.SYMBOLIC
    monkeypatch.setattr(SwitchedByNobodyKnowsWhat, "switched", True)
    with pytest.raises(RuntimeError, match="other tensors before its check"):
        gradients(stack, (ORDINARY, 5))


class SwitchedInNumber(SwitchedByNobodyKnowsWhat):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        hidden = PlainLayer.forward(self, hidden)
        if SwitchedByNobodyKnowsWhat.switched:
            hidden = hidden.sin().cos()
        return hidden.clamp(-40.0, 40.0) if is_huge(hidden) else hidden


def test_no_more_is_saved_than_one_answer_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = Stack(SwitchedInNumber)
    stack.checkpoint()
    gradients(stack, (ORDINARY, 5))
    monkeypatch.setattr(SwitchedByNobodyKnowsWhat, "switched", True)
    with pytest.raises(RuntimeError, match="did something else than when it was traced"):
        gradients(stack, (ORDINARY, 5))


@pytest.mark.parametrize("kind", TRACED)
def test_forwards_with_several_answers_before_one_backward(kind: type[PlainLayer]) -> None:
    stack, reference = Stack(kind), Stack(kind)
    stack.checkpoint()
    steps = ((ORDINARY, 5), (HUGE, 5), (0.2, 7), (HUGE, 6))
    for _ in range(2):
        assert equal(gradients(stack, *steps), gradients(reference, *steps))


@pytest.mark.parametrize("plan", [RecomputeExcept(SaveableOps("dots")), RecomputeSublayers(frozenset({"mlp"}))])
def test_other_plans(plan: Any) -> None:
    stack, reference = Stack(ClampsAtItsEnd), Stack(ClampsAtItsEnd)
    engines = stack.checkpoint(plan)
    for engine in engines:
        engine.sublayers = {"mlp": ("up",)}
    for scale in ORDERS[0]:
        assert equal(gradients(stack, (scale, 5)), gradients(reference, (scale, 5)))
        assert engines[0].report().mode is Mode.SYMBOLIC


def test_the_layer_and_its_hooks_run_once_a_forward() -> None:
    stack = Stack(ClampsAtItsEnd)
    stack.checkpoint()
    calls: list[str] = []
    for layer in stack.layers:
        layer.up.register_forward_hook(lambda *_: calls.append("inside"))
        layer.register_forward_hook(lambda *_: calls.append("outside"))
    for scale in (ORDINARY, HUGE, ORDINARY):
        calls.clear()
        gradients(stack, (scale, 5))
        assert sorted(calls) == ["inside"] * 2 + ["outside"] * 2, scale


def test_an_error_of_the_layer_is_its_own() -> None:
    stack, reference = Stack(RaisesInTheMiddle), Stack(RaisesInTheMiddle)
    engines = stack.checkpoint()
    for scale, message in ((ORDINARY, ""), (1e9, "too large"), (float("nan"), "too large"), (0.2, "")):
        if message:
            with pytest.raises(ValueError, match=message):
                gradients(stack, (scale, 5))
        else:
            assert equal(gradients(stack, (scale, 5)), gradients(reference, (scale, 5)))
    assert engines[0].report().mode is Mode.SYMBOLIC


def test_inside_another_checkpoint() -> None:
    stack, reference = Stack(ClampsAtItsEnd), Stack(ClampsAtItsEnd)
    stack.checkpoint()

    class Segment(nn.Module):
        def __init__(self, inner: Stack) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, hidden: torch.Tensor) -> Any:
            return checkpoint(self.inner, hidden, use_reentrant=False)

    for scale in ORDERS[0]:
        ours, theirs = (gradients(Segment(model), (scale, 5)) for model in (stack, reference))
        count = len(list(stack.parameters())) + 1  # running statistics move once more where the segment is replayed
        assert equal(ours[:count], theirs[:count])


def test_backward_twice_through_one_graph() -> None:
    stack, reference = Stack(ClampsAtItsEnd), Stack(ClampsAtItsEnd)
    stack.checkpoint()
    for scale in ORDERS[0]:
        found = []
        for model in (stack, reference):
            model.zero_grad()
            torch.manual_seed(5)
            x = inputs(scale)
            loss = model(x.clone()).pow(2).sum()
            loss.backward(retain_graph=True)
            loss.backward()
            found.append([x.grad, *(p.grad.clone() for p in model.parameters())])
        assert equal(*found)


def test_what_is_saved_after_the_check_is_watched_too() -> None:
    layer = Stack(ClampsAtItsEnd, count=1)
    layer.checkpoint()
    gradients(layer, (HUGE, 5))
    saved: list[torch.Tensor] = []
    layer.layers[0].down.register_forward_hook(lambda module, args, output: saved.append(output))
    output = layer(inputs(HUGE).clone())
    assert output.grad_fn is not None
    clamped = output.grad_fn._saved_self  # type: ignore[attr-defined]
    with torch.no_grad():
        clamped.mul_(2.0)
    with pytest.raises(RuntimeError, match="was modified in place"):
        output.sum().backward()


def test_an_overflow_in_detr() -> None:
    config = DetrConfig(d_model=16, encoder_attention_heads=2, encoder_ffn_dim=32)
    config._attn_implementation = "eager"

    class Layer(DetrEncoderLayer):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(config)

        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            output: torch.Tensor = super().forward(hidden, None, None)
            return output

    stack, reference = Stack(Layer), Stack(Layer)
    engines = stack.checkpoint()
    for scale in (1.0, float("inf"), 2.0):
        ours, theirs = (gradients(model, (scale, 5)) for model in (stack, reference))
        assert equal([t.nan_to_num(7.0) for t in ours], [t.nan_to_num(7.0) for t in theirs]), scale
        assert [engine.report().mode for engine in engines] == [Mode.SYMBOLIC] * 2


class CountsItsTraces(PlainLayer):
    """Counts the runs of its forward on fake tensors; what it does with them makes it untraceable."""

    traced = 0

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        type(self).traced += isinstance(hidden, FakeTensor)
        return super().forward(self.looks_at(hidden.sin()))

    def looks_at(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden


class RaisesAfterAnOp(CountsItsTraces):
    def looks_at(self, hidden: torch.Tensor) -> torch.Tensor:
        if is_huge(hidden):
            shape = hidden.square().shape
            raise ValueError(f"too large: {shape}")
        return hidden


class ClampsFirst(CountsItsTraces):
    def looks_at(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden.clamp(-40.0, 40.0) if is_huge(hidden) else hidden


class PicksSome(CountsItsTraces):
    def looks_at(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden.index_fill(1, (hidden.sum((0, 2)) > 1e9).nonzero()[:, 0], 0.0)


#: The ways through each until it is refused: both answers, then again to where it asks first.
@pytest.mark.parametrize(("kind", "runs"), [(RaisesAfterAnOp, 1), (ClampsFirst, 3), (PicksSome, 1)])
def test_a_refused_layer_is_traced_no_other_way(kind: type[CountsItsTraces], runs: int) -> None:
    stack, reference = Stack(kind), Stack(kind)
    engines = stack.checkpoint()
    kind.traced = 0
    for length in (5, 6, 7):
        assert equal(gradients(stack, (ORDINARY, length)), gradients(reference, (ORDINARY, length)))
    assert [engine.report().mode for engine in engines] == [Mode.WHOLE] * 2
    assert kind.traced == runs
