"""What a run shows under ``SelectiveCkpt(doctor=True)``: the rule's code, its page and the line; clean runs nothing."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.utils.checkpoint as torch_checkpoint
from hf_ckpt.lint.catalogue.rules import find_rule
from torch.utils.checkpoint import checkpoint
from transformers import Trainer, TrainerCallback

import hf_ckpt
from hf_ckpt import SelectiveCkpt
from hf_ckpt.anatomy import read_anatomy
from hf_ckpt.doctor.check import checks
from hf_ckpt.doctor.checkup import Checkup
from hf_ckpt.doctor.observers.checkpoint_calls import RECOMPUTED, TRACING, has_gradient
from hf_ckpt.script.as_it_is import AsItIs

from ..models import build_encoder
from .clean_ranks import STRATEGIES, words_of
from .clean_runs import CLEAN, Clean, words_about
from .run_faults import FAULTS, RunFault, _with_mlp
from .runs import arguments, pad, small_llama, texts

if TYPE_CHECKING:
    from ..forked import Forked


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_names_the_rule_and_the_line(fault: RunFault, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="hf_ckpt"):
        callback = fault.train()
    found = [trouble for trouble in callback.findings if trouble.code == fault.code]
    assert found, (caplog.text, callback.findings)
    assert {trouble.code for trouble in callback.findings} == {fault.code}, callback.findings
    lines = {None if trouble.place is None else trouble.place.line for trouble in found}
    assert fault.line is None or lines == {fault.line}, found
    assert caplog.text.count(str(found[0])) == 1


def test_every_check_is_under_a_rule_of_the_linter() -> None:
    root = Path(hf_ckpt.__file__).parents[1]
    for check in checks():
        rule = find_rule(check.code)
        assert rule is not None, check.code
        assert rule.name == check.name
        page = check.trouble("").page
        assert (root / (page.partition("/blob/main/")[2] or page)).is_file()


def test_the_folders_of_the_engine_are_where_the_notes_look_for_them() -> None:
    for folder in (RECOMPUTED, TRACING):
        assert Path(folder, "__init__.py").is_file(), folder


def test_a_policys_own_checkpoints_are_not_counted() -> None:
    model = small_llama().train()
    handle = hf_ckpt.apply(model, "full", engine="torch")
    checkup = Checkup(model, handle.anatomy)
    checkup.begin_step()
    ids = torch.zeros(2, 8, dtype=torch.long)
    model(input_ids=ids, labels=ids).loss.backward()
    checkup.backward_done()
    checkup.undo()
    assert (checkup.checkpoints, checkup.found) == (0, [])


def _clean(model: Any, policy: str, **more: Any) -> SelectiveCkpt:
    callback = SelectiveCkpt(policy, doctor=True)
    args = arguments(max_steps=4, **more)
    Trainer(model, args, train_dataset=texts([16] * 16), data_collator=pad, callbacks=[callback]).train()
    return callback


@pytest.mark.parametrize("run", CLEAN, ids=lambda run: run.name)
def test_clean_runs_are_told_nothing(run: Clean) -> None:
    before = torch_checkpoint.CheckpointFunction, torch_checkpoint._checkpoint_without_reentrant_generator
    assert words_about(run) == []
    assert (torch_checkpoint.CheckpointFunction, torch_checkpoint._checkpoint_without_reentrant_generator) == before


@pytest.mark.parametrize("strategy", STRATEGIES.values())
def test_clean_ranks_are_told_nothing(strategy: str, forked: Forked) -> None:
    assert words_of(strategy, forked) == []


def test_right_uses_of_torchs_checkpoint_are_told_nothing() -> None:
    assert _clean(_with_mlp(lambda mlp, x: checkpoint(mlp, x, use_reentrant=False)), "none").findings == []
    assert _clean(_with_mlp(lambda mlp, x: checkpoint(mlp, x, use_reentrant=True)), "none").findings == []
    assert _clean(build_encoder(), "none", bf16=True).findings == []


def test_zeros_of_a_few_steps_are_told_nothing() -> None:
    callback = SelectiveCkpt("none", doctor=True)
    model = _with_mlp(lambda mlp, x: x + 0.0 * checkpoint(mlp, x, use_reentrant=False))
    args = arguments(max_steps=2)
    Trainer(model, args, train_dataset=texts([16] * 8), data_collator=pad, callbacks=[callback]).train()
    assert callback.findings == []


def test_gradients_are_read_once_a_layer_whatever_the_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    model = _with_mlp(lambda mlp, x: checkpoint(mlp, x, use_reentrant=False)).train()
    checkup, ids, read = Checkup(model, read_anatomy(model)), torch.zeros(2, 8, dtype=torch.long), []
    checkup.begin_step()
    for _ in range(5):
        model(input_ids=ids, labels=ids).loss.backward()
        checkup.backward_done()
    monkeypatch.setattr("hf_ckpt.doctor.observers.starved.has_gradient", lambda p: read.append(p) or has_gradient(p))
    checkup.end_step()
    checkup.undo()
    assert len(read) == 1


class _Samples(TrainerCallback):
    """Generates in training mode without a KV cache, as the model is configured."""

    def on_substep_end(self, *_: Any, model: Any = None, **__: Any) -> None:
        model.generation_config.use_cache = False
        with torch.no_grad():
            model.generate(torch.zeros(1, 4, dtype=torch.long), max_new_tokens=2, pad_token_id=2)


def test_text_generated_without_a_cache_is_told_nothing() -> None:
    args = arguments(max_steps=2, gradient_checkpointing=True, gradient_accumulation_steps=2)
    trainer = Trainer(small_llama(), args, train_dataset=texts([16] * 16), data_collator=pad, callbacks=[_Samples()])
    seen = AsItIs(trainer)
    trainer.add_callback(seen)
    trainer.train()
    assert seen.findings == []


def test_torch_is_left_as_it_was_when_a_step_fails() -> None:
    before = torch_checkpoint.CheckpointFunction
    model = small_llama()

    def fail(*_: Any) -> None:
        raise ValueError("the step fails")

    model.model.layers[3].register_forward_hook(fail)
    with pytest.raises(ValueError, match="the step fails"):
        _clean(model, "full")
    assert torch_checkpoint.CheckpointFunction is before
    assert isinstance(torch.zeros(1), torch.Tensor)


class _FailsAfterTheStep(TrainerCallback):
    """Raises where no guard of the training step is: in the optimizer's step."""

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        raise ValueError("the optimizer fails")


