"""How the training that `hf-ckpt plan` is for is set up: options, and what cannot go together. Free of torch."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from .subject import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..planner.memory.setup import Setup
    from .subject import Subject

_NAMES = (
    "optimizer",
    "gpus",
    "ddp",
    "fsdp",
    "zero",
    "device_map",
    "master",
    "load_in_4bit",
    "prepare_kbit",
    "accumulate",
    "autocast",
)


def setup_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options of a training's setup for a command, which gets them as ``setup``: a function of the subject."""

    @functools.wraps(function)
    def with_setup(*args: Any, **kwargs: Any) -> Any:
        chosen = {name: kwargs.pop(name) for name in _NAMES}
        return function(*args, setup=functools.partial(make_setup, chosen), **kwargs)

    decorated: Callable[..., Any] = with_setup
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


_OPTIONS = (
    click.option(
        "--optimizer", default="adamw_torch_fused", show_default=True,
        help="TrainingArguments' `optim` name: adamw_8bit, paged_adamw_8bit, adafactor, sgd, ...",
    ),
    click.option("--gpus", type=click.IntRange(1), default=1, show_default=True, help="Cards that train together."),
    click.option("--ddp", is_flag=True, help="Every card holds the whole model; the default where --gpus is above 1."),
    click.option("--fsdp", is_flag=True, help="Each card holds a shard of weights, gradients and optimizer state."),
    click.option("--zero", type=click.Choice(["1", "2", "3"]), help="DeepSpeed's stage."),
    click.option(
        "--device-map", is_flag=True,
        help="The layers stand on the cards one after the other, as device_map=\"auto\" places them.",
    ),
    click.option(
        "--master", is_flag=True, help="With --fsdp: shards in float32, as accelerate keeps them under mixed precision."
    ),
    click.option("--load-in-4bit", is_flag=True, help="With --lora: frozen linear weights by bitsandbytes (QLoRA)."),
    click.option(
        "--prepare-kbit", is_flag=True,
        help="With --load-in-4bit: all other weights in float32, as by peft's prepare_model_for_kbit_training.",
    ),
    click.option(
        "--accumulate", type=click.IntRange(1), default=1, show_default=True,
        help="Micro-batches in a batch; with several, gradients stay in memory between them.",
    ),
    click.option(
        "--autocast", type=click.Choice(["bf16", "fp16"]),
        help="Compute under autocast, as with TrainingArguments' bf16=True or fp16=True; LoRA's adapters are float32.",
    ),
)  # fmt: skip


def make_setup(chosen: dict[str, Any], subject: Subject) -> Setup:
    """The setup that the options describe.

    Args:
        chosen: The options' values by name.
        subject: The model and its batch.

    Returns:
        The setup.

    Raises:
        UsageError: the options contradict each other.
    """
    from ..planner.memory.setup import Setup, Spread  # start-up: it imports torch

    gpus, zero = chosen["gpus"], chosen["zero"]
    spreads = [spread for spread in (Spread.DDP, Spread.FSDP) if chosen[spread]]
    spreads += [] if zero is None else [Spread(f"zero{zero}")]
    if len(spreads) > 1:
        raise click.UsageError("--ddp, --fsdp and --zero exclude each other")
    if chosen["device_map"] and spreads:
        raise click.UsageError("--device-map is for one process, --ddp, --fsdp and --zero for one on every card")
    if chosen["device_map"] and gpus == 1:
        raise click.UsageError("--device-map needs several cards: say how many with --gpus")
    if spreads and gpus == 1:
        raise click.UsageError(f"--{spreads[0]} spreads over several cards: say how many with --gpus")
    if chosen["master"] and spreads != [Spread.FSDP]:
        raise click.UsageError(
            "--master is about FSDP's shards: use it with --fsdp (DeepSpeed always has float32 ones)"
        )
    if chosen["load_in_4bit"] and not subject.lora:
        raise click.UsageError("weights in 4 bit cannot be trained: use --load-in-4bit with --lora")
    if chosen["prepare_kbit"] and not chosen["load_in_4bit"]:
        raise click.UsageError("--prepare-kbit is about weights in 4 bit: use it with --load-in-4bit")
    return Setup(
        optimizer=chosen["optimizer"],
        gpus=gpus,
        spread=spreads[0] if spreads else Spread.DDP if gpus > 1 and not chosen["device_map"] else None,
        master=chosen["master"],
        four_bit=chosen["load_in_4bit"],
        widened=chosen["prepare_kbit"],
        accumulates=chosen["accumulate"] > 1,
        in_turn=chosen["device_map"],
        autocast=DTYPES[chosen["autocast"]] if chosen["autocast"] else None,
    )
