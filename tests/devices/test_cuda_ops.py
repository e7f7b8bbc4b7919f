"""The ops and saved tensors of a card, traced on a build of torch that has no CUDA."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig

from hf_ckpt.anatomy import read_anatomy
from hf_ckpt.devices.attention import AttentionCall, Kernel, kernel_for
from hf_ckpt.devices.cuda_ops import CudaOps
from hf_ckpt.measuring.dry_run import dry_ledgers

if TYPE_CHECKING:
    from hf_ckpt.ledger import LayerLedger

BATCH, LENGTH, HEADS, KEY_HEADS, WIDTH = 2, 48, 4, 2, 16
SIZES = {
    "hidden_size": HEADS * WIDTH, "intermediate_size": 128, "num_attention_heads": HEADS, "num_hidden_layers": 1,
    "num_key_value_heads": KEY_HEADS, "vocab_size": 64,
}  # fmt: skip


def ledger(
    capability: tuple[int, int],
    dtype: torch.dtype = torch.bfloat16,
    *,
    lora: float | None = None,
    window: int | None = None,
    length: int = LENGTH,
) -> LayerLedger:
    config = LlamaConfig(**SIZES) if window is None else MistralConfig(**SIZES, sliding_window=window)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
        if lora is not None:
            model = get_peft_model(model, LoraConfig(r=4, lora_dropout=lora, target_modules="all-linear"))
    ids = torch.zeros(BATCH, length, dtype=torch.long, device="meta")
    (found,) = dry_ledgers(model.train(), read_anatomy(model), ids, torch.device("cpu"), card=CudaOps(capability))
    assert found is not None
    return found


def attention_op(found: LayerLedger) -> str:
    (name,) = (op.name for op in found.ops if "scaled_dot_product" in op.name or "_softmax" in op.name)
    return name


@pytest.mark.parametrize(
    ("capability", "dtype", "window", "op"),
    [
        ((9, 0), torch.bfloat16, None, "cudnn"),
        ((8, 0), torch.bfloat16, None, "flash"),
        ((8, 9), torch.float16, None, "flash"),
        ((9, 0), torch.bfloat16, 16, "cudnn"),
        ((8, 0), torch.bfloat16, 16, "efficient"),
        ((7, 5), torch.float16, 16, "efficient"),
        ((7, 5), torch.float16, None, "softmax"),  # no flash, and the efficient kernel takes no grouped heads
        ((8, 0), torch.float32, 16, "efficient"),
    ],
)
def test_the_kernel_of_the_card_is_traced(
    capability: tuple[int, int], dtype: torch.dtype, window: int | None, op: str
) -> None:
    assert op in attention_op(ledger(capability, dtype, window=window))


def test_flash_saves_its_inputs_its_output_and_the_sums_of_its_rows() -> None:
    found = ledger((8, 0))
    (op,) = (op for op in found.ops if "flash" in op.name)
    saved = {b: found.buffers[b] for b in (*op.inputs, *op.outputs) if found.buffers[b].saved}
    rows = BATCH * LENGTH
    queries = keys = rows * 2 * WIDTH
    expected = sorted([queries * HEADS, keys * KEY_HEADS, keys * KEY_HEADS, queries * HEADS, rows * HEADS * 4, 16, 8])
    assert sorted(buffer.nbytes for buffer in saved.values()) == expected


def test_dropout_keeps_a_mask_of_booleans_and_is_drawn_again() -> None:
    found = ledger((8, 0), lora=0.05)
    drawn = [b for b in found.buffers if b.dtype == "bool" and b.saved]
    assert drawn
    assert all(b.nbytes == torch.Size(b.shape).numel() and b.source.value == "random" for b in drawn)


def test_a_mask_becomes_numbers_that_the_backward_reads() -> None:
    found = ledger((8, 0), window=16)
    square = [b for b in found.buffers if b.shape[-2:] == (LENGTH, LENGTH) and b.dtype == "bfloat16" and b.saved]
    assert [b.nbytes for b in square] == [BATCH * LENGTH * LENGTH * 2]


@pytest.mark.parametrize(("length", "row"), [(32, 32), (33, 40), (40, 40), (41, 48), (44, 48)])
def test_the_rows_of_a_mask_are_as_long_as_the_efficient_kernel_reads_them(length: int, row: int) -> None:
    found = ledger((8, 0), window=16, length=length)
    masks = {b.nbytes for b in found.buffers if b.shape[-2:] == (length, row) and b.dtype == "bfloat16" and b.saved}
    assert masks == {BATCH * length * row * 2}


@pytest.mark.parametrize(
    ("capability", "call", "kernel"),
    [
        ((8, 0), AttentionCall("bfloat16", 320, 320), Kernel.EFFICIENT),
        ((8, 0), AttentionCall("bfloat16", 192, 128), Kernel.EFFICIENT),
        ((8, 6), AttentionCall("bfloat16", 256, 256, dropout=True), Kernel.EFFICIENT),
        ((8, 6), AttentionCall("bfloat16", 256, 256), Kernel.FLASH),
        ((9, 0), AttentionCall("float32", 64, 64), Kernel.EFFICIENT),
        ((9, 0), AttentionCall("float32", 64, 64, grouped=True), Kernel.MATH),
        ((9, 0), AttentionCall("bfloat16", 64, 64, masked=True, learned=True), Kernel.EFFICIENT),
        ((9, 0), AttentionCall("bfloat16", 64, 60), Kernel.EFFICIENT),
        ((7, 5), AttentionCall("bfloat16", 64, 64), Kernel.MATH),
        ((8, 0), AttentionCall("bfloat16", 60, 60, masked=True), Kernel.MATH),
    ],
)
def test_kernels_have_limits(capability: tuple[int, int], call: AttentionCall, kernel: Kernel) -> None:
    assert kernel_for(capability, call) is kernel


def test_frozen_weights_take_no_gradient_product() -> None:
    full, lora = ledger((8, 0)), ledger((8, 0), lora=0.0)
    by_module = {op.module: op.gradients for op in full.ops if op.name == "aten.mm.default"}
    assert by_module["mlp.up_proj"] == 2
    base = [op.gradients for op in lora.ops if op.module == "mlp.up_proj.base_layer" and op.name == "aten.mm.default"]
    assert base == [1]
