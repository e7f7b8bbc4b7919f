"""The peak meter counts storages, exactly."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from hf_ckpt import apply
from hf_ckpt.measuring.peak import PeakMeter

from ..models import batch, build

CPU = torch.device("cpu")
KIB = 1024


def test_counts_each_storage_once_and_forgets_it_when_it_dies():
    with PeakMeter(CPU) as meter:
        first = torch.zeros(KIB)
        view = first.view(32, 32).t()
        del first
        second = torch.ones(2 * KIB)
        second.add_(1)
        assert meter.alive_bytes() == 4 * (KIB + 2 * KIB)
        del view, second
        assert meter.alive_bytes() == 0
        torch.zeros(KIB)
    assert meter.peak_bytes == 4 * (KIB + 2 * KIB)


def test_what_was_alive_before_does_not_count():
    before = torch.zeros(KIB)
    with PeakMeter(CPU) as meter:
        before.mul_(2)
        before.view(32, 32)
    assert meter.peak_bytes == 0


def test_backward_counts_and_checkpointing_lowers_the_peak():
    weight = torch.randn(64, 64, requires_grad=True)
    x = torch.randn(256, 64)

    def block(value):
        for _ in range(8):
            value = torch.tanh(value @ weight)
        return value

    def peak(wrap):
        weight.grad = None
        with PeakMeter(CPU) as meter:
            value = x
            for _ in range(4):
                value = wrap(value)
            value.sum().backward()
        return meter.peak_bytes

    plain = peak(block)
    recomputed = peak(lambda value: checkpoint(block, value, use_reentrant=False))
    tensor = 256 * 64 * 4
    assert plain > 32 * tensor
    assert recomputed < plain / 2
    assert recomputed > 8 * tensor


@pytest.mark.parametrize("policy", ["full", "attention+norm", "segments(2)"])
def test_a_policy_lowers_the_peak_of_a_real_model(policy):
    model = build("llama")
    ids = batch(2, 128)

    def step():
        model.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()

    def peak():
        step()
        with PeakMeter(CPU) as meter:
            step()
        return meter.peak_bytes

    plain = peak()
    handle = apply(model, policy)
    assert peak() < plain
    handle.restore()
    assert peak() == plain
