"""A layer's own input offloaded: held by nobody between forward and backward, and back for the rebuild."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from hf_ckpt.assignment import Assignment
from hf_ckpt.engine import plan_of
from hf_ckpt.engine.offloading import host_memory, transfers
from hf_ckpt.engine.offloading.transfers import Transfers
from hf_ckpt.engine.running import stored_inputs
from hf_ckpt.engine.verbs.offload import Offload, OffloadedStorage
from hf_ckpt.policy.decision import Keep, RecomputeLayer, RecomputeSublayers, Role

from .. import stacks
from ..stacks import PlainLayer, Stack, gradients, hidden_states
from ..zoo import batch, build, decoder_layers, equal, install, step, uninstall

SENT = RecomputeLayer(offload=True)


@pytest.fixture(autouse=True)
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The copies are real on a CPU, only the streams are missing. Each test has host memory of its own."""
    monkeypatch.setattr(Offload, "check_possible", lambda self, layer, device: None)
    monkeypatch.setattr(transfers, "_TRANSFERS", {})


def storages_of_inputs(model: nn.Module) -> list[Any]:
    """Weak references to what each layer is given, filled by the next forwards."""
    seen: list[Any] = []
    for layer in decoder_layers(model):
        layer.register_forward_pre_hook(lambda module, args: seen.append(weakref.ref(args[0].untyped_storage())))
    return seen


@pytest.mark.parametrize("architecture", ["llama", "gpt2", "gpt_neox", "mixtral", "gemma3_text", "olmo2", "phi3"])
@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "autocast"])
def test_gradients_are_those_of_the_model_bit_for_bit(architecture: str, bf16: bool) -> None:
    model = build(architecture)
    uninstall(model)
    expected = step(model, batch(), bf16=bf16)
    engines = install(model, SENT)
    for _ in range(3):
        assert equal(step(model, batch(), bf16=bf16), expected)
    report = engines[0].report()
    width = 2 * 12 * 32 * 4
    assert report.settled
    assert report.stored_bytes["offload"] == width
    assert report.replays == 3


def test_nobody_holds_the_input_until_backward() -> None:
    model = build("llama", num_hidden_layers=4)
    install(model, SENT)
    step(model, batch())
    told = set()
    for layer in decoder_layers(model):
        layer._gradient_checkpointing_func.witness = lambda tensor: told.add(tensor.untyped_storage()._cdata)
    given: list[Any] = []
    for layer in decoder_layers(model):
        layer.register_forward_pre_hook(lambda module, args: given.append(args[0]))
    loss = model(**batch()).loss
    storages = [tensor.untyped_storage() for tensor in given]
    given.clear()
    gc.collect()
    # This list is one use; `hidden_states` of the model's loop and of its final norm hold only the last output.
    assert [torch._C._storage_Use_Count(storage._cdata) for storage in storages] == [1] * 4
    assert not told.intersection(storage._cdata for storage in storages)
    loss.backward()


def test_two_forwards_before_one_backward_and_one_after_the_other() -> None:
    model = build("llama")

    def losses() -> tuple[torch.Tensor, torch.Tensor]:
        model.zero_grad()
        torch.manual_seed(3)
        return model(**batch(seed=1)).loss, model(**batch(seed=2)).loss

    def run(together: bool) -> list[torch.Tensor]:
        first, second = losses()
        if together:
            (first + second).backward()
        else:
            first.backward()
            second.backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    uninstall(model)
    expected = run(True), run(False)
    install(model, SENT)
    for _ in range(2):
        assert equal(run(True), expected[0])
        assert equal(run(False), expected[1])


def test_a_graph_that_is_retained_and_one_of_second_order() -> None:
    stack = Stack(PlainLayer)

    def run() -> list[torch.Tensor]:
        stack.zero_grad()
        x = hidden_states().requires_grad_()
        out = stack(x).pow(2).sum()
        (first,) = torch.autograd.grad(out, x, create_graph=True)
        (first.pow(2).sum() + out).backward()
        assert x.grad is not None
        return [x.grad, *(p.grad.clone() for p in stack.parameters() if p.grad is not None)]

    expected = run()
    for engine in stack.checkpoint():
        engine.plan = SENT
    assert equal(run(), expected)
    assert equal(run(), expected)


def test_a_layer_called_twice_sends_both_inputs() -> None:
    class Twice(Stack):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return super().forward(super().forward(hidden))

    expected = gradients(Twice(PlainLayer))
    stack = Twice(PlainLayer)
    for engine in stack.checkpoint():
        engine.plan = SENT
    for _ in range(3):
        assert equal(gradients(stack), expected)


def test_a_write_to_the_input_between_forward_and_backward_is_an_error() -> None:
    stack = Stack(PlainLayer)
    for engine in stack.checkpoint():
        engine.plan = SENT
    gradients(stack)
    given: list[torch.Tensor] = []
    stack.layers[1].register_forward_pre_hook(lambda module, args: given.append(args[0]))
    loss = stack(hidden_states()).sum()
    with torch.no_grad():
        given[0].add_(1)
    with pytest.raises(RuntimeError, match="an input of the layer was modified in place"):
        loss.backward()


