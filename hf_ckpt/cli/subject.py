"""The model a command speaks about, as its options say it: shared by all commands, and free of torch."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from ..devices.cards import CARDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: As written on the command line -> torch's name.
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
#: Tokens in a sequence where nothing else is said.
USUAL_LENGTH = 2048
_FIELDS = ("model", "layers", "lora", "lora_targets", "lora_dropout", "dtype", "attention")


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
    #: Names of the linear layers that get adapters; none: all of them.
    lora_targets: tuple[str, ...] = ()
    lora_dropout: float = 0.0

    def __str__(self) -> str:
        return f"{self.model}, {self.batch} x {self.length} tokens, {self.dtype}"


def subject_options(
    *, several: bool = False, required: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Options of a subject for a command, which gets it as ``subject``.

    Args:
        several: Whether ``--batch`` and ``--length`` may be repeated; the command gets all of them as ``batches`` and
            ``lengths``, and the subject the first of each.
        required: Whether ``--model`` must be given; where it is not, the subject's is empty.
    """

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_subject(**kwargs: Any) -> Any:
            batches, lengths = (_all(kwargs.pop(name)) for name in ("batch", "length"))
            fields = {name: kwargs.pop(name) for name in _FIELDS}
            length = lengths[0] if lengths else USUAL_LENGTH
            subject = Subject(**fields, batch=batches[0], length=length, length_asked=bool(lengths))
            _check_adapters(subject)
            sizes = {"batches": batches, "lengths": lengths} if several else {}
            return function(subject, **sizes, **kwargs)

        decorated = with_subject
        for option in reversed(_options(several, required)):
            decorated = option(decorated)
        return decorated

    return add


def gpu_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """``--gpu`` and ``--memory``: the device to plan for."""
    gpu = click.option(
        "--gpu",
        help=f"Plan for this card by its profile, on any machine: {', '.join(CARDS)}.",
    )
    memory = click.option("--memory", help="Memory to plan for, such as 80GiB; default: the card's, or this machine's.")
    return gpu(memory(function))


def several_sizes(subject: Subject, batches: tuple[int, ...], lengths: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """Every batch with every length, in the order given."""
    return product(batches, lengths or (subject.length,))


def _check_adapters(subject: Subject) -> None:
    """Raise UsageError where adapters are described that nobody asked for."""
    options = {"--lora-target": subject.lora_targets, "--lora-dropout": subject.lora_dropout}
    idle = [option for option, value in options.items() if value]
    if idle and not subject.lora:
        raise click.UsageError(f"{idle[0]} is about LoRA's adapters: say their rank with --lora")


def _all(value: int | tuple[int, ...] | None) -> tuple[int, ...]:
    if isinstance(value, tuple):
        return value
    return () if value is None else (value,)


def _options(several: bool, required: bool) -> list[Callable[..., Any]]:
    again = "; may be given several times" if several else ""
    # For click 8.3 a default of None is a value, so nothing is missing: no default at all where it is required.
    default: dict[str, Any] = {} if required else {"default": ""}
    return [
        click.option(
            "--model",
            required=required,
            **default,
            help="Name on the hub, or a folder with a config.json.",
        ),
        click.option("--layers", type=click.IntRange(1), help="Use this many layers instead of the config's."),
        click.option("--lora", type=click.IntRange(0), default=0, help="LoRA rank on all linear layers; 0: none."),
        click.option(
            "--lora-target",
            "lora_targets",
            multiple=True,
            help="Adapt only the linear layers of this name, such as q_proj; may be given several times.",
        ),
        click.option("--lora-dropout", type=click.FloatRange(0, 1, max_open=True), default=0.0, help="LoRA's dropout."),
        click.option(
            "--dtype",
            type=click.Choice(sorted(DTYPES)),
            default="bf16",
            show_default=True,
            help="Data type of weights and activations.",
        ),
        click.option("--attention", help="Attention implementation, such as eager; default: transformers' choice."),
        click.option(
            "--batch",
            type=click.IntRange(1),
            default=(1,) if several else 1,
            multiple=several,
            show_default=True,
            help=f"Sequences in a batch{again}.",
        ),
        click.option(
            "--length",
            type=click.IntRange(2),
            multiple=several,
            help=f"Tokens in each; default: {USUAL_LENGTH}, or all positions of a model with fewer{again}.",
        ),
    ]
