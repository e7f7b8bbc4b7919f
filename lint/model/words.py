"""Words that stand in every file in which something happens: what the triggers of rules are made of."""

from __future__ import annotations

from itertools import product
from typing import TypeAlias

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


def together(*groups: tuple[Trigger, ...] | str) -> tuple[tuple[str, ...], ...]:
    """The triggers that stand for one of each of ``groups``; a plain text is a group of its own."""
    alternatives = [(group,) if isinstance(group, str) else group for group in groups]
    return tuple(
        tuple(dict.fromkeys(text for part in parts for text in ((part,) if isinstance(part, str) else part)))
        for parts in product(*alternatives)
    )
