"""TRL's SFTTrainer builds no logits: its head is planned as what its backward really makes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from hf_ckpt.head.options import BYTES_PER_TILE_LOGIT, HeadShape, Tile, head_option
from hf_ckpt.head.tiles import tile_behind
from hf_ckpt.measuring.peak import PeakMeter

from ..planner_models import conduct, nothing_used

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VOCABULARY = 4096
IDS = torch.arange(4 * 48).reshape(4, 48)
CONFIG = LlamaConfig(
    num_hidden_layers=3, hidden_size=32, intermediate_size=64, num_attention_heads=2, vocab_size=VOCABULARY,
    use_cache=False,
)  # fmt: skip


def sft(folder: Path, dtype: torch.dtype, *, trained: bool, **options: Any) -> tuple[Any, Callable[[], None]]:
    """A model in an SFTTrainer, and a step of its loss."""
    trl = pytest.importorskip("trl", reason="TRL is not installed")
    from datasets import Dataset
    from tokenizers import Tokenizer, models

    torch.manual_seed(0)
    model = LlamaForCausalLM(CONFIG).to(dtype)
    model.lm_head.requires_grad_(trained)
    letters = Tokenizer(models.WordLevel({chr(i): i for i in range(256)}, chr(3)))
    arguments = trl.SFTConfig(
        str(folder), use_cpu=True, report_to="none", bf16=False, gradient_checkpointing=False,
        dataset_kwargs={"skip_prepare_dataset": True}, **options,
    )  # fmt: skip
    trainer = trl.SFTTrainer(
        model, arguments, train_dataset=Dataset.from_list([{"input_ids": IDS[0].tolist()}]),
        processing_class=PreTrainedTokenizerFast(tokenizer_object=letters, pad_token=chr(2)),
    )  # fmt: skip
    model = trainer.model.train()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None

    inputs = {"input_ids": IDS, "labels": IDS, "attention_mask": torch.ones_like(IDS)}

    def step() -> None:
        model.zero_grad(set_to_none=False)
        trainer.compute_loss(model, inputs, num_items_in_batch=IDS.numel()).backward()

    return model, step


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("trained", [True, False])
def test_the_planned_head_is_what_the_loss_takes(dtype: torch.dtype, trained: bool, tmp_path: Path) -> None:
    """The peak of a plain step, less what layers and embeddings hold then, within 5 %."""
    model, step = sft(tmp_path, dtype, trained=trained)
    with PeakMeter(torch.device("cpu")) as meter:
        step()
    planner = conduct(model, f"{3 * meter.peak_bytes}B", memory=nothing_used())
    for _ in range(2):
        step()
    assert planner.current is not None
    assert planner.head.rows_per_token == 0
    solution = planner.current.solution
    counted = meter.peak_bytes - solution.predicted.held - planner.surroundings.beside.nbytes
    assert abs(solution.head.nbytes - counted) <= 0.05 * counted


def test_a_budget_holds_at_the_real_peak(tmp_path: Path) -> None:
    model, step = sft(tmp_path, torch.float32, trained=True)
    with PeakMeter(torch.device("cpu")) as meter:
        step()
    budget = meter.peak_bytes  # most of it is the head's, which does not shrink
    planner = conduct(model, f"{budget}B", memory=nothing_used())
    for _ in range(3):
        with PeakMeter(torch.device("cpu")) as meter:
            step()
        assert meter.peak_bytes <= budget
    assert planner.current is not None
    assert planner.current.solution.head.nbytes > 0.9 * budget


def test_label_smoothing_builds_logits_there(tmp_path: Path) -> None:
    model, step = sft(tmp_path, torch.float32, trained=True, label_smoothing_factor=0.1)
    planner = conduct(model, "1GiB", memory=nothing_used())
    for _ in range(2):
        step()
    assert planner.head.rows_per_token == 1
    assert planner.head.tile is None


def test_trls_own_rule_says_whether_a_tile_runs_in_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = pytest.importorskip("trl.kernels.chunked_logprob", reason="TRL is not installed")
    hidden, weight = (torch.randn(8, 32, requires_grad=True) for _ in range(2))
    output = kernels.ChunkedLogProbFunction.apply(hidden, weight, None, torch.arange(8), 1.0, 16)
    assert tile_behind(output) == Tile(kernels.TOKEN_CHUNK_SIZE, 16, 4, BYTES_PER_TILE_LOGIT)
    asked: list[torch.device] = []
    monkeypatch.setattr(kernels, "_use_triton", lambda device: asked.append(device) or True)
    assert tile_behind(output) == Tile(kernels.TOKEN_CHUNK_SIZE, 16, 4, 0)
    assert asked == [torch.device("cpu")]


def test_autocast_casts_the_tokens_and_the_weights_of_a_tile() -> None:
    """As the loop in TRL's backward: ``[rows, width]`` and ``[columns, width]`` in the buffer's dtype."""
    tile = Tile(rows=64, columns=512, itemsize=2, bytes_per_logit=0)
    under, plain = HeadShape(128, 4096, 32, 4, trained=True, tile=tile), replace(tile, itemsize=4)
    found = [head_option(shape, 1, 1e9).nbytes for shape in (under, replace(under, tile=plain))]
    buffers = 64 * 512 * 2, 64 * 512 * 4
    assert found[0] - found[1] == buffers[0] - buffers[1] + (64 + 512) * 32 * 2


def test_other_graphs_have_no_tile() -> None:
    model = LlamaForCausalLM(CONFIG)
    assert tile_behind(model(input_ids=IDS, labels=IDS)) is None
