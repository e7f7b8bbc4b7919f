"""The model a command speaks about: options shared by all commands, and how it is built."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ..errors import CkptError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class Subject:
    """A model by name or folder, how it is trained, and the size of a batch."""

    model: str
    layers: int | None
    lora: int
    dtype: str
    attention: str
    batch: int
    length: int

    def build(self, device: torch.device | str) -> nn.Module:
        """The model with random weights on ``device`` (``"meta"``: no memory at all), in training mode."""
        try:
            config = AutoConfig.from_pretrained(self.model)
        except (OSError, ValueError) as error:
            raise CkptError(
                f"`{self.model}` is neither a model on the hub nor a folder with a config.json: {_first_line(error)}"
            ) from error
        if self.layers is not None:
            config.get_text_config().num_hidden_layers = self.layers
        with torch.device(device):
            model: nn.Module = AutoModelForCausalLM.from_config(
                config, attn_implementation=self.attention, dtype=_DTYPES[self.dtype]
            )
            if self.lora:
                model = _with_lora(model, self.lora)
        return model.train()

    def ids(self, model: nn.Module, device: torch.device | str) -> torch.Tensor:
        """Token ids (batch, length), int64."""
        vocabulary = model.get_input_embeddings().num_embeddings  # type: ignore[operator]
        if torch.device(device).type == "meta":
            return torch.zeros(self.batch, self.length, dtype=torch.long, device="meta")
        generator = torch.Generator().manual_seed(0)
        return torch.randint(vocabulary, (self.batch, self.length), generator=generator).to(device)


def _with_lora(model: nn.Module, rank: int) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    adapted: nn.Module = get_peft_model(model, LoraConfig(r=rank, target_modules="all-linear"))
    return adapted


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def subject_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a subject to a command and pass it as ``subject``."""
    options = [
        click.option("--model", required=True, help="Name on the hub, or a folder with a config.json."),
        click.option("--layers", type=click.IntRange(1), help="Use this many layers instead of the config's."),
        click.option("--lora", type=click.IntRange(0), default=0, help="LoRA rank on all linear layers; 0: none."),
        click.option("--dtype", type=click.Choice(sorted(_DTYPES)), default="bf16", show_default=True),
        click.option("--attention", default="sdpa", show_default=True, help="transformers' attention implementation."),
        click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Sequences in a batch."),
        click.option("--length", type=click.IntRange(2), default=2048, show_default=True, help="Tokens in each."),
    ]

    @functools.wraps(function)
    def with_subject(**kwargs: Any) -> Any:
        fields = {name: kwargs.pop(name) for name in Subject.__slots__}
        return function(Subject(**fields), **kwargs)

    for option in reversed(options):
        with_subject = option(with_subject)
    return with_subject
