"""The proof judges what ran: layers that sat a step out are waited for, a head without effect is told."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, Trainer

from hf_ckpt import SelectiveCkpt
from hf_ckpt.errors import NoEffectError

from ..models import build, build_vlm
from .test_selective_ckpt import arguments, dataset, outcome, train

if TYPE_CHECKING:
    from pathlib import Path


def _bart(layerdrop: float) -> BartForConditionalGeneration:
    torch.manual_seed(0)
    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=256, d_model=32, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, encoder_layerdrop=layerdrop,
            decoder_layerdrop=layerdrop, pad_token_id=2, decoder_start_token_id=0, use_cache=False,
        )
    )  # fmt: skip


def test_dropped_layers_are_proven_in_a_later_step(tmp_path: Path) -> None:
    more = {"gradient_accumulation_steps": 1, "max_steps": 5}
    reference = outcome(train(_bart(0.3), arguments(tmp_path, **more)))
    callback = SelectiveCkpt("full")
    result = outcome(train(_bart(0.3), arguments(tmp_path, **more), callback))
    assert result[0] == reference[0]
    assert all(torch.equal(a, b) for a, b in zip(result[1], reference[1], strict=True))
    assert 1 < callback._first_steps.steps <= 5, "the first step drops layers under this seed"
    assert callback.report is not None
    assert all(layer.ran == (layer.replays > 0) for layer in callback.report.layers)


def test_a_tower_without_input_is_waited_for_and_given_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    callback = SelectiveCkpt("full@vision+full@language")
    with caplog.at_level(logging.WARNING, logger="hf_ckpt"):
        train(build_vlm(), arguments(tmp_path, gradient_accumulation_steps=1, max_steps=6), callback)
    assert callback._first_steps.steps == 5
    assert callback.report is not None
    assert "did not run in the measured step" in str(callback.report)
    assert caplog.text.count("did not run in the first 5 steps") == 1


class OwnLoss(Trainer):
    """Takes the labels out of the batch, as many examples do."""

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, **_: Any) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = torch.nn.functional.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return (loss, outputs) if return_outputs else loss


@pytest.mark.parametrize(("kind", "more"), [(Trainer, {"label_smoothing_factor": 0.1}), (OwnLoss, {})])
def test_a_chunked_head_without_effect_is_an_error(kind: type[Trainer], more: dict[str, Any], tmp_path: Path) -> None:
    callback = SelectiveCkpt("full+head(8)")
    trainer = kind(build("llama"), arguments(tmp_path, **more), train_dataset=dataset(), callbacks=[callback])
    with pytest.raises(NoEffectError, match=r"head\(8\).*was given `labels`"):
        trainer.train()
    assert "head(8) had no effect" in " ".join(str(callback.report).split())
    assert "forward" not in vars(trainer.model.lm_head)


def test_a_head_that_runs_in_chunks_is_counted(tmp_path: Path) -> None:
    callback = SelectiveCkpt("full+head(8)")
    train(build("llama"), arguments(tmp_path, max_steps=1), callback)
    assert callback.report is not None
    assert [(head.asked, head.losses, head.problem) for head in callback.report.heads] == [(True, 3, "")]


def test_a_head_chosen_by_the_planner_only_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    callback = SelectiveCkpt(budget="64GiB")
    trainer = OwnLoss(build("llama"), arguments(tmp_path), train_dataset=dataset(), callbacks=[callback])

    def chunk(*_: Any) -> None:
        callback._handle.planner.head.use(8)

    trainer.model.register_forward_pre_hook(chunk)
    with caplog.at_level(logging.WARNING, logger="hf_ckpt"):
        trainer.train()
    assert "chosen by the planner, had no effect" in caplog.text
