"""Checks the optimizer a forecast is for."""

from __future__ import annotations

from difflib import get_close_matches

import click

from ..planner.memory.optimizers import rule_for

#: Those that most runs have.
_USUAL = ("adamw_torch_fused", "adamw_torch", "adamw_8bit", "paged_adamw_8bit", "adafactor", "sgd")


def check_optimizer(name: str) -> None:
    """Say on stderr that the state of an optimizer is guessed. Raises BadParameter when there is no such optimizer."""
    if name in _USUAL:
        return
    # Takes about a second to import.
    from transformers.training_args import OptimizerNames

    known = [optimizer.value for optimizer in OptimizerNames]
    if name in known:
        if rule_for(name).known:
            return
        click.echo(f"hf-ckpt: the state of `{name}` is not known and is taken for that of 32-bit Adam", err=True)
        return
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"TrainingArguments knows {', '.join(known)}"
    raise click.BadParameter(f"there is no optimizer {name!r}: {hint}", param_hint="--optimizer")
