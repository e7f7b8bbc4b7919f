"""``SelectiveCkpt(verify="first_step")``: the certificate of a training, which is the same training with and without."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import Trainer

from hf_ckpt import SelectiveCkpt
from hf_ckpt.certificate.first_step import certificate_of
from hf_ckpt.errors import PolicyError

from ..doctor.runs import arguments, pad, small_llama, texts

if TYPE_CHECKING:
    from collections.abc import Callable


def _train(model: nn.Module, callback: SelectiveCkpt, **more: Any) -> tuple[dict[str, torch.Tensor], Trainer]:
    args = arguments(max_steps=3, **more)
    trainer = Trainer(model, args, train_dataset=texts([16, 24] * 12), data_collator=pad, callbacks=[callback])
    trainer.train()
    return {name: p.detach().clone() for name, p in model.named_parameters()}, trainer


@pytest.mark.parametrize(("policy", "accumulate"), [("full", 2), ("budget=0.5", 1)])
def test_the_training_is_the_same_and_is_proven(policy: str, accumulate: int) -> None:
    trained = {}
    for verify in (None, "first_step"):
        torch.manual_seed(3)
        callback = SelectiveCkpt(policy, verify=verify, doctor=True)
        model = small_llama(attention_dropout=0.1)
        trained[verify], trainer = _train(model, callback, gradient_accumulation_steps=accumulate)
        assert "training_step" not in vars(trainer)
        assert callback.findings == []
    assert callback.certificate is not None
    assert str(callback.certificate).startswith("bitwise equal: the loss and 39 gradients")
    assert callback.report is not None
    assert callback.report.measured
    for name, parameter in trained[None].items():
        assert torch.equal(parameter, trained["first_step"][name]), name


class LateBinding(nn.Module):
    """Stands as an MLP, in parts that are checkpointed by one closure."""

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.mlp, self.parts = mlp, nn.ModuleList(nn.Linear(32, 32) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = x + checkpoint(lambda h: part(h), x, use_reentrant=False)  # noqa: B023, CKPT105, CKPT403
        return self.mlp(x)


def test_a_wrong_step_is_told_and_the_training_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    model = small_llama()
    model.model.layers[2].mlp = LateBinding(model.model.layers[2].mlp)
    callback = SelectiveCkpt("none", verify="first_step")
    with caplog.at_level(logging.WARNING, logger="hf_ckpt"):
        _, trainer = _train(model, callback)
    assert trainer.state.global_step == 3
    assert callback.certificate is not None
    assert not callback.certificate.holds
    assert "the first step is different" in caplog.text
    assert "CKPT105 first in `model.layers.2.mlp.parts.0`" in caplog.text


def test_what_it_cannot_verify_is_refused_at_construction() -> None:
    with pytest.raises(PolicyError, match="write verify='first_step'"):
        SelectiveCkpt("full", verify="always")


def _compiled_by_its_arguments(trainer: Trainer) -> None:
    trainer.args.torch_compile = True


def _compiled_by_hand(trainer: Trainer) -> None:
    trainer.model.model.layers[0].compile(backend="eager")


def _under_deepspeed(trainer: Trainer) -> None:
    trainer.is_deepspeed_enabled = True


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_compiled_by_its_arguments, "a compiled step sums in another order: verify without it"),
        (_compiled_by_hand, "a compiled step sums in another order: verify without it"),
        (_under_deepspeed, "DeepSpeed's engine runs every step once: verify without DeepSpeed"),
    ],
)
def test_what_cannot_be_proven_is_one_sentence(change: Callable[[Trainer], None], says: str) -> None:
    trainer = Trainer(small_llama(), arguments())
    change(trainer)
    found = certificate_of(trainer, trainer.model, lambda: pytest.fail("the step ran"), None)
    assert not found.holds
    assert str(found) == f"not proven: {says}"