def test_a_write_to_an_offloaded_activation_is_an_error_as_for_kept_ones() -> None:
    class WritesLater(PlainLayer):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            self.inside = torch.tanh(self.up(hidden))
            return hidden + self.down(self.inside)

    stack = Stack(WritesLater)
    engines = stack.checkpoint()
    gradients(stack)
    ledger = engines[0].ledger()
    assert ledger is not None
    for engine in engines:
        engine.plan = plan_of(ledger, Assignment.where(offload=[b.index for b in ledger.saved_activations()]))
    gradients(stack)
    loss = stack(hidden_states()).sum()
    with torch.no_grad():
        stack.layers[0].inside.add_(1)
    with pytest.raises(RuntimeError, match="a saved tensor was modified in place"):
        loss.backward()


@pytest.mark.parametrize("kind", [stacks.WritesItsInput, stacks.ChoosesByData, stacks.WritesItsOwnTensors])
def test_layers_that_no_trace_shows_hold_their_input(kind: type[PlainLayer]) -> None:
    expected = gradients(Stack(kind))
    stack = Stack(kind)
    engines = stack.checkpoint()
    for engine in engines:
        engine.plan = SENT
    for _ in range(3):
        assert equal(gradients(stack), expected)


def test_a_forward_that_fails_leaves_the_next_step_right() -> None:
    model = build("llama", num_hidden_layers=3)
    uninstall(model)
    expected = step(model, batch())
    install(model, SENT)
    step(model, batch())

    def fail(module: nn.Module, args: Any) -> None:
        raise ZeroDivisionError

    hook = decoder_layers(model)[2].register_forward_pre_hook(fail)
    with pytest.raises(ZeroDivisionError):
        step(model, batch())
    hook.remove()
    assert equal(step(model, batch()), expected)


def test_a_part_of_a_larger_storage_stays() -> None:
    stack = Stack(PlainLayer, 1)
    whole = torch.cat([hidden_states(), hidden_states()])

    def run() -> list[torch.Tensor]:
        stack.zero_grad()
        stack(whole[: len(whole) // 2]).pow(2).sum().backward()
        return [p.grad.clone() for p in stack.parameters() if p.grad is not None]

    expected = run()
    for engine in stack.checkpoint():
        engine.plan = SENT
    host = transfers.transfers_of(torch.device("cpu")).host
    for _ in range(2):
        assert equal(run(), expected)
    assert host.out == 0
    gradients(stack)
    assert host.out > 0


def test_the_input_is_sent_beside_other_decisions_of_a_plan_and_not_where_nothing_reads_it() -> None:
    model = build("llama")
    uninstall(model)
    expected = step(model, batch())
    engines = install(model, RecomputeSublayers(frozenset({Role.MLP})))
    step(model, batch())
    ledger = engines[0].ledger()
    assert ledger is not None
    assert ledger.own_input is not None
    own, saved = ledger.own_input.index, [b.index for b in ledger.saved_activations()]
    for plan in (Assignment.where(offload=[own, *saved[::3]], keep=saved[1::3]), Assignment.where(offload=[own])):
        for engine in engines:
            engine.plan = plan_of(ledger, plan)
        for _ in range(2):
            assert equal(step(model, batch()), expected)
        assert engines[1].report().stored_bytes["offload"]
    for engine in engines:
        engine.plan = Keep()
    assert equal(step(model, batch()), expected)


def test_a_layer_that_keeps_everything_sends_its_saved_input() -> None:
    model = build("gpt2")
    uninstall(model)
    expected = step(model, batch())
    engines = install(model, RecomputeLayer())
    step(model, batch())
    ledger = engines[0].ledger()
    assert ledger is not None
    assert ledger.own_input is not None
    everything = [b.index for b in ledger.saved_activations()]
    for engine in engines:
        engine.plan = plan_of(ledger, Assignment.where(keep=everything, offload=[ledger.own_input.index]))
    for _ in range(2):
        assert equal(step(model, batch()), expected)
    report = engines[1].report()
    assert report.rebuilt_bytes == 0
    assert report.stored_bytes["offload"] == ledger.own_input.nbytes


def test_what_has_not_left_is_taken_as_it_is() -> None:
    class Held(Transfers):
        held: torch.Tensor

        def hold(self, tensor: torch.Tensor) -> None:
            self.held = tensor

    holding = Held(torch.device("cpu"))
    base = torch.arange(24.0)
    offloaded = OffloadedStorage(base, holding)
    assert offloaded.storage().data_ptr() == base.data_ptr()
    offloaded.evict()
    del holding.held
    assert offloaded.storage().data_ptr() != base.data_ptr()


def test_an_input_that_the_host_has_no_room_for_stays(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class SavesNoInput(PlainLayer):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            return super().forward(torch.tanh(hidden))

    expected = gradients(Stack(SavesNoInput))
    monkeypatch.setattr(host_memory, "rank_bytes", lambda pinned: 0)
    monkeypatch.setattr(stored_inputs, "_said", set())
    stack = Stack(SavesNoInput)
    told: list[int] = []
    for engine in stack.checkpoint():
        engine.plan, engine.witness = SENT, lambda tensor: told.append(tensor.untyped_storage()._cdata)
    given: list[torch.Tensor] = []
    stack.layers[1].register_forward_pre_hook(lambda module, args: given.append(args[0]))
    for _ in range(2):
        assert equal(gradients(stack), expected)
        assert given[-1].untyped_storage()._cdata in told
        told.clear()
    (warned,) = (r.getMessage() for r in caplog.records if r.name == stored_inputs.__name__)
    assert warned.startswith("SavesNoInput: the layer's input stays on the device, because offload has pinned 0 bytes")
