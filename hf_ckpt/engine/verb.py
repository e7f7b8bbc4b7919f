"""What a verb does to a saved tensor: how it is packed in forward and unpacked in backward.

A verb is one file in ``verbs/`` here and one in the planner's. Its functions run for every saved tensor of every step,
so they are bare functions over the call's :class:`~.running.frame.Frame`, and a handle (what autograd holds in the
tensor's place) says by its exact type which verb unpacks it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from ..discovery import one_of_each_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from ..assignment import Assignment

#: ``pack(frame, tensor)`` returns the handle of a saved tensor.
Pack: TypeAlias = Callable[[Any, "torch.Tensor"], Any]
#: ``unpack(frame, handle)`` returns the tensor.
Unpack: TypeAlias = Callable[[Any, Any], "torch.Tensor"]
#: ``around(frame, hook)`` returns the pack hook of a call with more around it.
Around: TypeAlias = Callable[[Any, "Callable[[torch.Tensor], Any]"], "Callable[[torch.Tensor], Any]"]


@dataclass(frozen=True, slots=True)
class Place:
    """One saved tensor of a call: its buffer in the trace, its shape, and whether the rebuild reads it."""

    buffer: int
    shape: tuple[int, ...]
    is_source: bool


class Verb(ABC):
    """What may happen to a saved tensor, by the name that assignments use."""

    name: ClassVar[str]

    def around(self, recipe: Any) -> Around | None:
        """What calls of this :class:`~.recipes.recipe.Recipe` need around their pack hook; None when nothing."""
        return None


class PackingVerb(Verb):
    """A verb with a handle of its own.

    Attributes:
        handle: The exact type of its handles.
        stores: Whether backward has the tensor without a rebuild; else it is made again.
        lossless: Whether a stored tensor comes back bit for bit. A rebuild never reads what does not.
    """

    handle: ClassVar[type]
    stores: ClassVar[bool] = True
    lossless: ClassVar[bool] = True

    @abstractmethod
    def packer(self, place: Place) -> Pack:
        """The function that packs the tensor at this place.

        A handle at a source is appended to ``frame.sources``: a rebuild unpacks it from there. It may look at all of
        the tensor's storage, so the tensor must come back as the same window into as large a storage.
        """

    @staticmethod
    @abstractmethod
    def unpack(frame: Any, handle: Any) -> torch.Tensor:
        """The tensor behind a handle."""

    @staticmethod
    def held(handle: Any) -> torch.Tensor | None:
        """What the handle holds on the device until backward, for whoever measures."""
        return None

    def check_possible(self, layer: str, device: torch.device) -> None:
        """Raise PolicyError where a layer on this device cannot use the verb."""
        return


@cache
def verbs() -> dict[str, Verb]:
    """Every verb in ``verbs/``, by name.

    Raises:
        TypeError: A file there does not define exactly one verb.
    """
    from . import verbs as folder  # late: its files import this one

    return {verb.name: verb for verb in one_of_each_file(folder, Verb)}


def packing_verb(name: str) -> PackingVerb:
    """The verb called ``name``, which has handles."""
    verb = verbs()[name]
    assert isinstance(verb, PackingVerb)
    return verb


def packing_verbs() -> Iterator[PackingVerb]:
    """The verbs that have handles."""
    return (verb for verb in verbs().values() if isinstance(verb, PackingVerb))


def readable_buffers(assignment: Assignment[int]) -> frozenset[int]:
    """The buffers that a rebuild may read: what is stored without loss."""
    return frozenset(b for name, buffers in assignment.stored if packing_verb(name).lossless for b in buffers)
