"""What a module of the project is, and which are read. Imports nothing: a file that is clean at a glance asks too."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

#: Characters of one module, and of all that one file imports: what a run is made of is small, a library is not.
MAX_TEXT, MAX_TOTAL = 60_000, 150_000
#: Shorter modules are always read: constants and options have no words to know them by.
ALWAYS = 4_000
#: Without one of these a longer module decides nothing about checkpointing.
_RELEVANT = ("checkpoint", "torch.nn", "nn.Module", "TrainingArguments", "use_reentrant")


class LocalModule(NamedTuple):
    """A module of the project."""

    filename: str
    text: str


if TYPE_CHECKING:
    #: Gives the module that a name (with leading dots for a relative import) means in the checked file; None for
    #: everything that is not part of the project.
    FindModule: TypeAlias = Callable[[str], LocalModule | None]


def is_worth_reading(text: str, read: int = 0) -> bool:
    """Whether a module with this ``text`` is read when ``read`` characters of others have been read before it."""
    small = len(text) <= MAX_TEXT and read + len(text) <= MAX_TOTAL
    return small and (len(text) <= ALWAYS or any(word in text for word in _RELEVANT))
