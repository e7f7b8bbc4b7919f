"""Which saved buffer gets which verb: what policies and the planner decide, the engine carries out and tables show.

Plain data, no torch. A verb is known here by its name alone; what it does stands in ``engine/verbs/``, what it costs in
``planner/verbs/``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The verb that leaves a tensor where it is: what happens without checkpointing.
KEEP = "keep"
#: The verb that makes a tensor again in backward: what happens to all that nothing stores.
REBUILD = "rebuild"

B = TypeVar("B", int, str)


@dataclass(frozen=True, slots=True)
class Assignment(Generic[B]):
    """The buffers that each storing verb has; every other one is made again in backward.

    Buffers are indices of one ledger, or keys (:func:`~hf_ckpt.engine.buffer_keys`), which serve every signature of a
    layer. Verbs without buffers are left out, so equal assignments are equal values. See :meth:`where`.
    """

    stored: tuple[tuple[str, frozenset[B]], ...] = ()

    @classmethod
    def where(cls, **verbs: Iterable[B]) -> Assignment[B]:
        """The assignment with these buffers by verb.

        Args:
            **verbs: Buffers by the name of a verb that stores. A buffer in none of them is made again.

        Returns:
            The assignment.

        Example:
            >>> Assignment.where(keep=[0, 3], offload=[5]).of("offload")
            frozenset({5})
        """
        named = ((verb, frozenset(buffers)) for verb, buffers in sorted(verbs.items()))
        return cls(tuple((verb, buffers) for verb, buffers in named if buffers))

    def of(self, verb: str) -> frozenset[B]:
        """The buffers that ``verb`` stores."""
        return next((buffers for name, buffers in self.stored if name == verb), frozenset())

    @property
    def kept(self) -> frozenset[B]:
        """The buffers that stay as they are."""
        return self.of(KEEP)

    @property
    def held(self) -> frozenset[B]:
        """The buffers that backward has without running an op again, wherever they are until then."""
        return frozenset(buffer for _, buffers in self.stored for buffer in buffers)

    def verb_of(self, buffer: B) -> str | None:
        """The verb that stores ``buffer``; None for one that is made again."""
        return next((name for name, buffers in self.stored if buffer in buffers), None)

    def among(self, buffers: Iterable[B]) -> Assignment[B]:
        """The same without what is not among ``buffers``."""
        those = frozenset(buffers)
        return Assignment.where(**{name: had & those for name, had in self.stored})

    def keeping(self, buffers: Iterable[B]) -> Assignment[B]:
        """The same with ``buffers`` kept too."""
        kept = frozenset(buffers)
        others = {name: had - kept for name, had in self.stored if name != KEEP}
        return Assignment.where(**others, keep=self.kept | kept)
