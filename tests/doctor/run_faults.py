"""Planted faults that a run shows: each in a real training under ``SelectiveCkpt(doctor=True)``.

``@fault(code)`` names the rule; ``# here`` marks the line that the finding must name.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import Trainer, TrainerCallback
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

from hf_ckpt import SelectiveCkpt
from hf_ckpt.script.as_it_is import AsItIs

from .runs import arguments, pad, small_llama, texts

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class RunFault:
    code: str
    name: str
    line: int | None
    train: Callable[[], SelectiveCkpt | AsItIs]


FAULTS: list[RunFault] = []


def fault(code: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def note(train: Callable[[], Any]) -> Callable[[], Any]:
        lines, first = inspect.getsourcelines(train)
        marked = [first + i for i, line in enumerate(lines) if "# here" in line]
        FAULTS.append(RunFault(code, train.__name__, marked[0] if marked else None, train))
        return train

    return note


def run(
    model: nn.Module, *callbacks: TrainerCallback, kind: type[Trainer] = Trainer, policy: str = "none", args: Any = None
) -> SelectiveCkpt:
    callback = SelectiveCkpt(policy, doctor=True)
    args = args or arguments(max_steps=4)
    trainer = kind(model, args, train_dataset=texts([16] * 8), data_collator=pad, callbacks=[callback, *callbacks])
    try:
        trainer.train()
    except Exception as error:
        callback.restore()
        print(f"ended with {error!r}")
    return callback


def as_it_is(model: nn.Module, kind: type[Trainer] = Trainer, **more: Any) -> AsItIs:
    """A training that checkpoints by itself, looked at as ``hf-ckpt verify train.py`` does."""
    args = arguments(max_steps=2, **more)
    trainer = kind(model, args, train_dataset=texts([16] * 8), data_collator=pad)
    callback = AsItIs(trainer)
    trainer.add_callback(callback)
    trainer.train()
    return callback


class Wrapped(nn.Module):
    """Stands as an MLP and checkpoints it by ``call``."""

    def __init__(self, mlp: nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.mlp = mlp
        self.call = call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(self.mlp, x)


def _with_mlp(call: Callable[..., Any], model: nn.Module | None = None) -> nn.Module:
    model = small_llama() if model is None else model
    model.model.layers[1].mlp = Wrapped(model.model.layers[1].mlp, call)
    return model


@fault("CKPT104")
def reentrant_on_what_needs_no_gradient() -> SelectiveCkpt:
    def call(mlp: Any, x: Any) -> Any:
        return x + checkpoint(mlp, x.detach(), use_reentrant=True)  # here

    return run(_with_mlp(call))


@fault("CKPT104")
def reentrant_behind_a_frozen_embedding() -> SelectiveCkpt:
    class Front(nn.Module):
        def __init__(self, table: nn.Module) -> None:
            super().__init__()
            self.table, self.projection = table, nn.Linear(32, 32)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return checkpoint(self.projection, self.table(ids), use_reentrant=True)  # here # noqa: CKPT403

    model = small_llama()
    model.model.embed_tokens = Front(model.model.embed_tokens.requires_grad_(False))
    return run(model)


@fault("CKPT116")
def a_dict_out_of_a_reentrant_checkpoint() -> SelectiveCkpt:
    class Named(nn.Module):
        def __init__(self, mlp: nn.Module) -> None:
            super().__init__()
            self.mlp = mlp

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"out": self.mlp(x)}

    def call(named: Any, x: Any) -> Any:
        return x + checkpoint(named, x, use_reentrant=True)["out"]  # here # noqa: CKPT116

    model = small_llama()
    model.model.layers[1].mlp = Wrapped(Named(model.model.layers[1].mlp), call)
    return run(model)


@fault("CKPT108")
def masks_drawn_anew() -> SelectiveCkpt:
    def call(mlp: Any, x: Any) -> Any:
        return checkpoint(mlp, x, use_reentrant=False, preserve_rng_state=False)  # here

    model = small_llama()
    model.model.layers[1].mlp = nn.Sequential(model.model.layers[1].mlp, nn.Dropout(0.1))
    return run(_with_mlp(call, model))


@fault("CKPT402")
def a_checkpoint_inside_a_recomputed_layer() -> SelectiveCkpt:
    def call(mlp: Any, x: Any) -> Any:
        return checkpoint(mlp, x, use_reentrant=False)  # here

    return run(_with_mlp(call), policy="full")


@fault("CKPT402")
def a_checkpoint_inside_a_checkpoint() -> SelectiveCkpt:
    def inner(mlp: Any, x: Any) -> Any:
        return checkpoint(mlp, x, use_reentrant=False)  # here

    def call(mlp: Any, x: Any) -> Any:
        return checkpoint(inner, mlp, x, use_reentrant=False)

    return run(_with_mlp(call))


@fault("CKPT203")
def a_layer_left_in_eval_mode() -> SelectiveCkpt:
    model = small_llama()
    layer = model.model.layers[2]
    layer.train = lambda mode=True: nn.Module.train(layer, False)
    return run(model)


@fault("CKPT106")
def batch_statistics_in_a_recomputed_layer() -> SelectiveCkpt:
    class Normed(nn.Module):
        def __init__(self, mlp: nn.Module) -> None:
            super().__init__()
            self.mlp, self.norm = mlp, nn.BatchNorm1d(32)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.mlp(self.norm(x.transpose(1, 2)).transpose(1, 2))

    model = small_llama()
    model.model.layers[1].mlp = Normed(model.model.layers[1].mlp)
    return run(_with_mlp(lambda mlp, x: checkpoint(mlp, x, use_reentrant=False), model))


@fault("CKPT114")
def eval_before_backward() -> SelectiveCkpt:
    class Peeks(Trainer):
        def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
            loss = model(**inputs).loss
            model.eval()  # here
            return loss

    return run(small_llama(), kind=Peeks)


@fault("CKPT114")
def eval_before_the_backward_of_an_inner_model() -> SelectiveCkpt:
    class Peeks(Trainer):
        def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
            hidden = model.model(input_ids=inputs["input_ids"]).last_hidden_state
            model.eval()  # here
            return nn.functional.cross_entropy(model.lm_head(hidden).flatten(0, 1), inputs["labels"].flatten())

    return run(small_llama(), kind=Peeks)


@fault("CKPT203")
def a_loss_computed_in_eval_mode() -> SelectiveCkpt:
    class Sleeps(Trainer):
        def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
            model.eval()  # here
            return model(**inputs).loss

    return run(small_llama(), kind=Sleeps)


@fault("CKPT204")
def a_forward_replaced_on_the_class() -> SelectiveCkpt:
    original = LlamaDecoderLayer.forward

    def patched(self: Any, *args: Any, **kwargs: Any) -> Any:  # here
        return original(self, *args, **kwargs)

    LlamaDecoderLayer.forward = patched
    try:
        return run(small_llama(), policy="full")
    finally:
        LlamaDecoderLayer.forward = original


@fault("CKPT201")
def the_old_name_written_late() -> SelectiveCkpt:
    args = arguments(max_steps=2)
    args.gradient_checkpointing = True
    return run(small_llama(), args=args)


@fault("CKPT215")
def settings_of_what_is_off() -> SelectiveCkpt:
    name = "activation_checkpointing_kwargs"
    args = arguments(max_steps=2, **{name: {"use_reentrant": False}}, gradient_checkpointing_kwargs=None)
    return run(small_llama(), args=args)


@fault("CKPT123")
def an_adapter_frozen_after_it_was_put_on() -> SelectiveCkpt:
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(small_llama(), LoraConfig(r=2, target_modules=["q_proj"]))
    model.requires_grad_(False)
    return run(model)


@fault("CKPT121")
def an_output_that_is_detached() -> SelectiveCkpt:
    def call(mlp: Any, x: Any) -> Any:
        return x + checkpoint(mlp, x, use_reentrant=False).detach()  # here

    return run(_with_mlp(call))


@fault("CKPT121")
def gradients_that_are_exactly_zero() -> SelectiveCkpt:
    def call(mlp: Any, x: Any) -> Any:
        return x + 0.0 * checkpoint(mlp, x, use_reentrant=True)  # here

    return run(_with_mlp(call))


@fault("CKPT111")
def a_cache_in_a_reentrant_checkpoint() -> SelectiveCkpt:
    from transformers import DynamicCache

    def write(mlp: Any, x: Any, cache: Any) -> Any:
        keys, _ = cache.update(x[:, None], x[:, None], 0)
        return mlp(keys[:, 0, : x.shape[1]])

    def call(mlp: Any, x: Any) -> Any:
        return checkpoint(write, mlp, x, DynamicCache(), use_reentrant=True)  # here

    return run(_with_mlp(call))


@fault("CKPT207")
def a_deepspeed_section_that_nobody_reads() -> SelectiveCkpt:
    args = arguments(max_steps=2)
    args.deepspeed = {"activation_checkpointing": {"partition_activations": True}}
    return run(small_llama(), args=args)


@fault("CKPT119")
def other_values_by_functional_call() -> SelectiveCkpt:
    from torch.func import functional_call

    class Perturbed(Trainer):
        def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
            moved = {name: p + 0.01 for name, p in model.named_parameters()}
            return functional_call(model, moved, (), dict(inputs)).loss

    def call(mlp: Any, x: Any) -> Any:
        return checkpoint(mlp, x, use_reentrant=False)  # here

    return run(_with_mlp(call), kind=Perturbed)


@fault("CKPT114")
def an_adapter_switched_before_backward() -> SelectiveCkpt:
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(r=2, target_modules=["q_proj"])
    model = get_peft_model(small_llama(), lora)
    model.add_adapter("second", lora)

    class Switches(Trainer):
        def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
            model.set_adapter("default")
            loss = model(**inputs).loss
            model.set_adapter("second")  # here
            return loss

    return run(model, kind=Switches)


@fault("CKPT112")
def text_generated_before_backward() -> AsItIs:
    class Rewards(Trainer):
        def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
            loss = model(**inputs).loss
            model.generate(inputs["input_ids"][:, :4], max_new_tokens=2, use_cache=True, pad_token_id=2)  # here
            return loss

    return as_it_is(small_llama(), Rewards, gradient_checkpointing=True)


@fault("CKPT110")
def an_adapter_behind_checkpoint_wrappers() -> AsItIs:
    from peft import LoraConfig, get_peft_model
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

    model = get_peft_model(small_llama(), LoraConfig(r=2, target_modules=["q_proj"]))
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))  # noqa: CKPT110
    return as_it_is(model)


@fault("CKPT202")
def the_model_told_one_thing_and_the_trainer_another() -> SelectiveCkpt:
    model = small_llama()
    model.gradient_checkpointing_enable({"use_reentrant": True})
    return run(model, policy="full", args=arguments(max_steps=2, gradient_checkpointing=True))


@fault("CKPT205")
def a_flag_instead_of_the_switch() -> SelectiveCkpt:
    model = small_llama()
    model.config.gradient_checkpointing = True
    return run(model)
