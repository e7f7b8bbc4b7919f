"""Whatever else the Trainer is told to do, training under SelectiveCkpt is the same to the last bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.nn import functional as F
from transformers import (
    EarlyStoppingCallback,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainingArguments,
)

from hf_ckpt import SelectiveCkpt

from ..models import build
from .test_selective_ckpt import dataset, identical, outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

POLICIES = ("full", "budget=0.5", "segments(2)")
ALL = {
    "max_steps": 3, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 3, "logging_steps": 1, "seed": 1,
    "use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_strategy": "no",
}  # fmt: skip
EVERY_STEP = {"eval_strategy": "steps", "eval_steps": 1}


def llama() -> Any:
    return build("llama")


def t5() -> T5ForConditionalGeneration:
    """With dropout, and without a KV cache in training: it changes the order in which gradients are summed."""
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=300,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=3,
        num_heads=4,
        decoder_start_token_id=0,
        use_cache=False,
    )
    return T5ForConditionalGeneration(config)


def ragged() -> list[dict[str, torch.Tensor]]:
    """Sequences of 4 to 16 tokens."""
    cut = [{name: ids[: 4 + 5 * at % 13] for name, ids in item.items()} for at, item in enumerate(dataset())]
    assert len({len(item["input_ids"]) for item in cut}) > 3
    return cut


def pad(items: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    ids = torch.nn.utils.rnn.pad_sequence([item["input_ids"] for item in items], batch_first=True)
    present = torch.nn.utils.rnn.pad_sequence([torch.ones_like(item["input_ids"]) for item in items], batch_first=True)
    return {"input_ids": ids, "attention_mask": present, "labels": ids.masked_fill(present == 0, -100)}


def next_token_loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
    return F.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


@dataclass(frozen=True)
class Options:
    """How a Trainer is built."""

    arguments: dict[str, Any]
    model: Callable[[], Any] = llama
    data: Callable[[], Any] = dataset
    trainer: type[Trainer] = Trainer
    kind: type[TrainingArguments] = TrainingArguments
    more: dict[str, Any] = field(default_factory=dict)
    callbacks: tuple[Callable[[], Any], ...] = ()

    def train(self, folder: Path, *policies: str) -> Trainer:
        arguments = self.kind(str(folder), **(ALL | self.arguments))
        evaluated = {"eval_dataset": self.data()[:4]} if "eval_strategy" in self.arguments else {}
        added = [*(make() for make in self.callbacks), *map(SelectiveCkpt, policies)]
        trainer = self.trainer(
            model=self.model(), args=arguments, train_dataset=self.data(), callbacks=added, **evaluated, **self.more
        )
        trainer.train()
        return trainer


SAVED = {
    "save_strategy": "steps",
    "save_steps": 1,
    "load_best_model_at_end": True,
    "metric_for_best_model": "eval_loss",
}
OPTIONS = {
    "stops early, loads the best": Options(
        {**EVERY_STEP, **SAVED, "max_steps": 6}, callbacks=(partial(EarlyStoppingCallback, 1),)
    ),
    "grouped by length": Options(
        {"train_sampling_strategy": "group_by_length"}, data=ragged, more={"data_collator": pad}
    ),
}
SLOW = {
    "neftune": Options({"neftune_noise_alpha": 5.0}),
    "generates in evaluation": Options(
        {**EVERY_STEP, "predict_with_generate": True, "generation_max_length": 6},
        t5, trainer=Seq2SeqTrainer, kind=Seq2SeqTrainingArguments,
    ),
    "bf16, evaluates in bf16": Options({**EVERY_STEP, "bf16": True, "bf16_full_eval": True}),
    "evaluates on start": Options({**EVERY_STEP, "eval_on_start": True}),
    "evaluates in fp16": Options({**EVERY_STEP, "fp16_full_eval": True}),
    "empties the cache": Options({"torch_empty_cache_steps": 1}),
    "label smoothing": Options({"label_smoothing_factor": 0.1}),
    "a loss function": Options({}, more={"compute_loss_func": next_token_loss}),
    "adafactor": Options({"optim": "adafactor"}),
    "no clipping": Options({"max_grad_norm": 0.0}),
    "epochs": Options({"max_steps": -1, "num_train_epochs": 2, "save_strategy": "epoch", "eval_strategy": "epoch"}),
    "counts tokens": Options({"include_num_input_tokens_seen": "all"}),
    "workers": Options({"dataloader_num_workers": 1}),
    "finds the batch size": Options({"auto_find_batch_size": True}),
    "full determinism": Options({"full_determinism": True}),
    "split batches": Options({"accelerator_config": {"split_batches": True}}),
    "evaluation accumulates": Options({**EVERY_STEP, "eval_accumulation_steps": 1}),
}  # fmt: skip


def options() -> Iterator[Any]:
    for name, made in OPTIONS.items():
        yield pytest.param(made, id=name)
    for name, made in SLOW.items():
        yield pytest.param(made, id=name, marks=pytest.mark.slow)


@pytest.fixture(autouse=True)
def _plain_algorithms() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("made", list(options()))
def test_training_is_the_same(made: Options, tmp_path: Path) -> None:
    plain = made.train(tmp_path / "plain")
    for policy in POLICIES:
        trained = made.train(tmp_path / policy, policy)
        assert identical(outcome(trained), outcome(plain)), policy