def test_torch_is_left_as_it_was_when_something_after_the_backward_fails() -> None:
    before = torch_checkpoint.CheckpointFunction, torch_checkpoint._checkpoint_without_reentrant_generator
    callbacks = [SelectiveCkpt("full", doctor=True), _FailsAfterTheStep()]
    args = arguments(max_steps=4)
    trainer = Trainer(small_llama(), args, train_dataset=texts([16] * 16), data_collator=pad, callbacks=callbacks)
    with pytest.raises(ValueError, match="the optimizer fails"):
        trainer.train()
    assert (torch_checkpoint.CheckpointFunction, torch_checkpoint._checkpoint_without_reentrant_generator) == before


def test_once_undone_it_observes_no_more() -> None:
    before = torch_checkpoint.CheckpointFunction
    model = small_llama()
    checkup = Checkup(model, read_anatomy(model))
    checkup.begin_step()
    checkup.undo()
    checkup.begin_step()
    assert torch_checkpoint.CheckpointFunction is before
    assert not model._forward_hooks


def test_it_breaks_no_compiled_graph() -> None:
    model = small_llama().train()
    checkup = Checkup(model, read_anatomy(model))
    checkup.begin_step()
    ids = torch.zeros(2, 8, dtype=torch.long)
    try:
        loss = torch.compile(model, backend="eager", fullgraph=True)(input_ids=ids, labels=ids).loss
    finally:
        checkup.undo()
    assert loss.requires_grad


def test_a_check_that_fails_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("the doctor is ill")

    monkeypatch.setattr("hf_ckpt.doctor.checks.frozen_adapter.FrozenAdapter.at_start", broken)
    monkeypatch.setattr("hf_ckpt.doctor.checks.eval_mode.EvalMode.after_backward", broken)
    assert _clean(small_llama(), "full").findings == []
