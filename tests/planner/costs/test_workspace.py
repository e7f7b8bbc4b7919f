"""What backwards take for themselves: by hand, and as torch's own ops have it."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from hf_ckpt.ledger import ChunkedPart, LayerLedger, Source
from hf_ckpt.measuring.peak import PeakMeter
from hf_ckpt.planner.costs.transient import transient_bytes
from hf_ckpt.planner.costs.workspace import chunk_bytes, op_workspace

from ..planner_ledgers import Builder

FLASH = "aten._scaled_dot_product_flash_attention.default"


def floats(ledger: LayerLedger, dtype: str = "float32") -> LayerLedger:
    return dataclasses.replace(ledger, buffers=tuple(dataclasses.replace(b, dtype=dtype) for b in ledger.buffers))


def test_the_backward_of_a_power_makes_two_tensors_of_its_own() -> None:
    given = torch.randn(1 << 20).requires_grad_()
    made = given.pow(2)
    gradient = torch.ones_like(made)
    with PeakMeter(torch.device("cpu")) as meter:
        made.backward(gradient)
    b = Builder()
    x = b.buffer(given.nbytes, Source.INPUT)
    b.op([x], [(given.nbytes, False)], name="aten.pow.Tensor_Scalar")
    ledger = b.ledger()
    own_gradient = given.nbytes
    assert meter.peak_bytes == pytest.approx(own_gradient + op_workspace(ledger, ledger.ops[0]), rel=0.01)


@pytest.mark.parametrize(
    ("name", "dtype", "keys", "taken"),
    [
        (FLASH, "bfloat16", 64, 2 * 64),  # queries summed in float32
        (FLASH, "bfloat16", 16, 2 * 64 + 2 * 64),  # gradients of keys and values for all heads
        (FLASH, "float16", 16, 2 * 64 + 2 * 64),
        ("aten._scaled_dot_product_flash_attention_for_cpu.default", "float32", 16, 0),
        ("aten._scaled_dot_product_cudnn_attention.default", "bfloat16", 16, 0),
        ("aten.mm.default", "bfloat16", 64, 0),
        ("mine.unknown.default", "bfloat16", 64, 0),
    ],
)
def test_what_attention_takes(name: str, dtype: str, keys: int, taken: int) -> None:
    b = Builder()
    q, k, v = (b.buffer(n, Source.INPUT) for n in (64, keys, keys))
    b.op([q, k, v], [(64, True)], name=name)
    ledger = floats(b.ledger(), dtype)
    assert op_workspace(ledger, ledger.ops[0]) == taken


@pytest.mark.parametrize(("dtype", "kept"), [("bfloat16", 4), ("float32", 0)])
def test_a_sum_by_group_over_more_than_two_gigabytes_adds_up_in_float32(dtype: str, kept: int) -> None:
    def taken(queries: int) -> int:
        b = Builder()
        q, k, v = (b.buffer(n, Source.INPUT) for n in (queries, queries // 4, queries // 4))
        b.op([q, k, v], [(queries, True)], name=FLASH)
        ledger = floats(b.ledger(), dtype)
        return op_workspace(ledger, ledger.ops[0])

    half, more = 1 << 31, 1 << 32
    assert taken(more) - 2 * taken(half) == kept * (more // 4) // 2


def test_what_two_ops_read_has_two_parts_of_a_gradient() -> None:
    """The part of the op at hand beside that of the op behind it; an addition passes on what it is given."""

    def peak(name: str) -> int:
        b = Builder()
        x = b.buffer(10, Source.INPUT)
        (one,) = b.op([x], [(0, False)], name=name)
        (two,) = b.op([x], [(0, False)], name="aten.mm.default")
        b.op([one, two], [(0, False)], name="aten.cat.default")
        return transient_bytes(floats(b.ledger()))

    assert peak("aten.mm.default") - peak("aten.add.Tensor") == 10


def test_equal_values_come_back_as_one() -> None:
    def peak(twin: int | None) -> int:
        b = Builder()
        x = b.buffer(10, Source.INPUT)
        (one,) = b.op([x], [(100, True)])
        (two,) = b.op([x], [(100, True)])
        b.op([one, two], [(1, False)])
        ledger = b.ledger()
        buffers = [dataclasses.replace(ledger.buffers[two], twin=twin) if c.index == two else c for c in ledger.buffers]
        return transient_bytes(dataclasses.replace(ledger, buffers=tuple(buffers)), held=frozenset())

    assert peak(None) - peak(1) == 100


def test_a_part_in_chunks_takes_less_the_more_there_are() -> None:
    def taken(chunks: int) -> int:
        b = Builder()
        x, weight = b.buffer(1024, Source.INPUT), b.buffer(8, Source.PARAMETER)
        inside = x
        for width in (4096, 4096, 1024):  # a trace has the ops of every chunk; one is enough here
            (inside,) = b.op([inside, weight], [(width // chunks, False)], name="aten.mm.default")
        ledger = b.ledger()
        ops = tuple(dataclasses.replace(op, module="mlp.up") for op in ledger.ops)
        return chunk_bytes(dataclasses.replace(ledger, ops=ops), ChunkedPart("mlp", chunks, sums=7))

    assert taken(1) > 1.8 * taken(2) > 3 * taken(4)
    assert taken(1024) < 1024
