"""The length of a command's batch, in models that have a table of positions."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from torch import nn

from ..anatomy.towers import tower_by_names
from ..errors import CkptError
from ..policy.decision import Tower

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .subject import Subject

# What transformers calls a table with one row a position; rotary and relative positions have none.
_TABLE = re.compile(r"(.*\.)?(wpe|embed_positions|positions?_embed(ding)?s?|position_embeds_layer|pos_emb(ed)?)")


def fit_length(subject: Subject, model: nn.Module) -> Subject:
    """The subject, its length cut to the positions of the model where no length was asked for, which stderr says.

    Raises CkptError when the length that was asked for is larger.
    """
    positions = positions_of(model)
    if positions is None or subject.length <= positions:
        return subject
    if subject.length_asked:
        raise CkptError(
            f"`{subject.model}` has {positions} positions, fewer than --length {subject.length}: "
            f"use --length {positions} or less"
        )
    click.echo(f"hf-ckpt: taking {positions} tokens, all the positions that `{subject.model}` has", err=True)
    return replace(subject, length=positions)


def positions_of(model: nn.Module) -> int | None:
    """The most tokens a sequence can have, or None in a model without a table of positions."""
    config: Any = model.config
    named = getattr(config.get_text_config(), "max_position_embeddings", None)
    rows = [rows for name, rows in _tables(model) if tower_by_names([name]) is Tower.LANGUAGE]
    if not rows:
        return None
    # Some tables have rows in front that no token uses, and only the model's forward knows how many.
    return min([*rows, *([named] if isinstance(named, int) and named > 0 else [])])


def _tables(model: nn.Module) -> Iterator[tuple[str, int]]:
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) and _TABLE.fullmatch(name):
            yield name, module.num_embeddings - _unused(module)
    for name, buffer in model.named_buffers():
        if buffer.dim() == 2 and _TABLE.fullmatch(name):
            yield name, buffer.shape[0]


def _unused(table: nn.Embedding) -> int:
    """Rows in front of the first position: OPT's and BART's offset, RoBERTa's padding."""
    offset = getattr(table, "offset", 0)
    return int(offset) if table.padding_idx is None else table.padding_idx + 1
