"""What the planner takes for chunkable is what runs in chunks."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from hf_ckpt.head.install import install
from hf_ckpt.head.managed import ManagedHead
from hf_ckpt.planner.calibration.calibrate import describe
from hf_ckpt.planner.costs.roofline import Calibration

IDS = torch.arange(32).reshape(2, 16)
NO_RATES = Calibration(describe(torch.device("cpu")), {}, {}, 1e10, {}, 1e9, 1e9, 1e-6, 1e-5)


def llama(dtype: torch.dtype, vocabulary: int = 97) -> torch.nn.Module:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "vocab_size": vocabulary}
    config = LlamaConfig(num_hidden_layers=1, num_attention_heads=2, use_cache=False, **sizes)
    return AutoModelForCausalLM.from_config(config, dtype=dtype).train()


def forward(model: torch.nn.Module, autocast: torch.dtype | None) -> object:
    with torch.autocast("cpu", autocast, enabled=autocast is not None):
        return model(input_ids=IDS, labels=IDS)


@pytest.mark.parametrize(
    ("dtype", "autocast", "can_defer"),
    [
        (torch.float32, None, True),
        (torch.bfloat16, None, True),
        (torch.float16, None, False),
        (torch.float32, torch.float16, False),
    ],
)
def test_no_head_with_float16_logits_is_planned_in_chunks(
    dtype: torch.dtype, autocast: torch.dtype | None, can_defer: bool
) -> None:
    model = llama(dtype)
    head = ManagedHead(model, NO_RATES, fixed=None, choose=True)
    head.attach()
    head.observe(forward(model, autocast), IDS.numel())
    assert head.own is not None
    assert head.own.use.forwards == 0, "paused, the head runs as the model has it"
    assert (len(head.options(IDS.numel())) > 1) is can_defer
    head.use(4)
    forward(model, autocast)
    assert (head.own.use.losses == 1) is can_defer
    head.undo()


@pytest.mark.parametrize(("dtype", "chunks"), [(torch.bfloat16, 4), (torch.float16, 1)])
def test_a_head_that_was_asked_for_counts_as_it_runs(dtype: torch.dtype, chunks: int) -> None:
    model = llama(dtype)
    head = ManagedHead(model, NO_RATES, fixed=install(model, 4), choose=True)
    head.observe(forward(model, None), IDS.numel())
    (option,) = head.options(IDS.numel())
    assert option.chunks == chunks


@pytest.mark.parametrize(("room", "chunks"), [(None, 1), (4.0, 1), (1.0, 16), (0.2, 64)])
def test_before_the_first_plan_a_large_head_is_cut_as_far_as_it_must(room: float | None, chunks: int) -> None:
    head = ManagedHead(llama(torch.float32, vocabulary=4000), NO_RATES, fixed=None, choose=True)
    head.attach()
    used: list[int] = []
    head.use = used.append  # type: ignore[method-assign]
    tokens = 4096
    plain = head.options(tokens)[0].nbytes
    head.chunk_until_planned(tokens, None if room is None else int(room * plain))
    head.undo()
    assert used == [chunks]
