"""A loss head in the planner's hands: chunked where that pays, as the model has it elsewhere."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_iter

from ..planner.costs.problem import HeadOption
from .install import install, obstacle
from .logits import logit_bytes
from .options import BYTES_PER_LOGIT, final_norm_bytes, head_option, head_options
from .shape import head_shape
from .tiles import tile_behind

if TYPE_CHECKING:
    from ..planner.costs.roofline import Calibration
    from .install import HeadHandle
    from .logits import LogitBytes
    from .options import Tile

#: While no plan is known, a head that takes more than this share of the room is run in chunks.
LARGE_SHARE = 0.5
#: Into so many chunks at least, and into as many as leave it no more than this share of the room.
CHUNKS_UNTIL_PLANNED = 8
SHARE_UNTIL_PLANNED = 0.125


class ManagedHead:
    """The head of ``model`` as the planner sees it.

    ``fixed`` is a head that the user had chunked: its chunks are counted, never changed. Else, with ``choose``,
    :meth:`attach` puts the chunked head on, paused, and :meth:`use` switches it.
    """

    def __init__(self, model: torch.nn.Module, rates: Calibration, *, fixed: HeadHandle | None, choose: bool) -> None:
        self.model = model
        self.rates = rates
        self.fixed = fixed
        self.choose = fixed is None and choose
        #: Rows of logits that a forward returns for each token: 0 where a fused loss never builds them.
        self.rows_per_token = 1.0
        #: What such a loss makes of them in backward.
        self.tile: Tile | None = None
        #: Whether the model computes the loss: a head whose logits go to another loss cannot be chunked.
        self.computes_loss = True
        #: Whether it does so by its ``loss_function`` (T5, BART and Whisper have one that they never call), from logits
        #: that can be put off.
        self.is_chunkable = True
        #: What the model saves of each logit, its loss included where it computes one; None until that was seen.
        self.per_logit: LogitBytes | None = None
        #: What a loss outside the model takes for each logit.
        self.outside_bytes_per_logit = BYTES_PER_LOGIT
        #: The head that was put on here, paused or not.
        self.own: HeadHandle | None = None

    def attach(self) -> None:
        """Put the chunked head on where there is a choice, running as the model does it."""
        if self.choose and obstacle(self.model) is None:
            self.own = install(self.model, 1)
            self.own.pause()

    def options(self, tokens: int) -> tuple[HeadOption, ...]:
        """What there is to choose from for a batch of so many tokens."""
        shape = head_shape(self.model, tokens)
        if shape is None:
            return (HeadOption(1, 0),)
        shape = replace(shape, bytes_per_logit=self._bytes_per_logit())
        if self.per_logit is not None:
            shape = shape.read_as(self.per_logit.weights)
        if self.rows_per_token < 1:
            shape = replace(shape, rows=ceil(self.rows_per_token * tokens), tile=self.tile)
            return (head_option(shape, 1, self.rates.stream),)
        if self.own is not None and self.is_chunkable:
            return head_options(shape, self.rates.stream)
        chunks = self.fixed.chunks if self.fixed is not None and self.fixed.active and self.fixed.use.can_defer else 1
        return (head_option(shape, chunks, self.rates.stream),)

    def observe(self, output: Any, tokens: int) -> None:
        """Note how many rows of logits a forward of so many tokens returned, and whether it returned a loss.

        TRL's fused head and Liger's fused loss return none, ``logits_to_keep`` some.
        """
        shape = head_shape(self.model, tokens)
        found = list(tree_iter(output))
        if shape is None or not all(value is None or isinstance(value, torch.Tensor) for value in found):
            return
        self.computes_loss = any(value is not None and value.numel() == 1 for value in found)
        use = None if self.own is None else self.own.use
        self.is_chunkable = self.computes_loss and use is not None and use.asked > 0 and use.can_defer
        logits = (value for value in found if value is not None and value.shape[-1:] == (shape.vocabulary,))
        self.rows_per_token = min(1.0, max((value.shape[:-1].numel() for value in logits), default=0) / tokens)
        self.tile = tile_behind(output) if self.rows_per_token == 0 else None
        whole = logit_bytes(output, ceil(self.rows_per_token * tokens), shape.vocabulary)
        in_chunks = self.own or self.fixed
        self.per_logit = whole or (None if in_chunks is None else in_chunks.use.per_logit)

    def _bytes_per_logit(self) -> int:
        """Bytes a logit takes at the worst moment of its loss."""
        if not self.computes_loss:
            return self.outside_bytes_per_logit + (0 if self.per_logit is None else self.per_logit.saved)
        return BYTES_PER_LOGIT if self.per_logit is None else self.per_logit.peak

    @property
    def vocabulary(self) -> int | None:
        """How many logits a token has; None without a head."""
        shape = head_shape(self.model, 1)
        return None if shape is None else shape.vocabulary

    def norm_bytes(self, tokens: int) -> int:
        """Bytes of the final norm of a batch of so many tokens, which :meth:`options` count as the head's."""
        shape = head_shape(self.model, tokens)
        return 0 if shape is None else final_norm_bytes(shape)

    def use(self, chunks: int) -> None:
        """Run the head in so many chunks from the next forward on; 1 is as the model does it."""
        if self.own is not None:
            if chunks == 1:
                self.own.pause()
            else:
                self.own.set_chunks(chunks)

    def chunk_until_planned(self, tokens: int, room: int | None) -> None:
        """No plan is known yet: chunk a head that would take most of ``room`` bytes."""
        options = self.options(tokens)
        if room is None or options[0].nbytes <= LARGE_SHARE * room or not self.is_chunkable:
            self.use(1)
            return
        more = [option for option in options if option.chunks >= CHUNKS_UNTIL_PLANNED] or [options[-1]]
        small = (option for option in more if option.nbytes <= SHARE_UNTIL_PLANNED * room)
        self.use(next(small, more[-1]).chunks)

    def undo(self) -> None:
        """Take off what was put on here."""
        if self.own is not None:
            self.own.restore()
