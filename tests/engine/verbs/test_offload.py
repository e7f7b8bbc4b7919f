"""Offload: the verb. On a CPU the copies are real, only the streams are missing."""

from __future__ import annotations

import gc

import pytest
import torch

from hf_ckpt.assignment import Assignment
from hf_ckpt.engine import plan_of
from hf_ckpt.engine.offloading import free_memory
from hf_ckpt.engine.offloading.transfers import Transfers, give_back, transfers_of
from hf_ckpt.engine.verbs.offload import Offload, OffloadedStorage
from hf_ckpt.errors import BudgetError, PolicyError
from hf_ckpt.policy.decision import Keep, RecomputeLayer

from ..zoo import batch, build, equal, install, step, uninstall


def offload_plan(model, every: int = 1):
    """Offload every activation whose index divides, rebuild the others."""
    engines = install(model, RecomputeLayer())
    step(model, batch())
    ledger = engines[0].ledger()
    saved = [b.index for b in ledger.saved_activations()]
    return plan_of(ledger, Assignment.where(offload=saved[::every]))


def test_without_a_gpu_it_is_an_error_with_a_reason() -> None:
    model = build("llama")
    plan = offload_plan(model)
    install(model, plan)
    with pytest.raises(PolicyError, match="layer0: offload moves activations from a GPU to host memory"):
        step(model, batch())


@pytest.mark.parametrize("every", [1, 2, 3])
def test_offloaded_tensors_come_back_bitwise(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    monkeypatch.setattr(Offload, "check_possible", lambda self, layer, device: None)
    model = build("llama")
    uninstall(model)
    expected = step(model, batch())
    engines = install(model, offload_plan(model, every))
    host = transfers_of(torch.device("cpu")).host
    step(model, batch())
    made = host.segments
    assert made
    for _ in range(3):
        assert equal(step(model, batch()), expected)
    assert host.segments == made, "allocated after warm-up"
    report = engines[0].report()
    assert report.stored_bytes["offload"]
    assert bool(report.replays) == (every > 1)
    for engine in engines:
        engine.plan = Keep()
    assert equal(step(model, batch()), expected)


def test_a_retained_graph_brings_its_tensors_back_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Offload, "check_possible", lambda self, layer, device: None)
    model = build("llama")
    install(model, offload_plan(model, 2))
    expected = step(model, batch())
    model.zero_grad()
    torch.manual_seed(3)
    loss = model(**batch()).loss
    loss.backward(retain_graph=True)
    model.zero_grad()
    loss.backward()
    assert equal([loss.detach(), *(p.grad for p in model.parameters())], expected)


@pytest.mark.parametrize("first", [True, False], ids=["in the first step", "later"])
def test_a_host_that_is_full_ends_the_step_with_one_sentence(monkeypatch: pytest.MonkeyPatch, first: bool) -> None:
    monkeypatch.setattr(Offload, "check_possible", lambda self, layer, device: None)
    model = build("llama")
    plan = offload_plan(model)
    expected = step(model, batch())
    install(model, plan)
    if not first:
        step(model, batch())
    gc.collect()  # what other tests left of their graphs
    give_back()
    with monkeypatch.context() as full:
        full.setattr(free_memory, "free_bytes", lambda: 0)
        with pytest.raises(BudgetError, match="offload has pinned 0 bytes of this host's memory and needs"):
            step(model, batch())
    assert equal(step(model, batch()), expected)
    gc.collect()  # the error held the graph
    give_back()
    assert transfers_of(torch.device("cpu")).host.pinned == 0


def test_views_of_one_storage_travel_once() -> None:
    transfers = Transfers(torch.device("cpu"))
    base = torch.arange(24.0)
    offloaded = OffloadedStorage(base[3:], transfers)
    assert transfers.host.segments == 1
    assert offloaded.storage().nbytes() == base.untyped_storage().nbytes()
    del offloaded
    assert OffloadedStorage(base, transfers)
    assert transfers.host.segments == 1


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_offload_on_cuda_frees_device_memory_and_is_bitwise() -> None:
    model = build("llama", attention_dropout=0.0).cuda()
    inputs = {name: tensor.cuda() for name, tensor in batch(8, 100).items()}
    uninstall(model)
    expected = step(model, inputs)
    install(model, offload_plan_on(model, inputs))
    for _ in range(4):
        assert equal(step(model, inputs), expected)


def offload_plan_on(model, inputs):
    engines = install(model, RecomputeLayer())
    step(model, inputs)
    ledger = engines[0].ledger()
    return plan_of(ledger, Assignment.where(offload=[b.index for b in ledger.saved_activations()][::2]))
