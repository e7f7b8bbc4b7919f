"""What a rule needs to find in a file: events, and words of its own. The prefilter's triggers are derived from it."""

from __future__ import annotations

from itertools import product
from os.path import commonprefix
from typing import TYPE_CHECKING, TypeAlias

from ..prefilter.words import ANY, KEYWORD, TRL, WHOLE
from .events import Checkpointing, CheckpointPartial, HfEnable, HfSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .events import Event, Trigger


#: A kind of event, a text, or one of several names.
Need: TypeAlias = "type[Event] | str | OneOf"
#: A need, or needs that must all be met.
Needs: TypeAlias = "Need | tuple[Need, ...]"

#: Characters of a beginning that stands for all names with it: fewer stand in other words too.
_LONG = 5

#: A checkpointed region, or a model that transformers checkpoints.
RECOMPUTES: tuple[Needs, ...] = (Checkpointing, HfEnable)
#: Whatever checkpoints, or gives the arguments for it.
CHECKPOINTS: tuple[Needs, ...] = (Checkpointing, CheckpointPartial, HfSetting)
#: Arguments of a Trainer where they switch checkpointing on: trl's do without a word.
SWITCHED_ON: tuple[Needs, ...] = (("TrainingArguments", "checkpointing"), (TRL, "Config"))


class OneOf:
    """One of the names that ``names`` gives; it is asked only where triggers are derived."""

    __slots__ = ("names",)

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self.names = names


def together(*groups: tuple[Needs, ...] | Need) -> tuple[tuple[Need, ...], ...]:
    """One alternative for each way to take one of each group, a single need for the group of it alone."""
    alternatives = [group if isinstance(group, tuple) else (group,) for group in groups]
    return tuple(tuple(part for choice in chosen for part in _parts(choice)) for chosen in product(*alternatives))


def whole(word: str) -> str:
    """``word`` where it ends: `.h` is in `model.h` and `model.h[0]`, not in `model.h.norm` or `model.head`."""
    return word + WHOLE


def one_of(names: Iterable[str]) -> str:
    """A text that stands for any of ``names``, by what several of them begin with."""
    groups: list[str] = []
    for name in sorted(names):
        shared = commonprefix([groups[-1], name]) if groups else ""  # noqa: RUF071 - these are no paths
        if len(shared) >= _LONG:
            groups[-1] = shared
        else:
            groups.append(name)
    return ANY.join(groups)


def given(method: str, part: str) -> str:
    """A call of ``method`` with a keyword, literally in it, that has ``part`` in its name."""
    return f"{method}({part}{KEYWORD}"


def triggers(needs: Iterable[Needs]) -> tuple[Trigger, ...]:
    """The texts of which at least one is in every file that meets one of ``needs``."""
    found: dict[Trigger, None] = {}
    for need in needs:
        for chosen in product(*(_words(part) for part in _parts(need))):
            parts = (trigger if isinstance(trigger, tuple) else (trigger,) for trigger in chosen)
            texts = tuple(dict.fromkeys(text for part in parts for text in part))
            found[texts[0] if len(texts) == 1 else texts] = None
    return tuple(found)


def _words(need: Need) -> list[Trigger]:
    """The words of an event; those of its kinds for one that has none itself."""
    if isinstance(need, str):
        return [need]
    if isinstance(need, OneOf):
        return [one_of(need.names())]
    return [*need.words] or list(_words_of_kinds(need))


def _words_of_kinds(event: type[Event]) -> Iterator[Trigger]:
    for kind in event.__subclasses__():
        yield from dict.fromkeys(_words(kind))


def _parts(needs: tuple[Need, ...] | Need) -> tuple[Need, ...]:
    return needs if isinstance(needs, tuple) else (needs,)
