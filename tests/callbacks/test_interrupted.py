"""A training that ends by an exception leaves the model as it was, or to whoever applies a policy next."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import Trainer, TrainerCallback

import hf_ckpt
from hf_ckpt import SelectiveCkpt
from hf_ckpt.errors import BudgetError, ConflictError

from ..models import batch, build, fingerprint
from .test_selective_ckpt import arguments, dataset, train

if TYPE_CHECKING:
    from pathlib import Path


def hooks_open() -> bool:
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def settled(tmp_path: Path) -> Any:
    """A model that a Trainer had before: it sets attributes of its own, which are not ours to take back."""
    model = build("llama")
    train(model, arguments(tmp_path, max_steps=1))
    return model


class Raise(TrainerCallback):
    """Fails outside the training step."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        raise OSError("no space left on device")


def test_the_advice_of_a_budget_error_can_be_followed(tmp_path: Path) -> None:
    model = settled(tmp_path)
    before = fingerprint(model)
    trainer = Trainer(model, arguments(tmp_path), train_dataset=dataset(), callbacks=[SelectiveCkpt(budget="10MiB")])
    with pytest.raises(BudgetError):
        trainer.train()
    assert fingerprint(model) == before
    assert "training_step" not in vars(trainer)
    train(model, arguments(tmp_path, max_steps=1), SelectiveCkpt(budget=0.5))


@pytest.mark.parametrize("policy", ["full", "segments(2)"])
def test_an_interrupt_closes_the_hooks_of_the_measured_forward(policy: str, tmp_path: Path) -> None:
    model = settled(tmp_path)
    before = fingerprint(model)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    hook = model.model.layers[1].mlp.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(model, arguments(tmp_path), SelectiveCkpt(policy))
    hook.remove()
    assert not hooks_open()
    assert fingerprint(model) == before
    train(model, arguments(tmp_path, max_steps=1), SelectiveCkpt(policy))


class OwnTrain(Trainer):
    """Its ``train`` is not the Trainer's: nothing of ours stands around it."""

    def train(self) -> Any:  # type: ignore[override]
        return self._inner_training_loop(self.args.train_batch_size, self.args)


def unguarded(model: Any, tmp_path: Path, callback: SelectiveCkpt) -> Trainer:
    """A Trainer that fails outside of every ``train`` that could be guarded."""
    return OwnTrain(model, arguments(tmp_path), train_dataset=dataset(), callbacks=[callback, Raise()])


