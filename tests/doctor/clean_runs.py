"""Right runs, each real, with every check on: the doctor has nothing to say about them."""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint
from transformers import Trainer, TrainerCallback

from hf_ckpt import SelectiveCkpt
from hf_ckpt.measuring.memory_limit import MemoryLimit

from ..models import ARCHITECTURES, build, build_encoder, build_encoder_decoder
from . import clean_trl
from .runs import arguments, pad, small_llama, texts

if TYPE_CHECKING:
    from collections.abc import Callable

STEPS = 20
_LENGTHS = [random.Random(3).randint(4, 40) for _ in range(2 * STEPS)]


@dataclass(frozen=True)
class Clean:
    name: str
    train: Callable[[SelectiveCkpt], None]
    policy: str = "full"


class Words(logging.Handler):
    """Everything that the doctor says at WARNING or above."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def words_about(clean: Clean) -> list[str]:
    """Run it; what was logged and found."""
    words, logger = Words(), logging.getLogger("hf_ckpt.doctor")
    logger.addHandler(words)
    callback = SelectiveCkpt(clean.policy, doctor=True)
    try:
        clean.train(callback)
    finally:
        logger.removeHandler(words)
    return [*words.said, *map(str, callback.findings)]


def _trainer(
    model: Callable[[], Any],
    callback: SelectiveCkpt,
    lengths: Any = None,
    kind: type[Trainer] = Trainer,
    callbacks: tuple[TrainerCallback, ...] = (),
    **more: Any,
) -> None:
    data = texts(lengths or [16] * 2 * STEPS)
    for example in data:
        example["input_ids"] = example["labels"] = example["input_ids"] % 256
    built = model()
    evaluation = {"eval_dataset": data[:4]} if "eval_strategy" in more else {}
    args = arguments(max_steps=STEPS, **more)
    trainer = kind(built, args, train_dataset=data, data_collator=pad, callbacks=[callback, *callbacks], **evaluation)
    with MemoryLimit(100_000_000, built):
        trainer.train()


class Averages(TrainerCallback):
    """Keeps a running average of the weights in place, and losses as numbers: both are right."""

    def __init__(self) -> None:
        self.average: dict[str, torch.Tensor] = {}
        self.norms: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        for name, parameter in model.named_parameters():
            self.average.setdefault(name, parameter.detach().clone()).lerp_(parameter.detach(), 0.1)
        self.norms.append(float(next(model.parameters()).detach().norm()))


class Averaged(TrainerCallback):
    """Averages the weights with torch's own tool."""

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.average = AveragedModel(model)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.average.update_parameters(model)


class Samples(TrainerCallback):
    """Looks at what the model writes, after the backward and in eval mode."""

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        model.eval()
        model.generate(torch.zeros(1, 4, dtype=torch.long), max_new_tokens=3, do_sample=True)
        model.train()


def _with_callback(kind: Callable[[], TrainerCallback], callback: SelectiveCkpt) -> None:
    _trainer(small_llama, callback, callbacks=(kind(),))


class Gated(nn.Module):
    """A checkpointed branch behind a gate that begins at zero, as adaLN-Zero has it."""

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.mlp, self.gate = mlp, nn.Linear(32, 64)
        nn.init.zeros_(self.gate.weight)
        nn.init.zeros_(self.gate.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale, gate = self.gate(x.mean(1, keepdim=True)).chunk(2, -1)
        return gate * checkpoint(self.mlp, x * (1 + scale), use_reentrant=False)


class Dropped(nn.Module):
    """A checkpointed branch that some steps leave out."""

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.mlp, self.calls = mlp, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return float(self.calls > 4) * checkpoint(self.mlp, x, use_reentrant=False)


class Features(nn.Module):
    """A checkpointed stack of which the last layer but one is wanted, as LLaVA takes its images."""

    def __init__(self, mlp: nn.Module) -> None:
        super().__init__()
        self.mlp, self.stack = mlp, nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.GELU()) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = [x]
        for layer in self.stack:
            states.append(checkpoint(layer, states[-1], use_reentrant=False))
        return self.mlp(x) + states[-2]


def _with_mlps(kind: Callable[[nn.Module], nn.Module]) -> Any:
    model = small_llama()
    for layer in model.model.layers:
        layer.mlp = kind(layer.mlp)
    return model


def _with_zeros() -> Any:
    """Nothing but the head has a gradient in the first step, and nothing but the gates in the second."""
    model = _with_mlps(Gated)
    nn.init.zeros_(model.lm_head.weight)
    return model


class InnerModel(Trainer):
    """Computes its loss from the model without its head, in pieces, and writes a buffer of the model's."""

    def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
        hidden = model.model(input_ids=inputs["input_ids"]).last_hidden_state
        logits = torch.cat([model.lm_head(piece) for piece in hidden.chunk(2, dim=1)], dim=1)
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), inputs["labels"][:, 1:].flatten())
        model.seen.add_(1)
        return loss


