"""Words that stand in every file in which something happens: what the triggers of rules are made of."""

from __future__ import annotations

from itertools import product
from typing import TypeAlias

from ..prefilter.words import TRL, WHOLE

#: A text, or texts that must all be there.
Trigger: TypeAlias = "str | tuple[str, ...]"

#: A call of torch's own checkpoint functions. The prefilter spells `from torch.utils import checkpoint` out.
CHECKPOINT = "utils.checkpoint"
ENABLE = "checkpointing_enable"
APPLY = "apply_activation_checkpointing"
#: A checkpointed region that torch runs.
REGION = (CHECKPOINT, "checkpoint_wrapper", APPLY)
#: A checkpointed region, or a model that transformers checkpoints.
RECOMPUTES = (*REGION, ENABLE)
#: What the arguments of a Trainer are built with.
ARGUMENTS = ("TrainingArguments", (TRL, "Config"))
#: Whatever checkpoints, or gives the arguments for it; torch's function by way of another name for `torch.utils` too.
CHECKPOINTS = (*RECOMPUTES, "utils as", "prepare_model_for_kbit_training", *ARGUMENTS)
#: Those arguments where they switch checkpointing on: trl's do without a word.
SWITCHED_ON = (("TrainingArguments", "checkpointing"), (TRL, "Config"))


def together(*groups: tuple[Trigger, ...] | str) -> tuple[tuple[str, ...], ...]:
    """The triggers that stand for one of each of ``groups``; a plain text is a group of its own."""
    alternatives = [(group,) if isinstance(group, str) else group for group in groups]
    return tuple(
        tuple(dict.fromkeys(text for part in parts for text in ((part,) if isinstance(part, str) else part)))
        for parts in product(*alternatives)
    )


def whole(word: str) -> str:
    """The trigger that is ``word`` where no dotted name goes on."""
    return word + WHOLE