@pytest.mark.parametrize("event", ["train_begin", "step_begin", "optimizer_step", "step_end", "log", "epoch_end"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_what_fails_outside_the_step_leaves_the_model_as_it_was(
    event: str, error: type[BaseException], tmp_path: Path
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error("of the user's")

    model = settled(tmp_path)
    before = fingerprint(model)
    failing = type("Failing", (TrainerCallback,), {f"on_{event}": fail})()
    trainer = Trainer(
        model, arguments(tmp_path), train_dataset=dataset(), callbacks=[SelectiveCkpt(budget=0.5), failing]
    )  # fmt: skip
    with pytest.raises(error, match="of the user's"):
        trainer.train()
    assert fingerprint(model) == before
    assert not {"training_step", "evaluation_loop"} & set(vars(trainer))
    assert "call" not in dir(trainer.optimizer.step)


def test_a_callback_that_is_added_late_is_taken_off_too(tmp_path: Path) -> None:
    model = settled(tmp_path)
    before = fingerprint(model)
    trainer = Trainer(model, arguments(tmp_path), train_dataset=dataset())
    trainer.add_callback(SelectiveCkpt("full"))
    trainer.add_callback(Raise())
    with pytest.raises(OSError, match="no space"):
        trainer.train()
    assert fingerprint(model) == before


def test_a_copied_trainer_trains_itself(tmp_path: Path) -> None:
    trainer = Trainer(
        build("llama"), arguments(tmp_path, max_steps=1), train_dataset=dataset(), callbacks=[SelectiveCkpt("full")]
    )  # fmt: skip
    for twin in (copy.copy(trainer), copy.deepcopy(trainer)):
        twin.train()
        assert (twin.state.global_step, trainer.state.global_step) == (1, 0)


def test_a_trainer_is_gone_with_its_last_reference(tmp_path: Path) -> None:
    gc.collect()
    gc.disable()  # a model on a card must not wait for the garbage collector
    try:
        trainer = train(build("llama"), arguments(tmp_path, max_steps=1), SelectiveCkpt("full"))
        alive = weakref.ref(trainer)
        del trainer
        assert alive() is None
    finally:
        gc.enable()


def test_what_fails_outside_the_step_is_taken_off_by_the_next_policy(tmp_path: Path) -> None:
    model = settled(tmp_path)
    before = fingerprint(model)
    trainer = unguarded(model, tmp_path, SelectiveCkpt("full"))
    with pytest.raises(OSError, match="no space"):
        trainer.train()
    assert fingerprint(model) != before
    callback = SelectiveCkpt("norm")
    train(model, arguments(tmp_path, max_steps=1), callback)
    assert callback.report is not None
    assert "training_step" not in vars(trainer)
    assert fingerprint(model) == before


def test_restore_of_the_callback_after_a_failure(tmp_path: Path) -> None:
    model, callback = settled(tmp_path), SelectiveCkpt("full")
    before = fingerprint(model)
    with pytest.raises(OSError, match="no space"):
        unguarded(model, tmp_path, callback).train()
    assert fingerprint(model) != before
    callback.restore()
    callback.restore()
    assert fingerprint(model) == before


def test_two_in_one_trainer_are_still_refused(tmp_path: Path) -> None:
    with pytest.raises(ConflictError, match=r"2 SelectiveCkpt callbacks, with the policies `full` and `norm`"):
        train(build("llama"), arguments(tmp_path), SelectiveCkpt("full"), SelectiveCkpt("norm"))


def test_a_copy_that_carries_a_policy_says_so() -> None:
    model = build("llama")
    hf_ckpt.apply(model, "full")
    with pytest.raises(ConflictError, match="is a copy of a model"):
        hf_ckpt.apply(copy.deepcopy(model), "full")


def test_a_failed_run_keeps_nothing_alive(tmp_path: Path) -> None:
    model = build("llama")
    with pytest.raises(OSError, match="no space"):
        train(model, arguments(tmp_path), SelectiveCkpt("full"), Raise())
    alive = weakref.ref(model)
    del model
    gc.collect()
    assert alive() is None


def test_a_restored_handle_does_not_keep_the_optimizer() -> None:
    model = build("llama")
    optimizer = torch.optim.AdamW(model.parameters())
    handle = hf_ckpt.apply(model, "budget=0.5", optimizer=optimizer)
    ids = batch()
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    twin = copy.deepcopy(model)
    assert not any(isinstance(found, torch.optim.Optimizer) for found in _planned_for(twin))
    handle.restore()
    alive = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert alive() is None


def _planned_for(model: Any) -> list[Any]:
    owners = [getattr(hook, "__self__", None) for hook in model._forward_pre_hooks.values()]
    found = [owner.room.optimizer for owner in owners if hasattr(owner, "room")]
    assert found == ["AdamW"]
    return found


def test_optimizer_state_that_is_there_is_not_still_to_come(tmp_path: Path) -> None:
    """A new length in a later step plans beside the state that exists by then, and after a resume from the start."""
    seen: list[tuple[int, int]] = []

    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            planner = callback._handle.planner
            now = hf_ckpt.planner.memory.state.static_state(planner.model, planner.room.optimizer)
            seen.append((now.optimizer, now.optimizer_now))

    callback = SelectiveCkpt(budget=0.5)
    model = build("llama")
    train(model, arguments(tmp_path, max_steps=2), callback, Watch())
    assert all(0 < now == expected for expected, now in seen)
    seen.clear()
    sgd = torch.optim.SGD(model.parameters(), lr=1e-3)
    train(model, arguments(tmp_path, max_steps=1), callback, Watch(), optimizers=(sgd, None))
    assert seen == [(0, 0)], "the Trainer's own optimizer, not the one its arguments name"
