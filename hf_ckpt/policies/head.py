"""``head(chunks)``: the loss head in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from ..errors import ModelStructureError
from ..policy.base import Policy, Requests, positive_int

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..policy.decision import Decision, Stack
    from ..policy.platform import Platform


@dataclass(frozen=True, slots=True)
class HeadPolicy(Policy):
    """Compute the output embeddings and the loss in chunks of tokens, so that full logits never exist.

    With a large vocabulary logits, their fp32 copy and their gradient are the peak once the layers hold little. The
    loss equals the unchunked one up to the order of its fp32 sum over tokens. ``head(1)`` runs the head as the model
    does, bit for bit, whatever a budget would choose. It says nothing about layers: add it to any other policy.

    Args:
        chunks: The number of chunks, 1 or more; the logits of a chunk are (tokens / chunks, vocabulary).
    """

    name: ClassVar[str] = "head"
    usage: ClassVar[str] = "head(8)"
    chunks: int

    @classmethod
    def parse(cls, arguments: tuple[str, ...]) -> Self:
        """One whole number above 0."""
        return cls(positive_int(cls.name, arguments))

    def arguments(self) -> tuple[str, ...]:
        """``chunks``."""
        return (str(self.chunks),)

    def about_layers(self) -> bool:
        """It speaks about the head."""
        return False

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """Nothing about any layer."""
        return {}

    def requests(self) -> Requests:
        """The loss head in chunks."""
        return Requests(head_chunks=self.chunks)

    def check(self, requests: Requests, platform: Platform) -> None:
        """Refuse a model without output embeddings."""
        if platform.missing_head:
            raise ModelStructureError(platform.missing_head)
