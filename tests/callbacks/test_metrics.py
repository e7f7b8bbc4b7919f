"""What is logged is what the logged step did, over all of its forwards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from hf_ckpt.callbacks.trainer_facts import is_logged
from transformers import Trainer, TrainerState

from hf_ckpt import SelectiveCkpt, apply

from ..models import build
from .test_selective_ckpt import arguments, dataset

if TYPE_CHECKING:
    from pathlib import Path


class Growing(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """The same length four times, then a length four times as long."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = torch.cat([dataset()[0]["input_ids"]] * (1 if index < 4 else 4))
        return {"input_ids": row, "labels": row}


class InOrder(Trainer):
    def _get_train_sampler(self, *_: Any) -> torch.utils.data.Sampler[int]:
        return torch.utils.data.SequentialSampler(self.train_dataset)


def logs(tmp_path: Path, policy: str, **more: Any) -> list[dict[str, Any]]:
    options = {"max_steps": 8, "gradient_accumulation_steps": 1, "per_device_train_batch_size": 1}
    trainer = InOrder(
        model=build("llama"),
        args=arguments(tmp_path, **(options | more)),
        train_dataset=Growing(),
        callbacks=[SelectiveCkpt(policy)],
    )
    trainer.train()
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def test_each_logged_step_tells_of_itself_and_learning_steps_are_marked(tmp_path: Path) -> None:
    entries = logs(tmp_path, "budget=1.0")
    assert [entry["ckpt/learning_steps"] for entry in entries] == [1, 0, 0, 0, 0, 0, 0, 0]
    for entry in entries:
        assert entry["ckpt/recomputed_share"] == entry["ckpt/learning_steps"]
    held = [entry["ckpt/held_bytes"] for entry in entries]
    assert held[1] == held[3] < held[5] == held[7]


def test_rare_logs_are_of_their_own_step(tmp_path: Path) -> None:
    short, long = logs(tmp_path, "budget=1.0", logging_steps=4)
    assert [entry["ckpt/learning_steps"] for entry in (short, long)] == [1, 0]
    assert [entry["ckpt/recomputed_share"] for entry in (short, long)] == [0.0, 0.0]
    assert short["ckpt/held_bytes"] < long["ckpt/held_bytes"]


def test_which_steps_are_logged(tmp_path: Path) -> None:
    def logged(state: TrainerState, **options: Any) -> list[int]:
        args = arguments(tmp_path, **options)
        return [step + 1 for step in range(state.max_steps) if is_logged(args, replace(state, global_step=step))]

    state = TrainerState(max_steps=6, logging_steps=2)
    assert logged(state) == [2, 4, 6]
    assert logged(state, logging_first_step=True) == [1, 2, 4, 6]
    assert logged(state, logging_strategy="epoch", num_train_epochs=2, max_steps=-1) == [3, 6]
    assert logged(state, logging_strategy="no") == []


def test_forwards_that_wait_for_one_backward_are_held_together() -> None:
    model, held = build("llama"), []
    ids = dataset()[0]["input_ids"][None]
    for forwards in (1, 2, 3):
        handle = apply(model, "full")
        with handle.measure():
            losses = [model(input_ids=ids, labels=ids).loss for _ in range(forwards)]
            torch.stack(losses).sum().backward()
            model(input_ids=ids[:, :8], labels=ids[:, :8]).loss.backward()
        held.append(handle.report().held_bytes or 0)
        assert handle.report().recomputed_share == 1.0
        handle.restore()
    assert held[0] < held[1] < held[2]
    assert held[2] - held[1] == held[1] - held[0] > 0.9 * held[0]
