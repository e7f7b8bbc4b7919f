"""What one card holds, by how the training is set up: sums that can be done by hand."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM, LlamaConfig

from hf_ckpt.planner.memory.gathering import gathering
from hf_ckpt.planner.memory.setup import Setup, Spread, standing

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = LlamaConfig(
    hidden_size=64, intermediate_size=128, num_attention_heads=4, num_hidden_layers=3, vocab_size=96,
    tie_word_embeddings=False,
)  # fmt: skip
HALF = 2


def model(*, lora: bool = False) -> torch.nn.Module:
    with torch.device("meta"):
        found = AutoModelForCausalLM.from_config(CONFIG, dtype=torch.bfloat16)
        return get_peft_model(found, LoraConfig(r=4, target_modules="all-linear")) if lora else found


@contextmanager
def fake_ranks(world: int) -> Iterator[None]:
    dist.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    yield
    dist.destroy_process_group()


def held(spread: Spread | None, gpus: int = 4, **setup: object):
    whole = model()
    return whole, standing(whole, whole.model.layers, Setup("adamw_torch_fused", gpus, spread, **setup))


def count(parameters) -> int:
    return sum(p.numel() for p in parameters)


def test_one_card_holds_everything() -> None:
    whole, found = held(None, gpus=1)
    total = count(whole.parameters())
    buffers = sum(b.numel() * b.element_size() for b in whole.buffers())
    assert (found.weights, found.optimizer) == (HALF * total + buffers, 2 * HALF * total)
    assert (found.gathered, found.moved, found.step_copies) == (0, 0, 0)
    assert found.gradients == HALF * total
    assert found.layer_gradients == (HALF * count(whole.model.layers[0].parameters()),) * 3
    assert found.late_gradients == HALF * whole.model.embed_tokens.weight.numel()


def test_fsdp_shards_and_gathers_as_a_run_on_as_many_ranks() -> None:
    whole, found = held(Spread.FSDP)
    total, layer = count(whole.parameters()), count(whole.model.layers[0].parameters())
    assert found.optimizer == 2 * HALF * total // 4
    assert found.gathered == HALF * (total - 2 * layer)
    with fake_ranks(4):
        for each in (*whole.model.layers, whole):
            fully_shard(each)
        assert found.whole == gathering(whole, whole.model.layers)
    assert found.whole.in_layer == 3 * HALF * layer
    assert found.gradients == pytest.approx(HALF * total / 4, abs=4)


def test_float32_shards_double_what_fsdp_keeps() -> None:
    _, plain = held(Spread.FSDP)
    _, master = held(Spread.FSDP, master=True)
    for name in ("optimizer", "gradients"):
        assert getattr(master, name) == pytest.approx(2 * getattr(plain, name), rel=0.01)
    assert master.gathered == plain.gathered


def test_zero_keeps_sixteen_bytes_a_parameter_in_all() -> None:
    total = count(model().parameters())
    for spread, split in ((Spread.ZERO_1, (1, 1)), (Spread.ZERO_2, (1, 4)), (Spread.ZERO_3, (4, 4))):
        _, found = held(spread)
        weights, gradients = split
        expected = total * (HALF / weights + HALF / gradients + 12 / 4)
        assert found.weights + found.gradients + found.optimizer == pytest.approx(expected, rel=0.01)


def test_ddp_has_buckets_beside_the_gradients() -> None:
    whole, found = held(Spread.DDP)
    assert found.gathered == HALF * count(whole.parameters()) == found.gradients


def test_foreach_adamw_has_a_second_copy_in_its_step() -> None:
    whole = model()
    found = standing(whole, whole.model.layers, Setup("adamw_torch"))
    assert found.step_copies == HALF * count(whole.parameters())


def test_four_bit_packs_the_frozen_linear_weights_but_not_the_head() -> None:
    adapted = model(lora=True)
    layers = adapted.base_model.model.model.layers
    plain, packed = (standing(adapted, layers, Setup("adamw_torch_fused", four_bit=bits)) for bits in (False, True))
    linear = 3 * (4 * 64 * 64 + 3 * 64 * 128)
    assert plain.weights - packed.weights == linear * HALF - (linear // 2 + linear // 16)
    assert packed.gathered == HALF * 64 * 128
    assert packed.optimizer == plain.optimizer