class OwnTeacher(Trainer):
    """Distils from the same model in eval mode, and samples after the backward."""

    def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
        model.eval()
        teacher = model(**inputs).logits.detach()
        model.train()
        out = model(**inputs)
        return out.loss + (out.logits - teacher).square().mean()

    def training_step(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(model, *args, **kwargs)
        model.eval()
        with torch.no_grad():
            model(input_ids=torch.zeros(1, 4, dtype=torch.long))
        return loss


class TwoPasses(Trainer):
    """R-Drop: two forwards before one backward, and a penalty on their difference."""

    def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
        first, second = model(**inputs), model(**inputs)
        return first.loss + second.loss + (first.logits - second.logits).square().mean()


class Perturbed(Trainer):
    """FGM: a second forward and backward with embeddings moved along their gradient, and moved back."""

    def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        loss = super().training_step(model, inputs, *args, **kwargs)
        weight = model.get_input_embeddings().weight
        before = weight.detach().clone()
        with torch.no_grad():
            weight.add_(weight.grad, alpha=0.1)
        self.accelerator.backward(model(**inputs).loss)
        with torch.no_grad():
            weight.copy_(before)
        return loss


def _with_dropout() -> Any:
    return small_llama(attention_dropout=0.1)


def _with_buffer() -> Any:
    model = small_llama()
    model.register_buffer("seen", torch.zeros(()))
    return model


CLEAN = (
    *(Clean(f"Trainer, {name}", partial(_trainer, partial(build, name))) for name in ARCHITECTURES),
    *(
        Clean(f"Trainer, {name}, budget", partial(_trainer, partial(build, name)), "budget=0.5")
        for name in ARCHITECTURES
    ),
    *(Clean(f"Trainer, {name}, no policy", partial(_trainer, partial(build, name)), "none") for name in ARCHITECTURES),
    *(Clean(f"PEFT, {name}", partial(_trainer, partial(build, name, lora=True))) for name in ARCHITECTURES),
    Clean("Trainer, BERT", partial(_trainer, build_encoder)),
    Clean("Trainer, T5", partial(_trainer, build_encoder_decoder)),
    Clean("Trainer, lengths of all kinds", partial(_trainer, small_llama, lengths=_LENGTHS)),
    Clean("Trainer, lengths that grow", partial(_trainer, small_llama, lengths=list(range(4, 44)))),
    Clean("Trainer, accumulated gradients", partial(_trainer, small_llama, gradient_accumulation_steps=2)),
    Clean("Trainer, bfloat16", partial(_trainer, small_llama, bf16=True)),
    Clean("Trainer, label smoothing", partial(_trainer, small_llama, label_smoothing_factor=0.1)),
    Clean("Trainer, its own switch on", partial(_trainer, small_llama, gradient_checkpointing=True)),
    Clean("Trainer, evaluations between", partial(_trainer, small_llama, eval_strategy="steps", eval_steps=5)),
    Clean("Trainer, a running average of the weights", partial(_with_callback, Averages)),
    Clean("Trainer, gates that begin at zero", partial(_trainer, partial(_with_mlps, Gated)), "none"),
    Clean(
        "Trainer, gates and a head that begin at zero, warm-up", partial(_trainer, _with_zeros, warmup_steps=4), "none"
    ),
    Clean("Trainer, a branch that is dropped at first", partial(_trainer, partial(_with_mlps, Dropped)), "none"),
    Clean("Trainer, a last layer that nobody wants", partial(_trainer, partial(_with_mlps, Features)), "none"),
    Clean("Trainer, its own teacher", partial(_trainer, small_llama, kind=OwnTeacher)),
    Clean("Trainer, a loss from the model without its head", partial(_trainer, _with_buffer, kind=InnerModel)),
    Clean("Trainer, text sampled between the steps", partial(_with_callback, Samples)),
    Clean("Trainer, an average by torch's swa_utils", partial(_with_callback, Averaged)),
    Clean("Trainer, two passes with two dropouts", partial(_trainer, _with_dropout, kind=TwoPasses), "budget=0.5"),
    Clean("Trainer, a second backward for perturbed embeddings", partial(_trainer, small_llama, kind=Perturbed)),
    Clean("TRL, SFTTrainer", clean_trl.sft),
    Clean("TRL, SFTTrainer, packed", clean_trl.sft_packed, "budget=0.5"),
    Clean("TRL, DPOTrainer, LoRA", clean_trl.dpo),
    Clean("TRL, RewardTrainer", clean_trl.reward),
    Clean("TRL, GRPOTrainer", clean_trl.grpo, "budget=0.5"),
)
