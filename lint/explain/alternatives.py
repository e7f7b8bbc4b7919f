"""A call on a model that is built in one of several ways is one event for each: it is told once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model import events as e
from ..model.conditions.open_conditions import cover_every_case

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ..facts.values import Guard

_SWITCHES = (e.HfEnable, e.HfDisable, e.KbitPrepare)


def told_once(events: Iterable[e.Event]) -> Mapping[e.Event, tuple[tuple[Guard, ...], list[e.Event]]]:
    """The events that stand for others of the same call, one for each way, where the ways cover every case.

    Returns:
        By the first of them the conditions that all are under, and the others.
    """
    groups: dict[object, list[e.Event]] = {}
    for event in events:
        if isinstance(event, _SWITCHES):
            groups.setdefault((type(event), event.node, event.place.walk, event.place.stack), []).append(event)
    found = {}
    for first, *others in groups.values():
        shared = [guard for guard in first.place.guards if all(guard in it.place.guards for it in others)]
        own = [[guard for guard in it.place.guards if guard not in shared] for it in (first, *others)]
        if others and any(own) and cover_every_case(map(tuple, own)):
            found[first] = (tuple(shared), others)
    return found
