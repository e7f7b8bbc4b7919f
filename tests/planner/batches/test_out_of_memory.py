"""A step that runs out of memory is repeated under a tighter plan, in a real Trainer, before the batch shrinks."""

import pytest
import torch
from transformers import Trainer, TrainingArguments

from hf_ckpt.planner.batches.out_of_memory import TighteningStep

from ..planner_models import build, conduct, nothing_used

DATA = [
    {"input_ids": [(7 * i + j) % 97 for j in range(48)], "labels": [(7 * i + j) % 97 for j in range(48)]}
    for i in range(16)
]


class SmallDevice:
    """Fails a backward under any plan whose predicted peak is above what it has."""

    def __init__(self, planner, nbytes):
        self.planner, self.nbytes, self.errors = planner, nbytes, 0

    def __call__(self, *_):
        plan = self.planner.current
        if plan is not None and plan.solution.predicted.peak > self.nbytes:
            self.errors += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB.")


def train(tmp_path, budget, nbytes, *, tighten, accumulate=1):
    model = build()
    planner = conduct(model, budget, gradients_grow=True, memory=nothing_used())
    device = SmallDevice(planner, nbytes)
    model.model.layers[1].register_full_backward_hook(device)
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=6,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=accumulate,
        auto_find_batch_size=True,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        logging_steps=1,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=DATA)
    if tighten:
        trainer.training_step = TighteningStep(trainer.training_step, planner)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return losses, device.errors, trainer._train_batch_size, planner


def test_the_plan_tightens_and_the_batch_stays(tmp_path):
    plain, _, _, unlimited = train(tmp_path, "64MiB", 1 << 30, tighten=True)
    peak = unlimited.current.solution.predicted.peak
    losses, errors, batch, planner = train(tmp_path, f"{peak}B", int(0.85 * peak), tighten=True)
    assert errors > 0
    assert batch == 4
    assert planner.current.solution.predicted.peak <= 0.85 * peak
    # The tighter plan runs the head in chunks, which add up in another order.
    assert losses == pytest.approx(plain, rel=1e-5)


def test_with_gradients_of_earlier_micro_batches_the_error_goes_its_way(tmp_path):
    model = build()
    planner = conduct(model, "64MiB", memory=nothing_used())
    model.lm_head.weight.grad = torch.zeros_like(model.lm_head.weight)

    def fail():
        raise torch.OutOfMemoryError("CUDA out of memory.")

    with pytest.raises(torch.OutOfMemoryError):
        TighteningStep(fail, planner)()


def test_other_errors_go_their_way():
    def fail():
        raise KeyError("labels")

    with pytest.raises(KeyError):
        TighteningStep(fail, conduct(build(), 0.5))()
