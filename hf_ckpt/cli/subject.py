"""The model a command speaks about, as its options say it: shared by all commands, and free of torch."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

#: As written on the command line -> torch's name.
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
#: Tokens in a sequence where nothing else is said.
USUAL_LENGTH = 2048


@dataclass(frozen=True, slots=True)
class Subject:
    """A model by name or folder, how it is trained, and the size of a batch."""

    model: str
    layers: int | None
    lora: int
    dtype: str
    attention: str | None
    batch: int
    length: int
    #: Whether the length was given, rather than the default that a model with fewer positions cuts.
    length_asked: bool

    def __str__(self) -> str:
        return f"{self.model}, {self.batch} x {self.length} tokens, {self.dtype}"


def subject_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a subject to a command and pass it as ``subject``."""
    options = [
        click.option("--model", required=True, help="Name on the hub, or a folder with a config.json."),
        click.option("--layers", type=click.IntRange(1), help="Use this many layers instead of the config's."),
        click.option("--lora", type=click.IntRange(0), default=0, help="LoRA rank on all linear layers; 0: none."),
        click.option("--dtype", type=click.Choice(sorted(DTYPES)), default="bf16", show_default=True),
        click.option("--attention", help="Attention implementation, such as eager; default: transformers' choice."),
        click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Sequences in a batch."),
        click.option(
            "--length",
            type=click.IntRange(2),
            help=f"Tokens in each; default: {USUAL_LENGTH}, or all positions of a model with fewer.",
        ),
    ]

    @functools.wraps(function)
    def with_subject(**kwargs: Any) -> Any:
        length = kwargs.pop("length")
        fields = {name: kwargs.pop(name) for name in ("model", "layers", "lora", "dtype", "attention", "batch")}
        subject = Subject(**fields, length=length or USUAL_LENGTH, length_asked=length is not None)
        return function(subject, **kwargs)

    for option in reversed(options):
        with_subject = option(with_subject)
    return with_subject
