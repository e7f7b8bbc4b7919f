"""Containers of Python's, those of derived classes too, read and filled past what a derived class makes of that.

A frozen dict refuses its own items, and others count or check what is set. Any other object is taken for a container
that has attributes and no items.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from typing import Any

#: The containers that can be filled.
CONTAINERS: tuple[Any, ...] = (list, dict, set, deque)
#: Longer and deeper ones are compared by what they are.
MOST_ITEMS, DEEPEST = 256, 4


def is_tuple(value: Any) -> bool:
    """Whether it is a tuple that can be made again of its items."""
    return type(value) is tuple or (isinstance(value, tuple) and hasattr(value, "_make"))


def tuple_like(value: Any, items: list[Any]) -> Any:
    """A tuple of the class of ``value`` with these items."""
    return tuple(items) if type(value) is tuple else value._make(items)


def base_of(container: Any) -> Any:
    """The class whose methods read and fill a container."""
    if isinstance(container, OrderedDict):
        return OrderedDict
    return next((base for base in CONTAINERS if isinstance(container, base)), object)


def content_of(container: Any) -> list[Any]:
    """What is in a container, pairs for a dict."""
    base = base_of(container)
    if base is object:
        return []
    return list(base.items(container) if isinstance(container, dict) else base.__iter__(container))


def fill(container: Any, content: list[Any], attributes: dict[str, Any]) -> None:
    """Put this into a container in place of what is in it, and give it these attributes where its class has any."""
    base = base_of(container)
    if base is list:
        list.__setitem__(container, slice(None), content)
    elif base is not object:
        base.clear(container)
        if base is OrderedDict:
            for key, value in content:
                OrderedDict.__setitem__(container, key, value)
        else:
            (deque.extend if base is deque else base.update)(container, content)
    if attributes or getattr(container, "__dict__", None):
        vars(container).clear()
        vars(container).update(attributes)


def options_of(container: Any) -> dict[str, Any]:
    """What a container is besides its items and attributes, for :func:`empty`."""
    if isinstance(container, deque):
        return {"maxlen": container.maxlen}
    return {"default_factory": container.default_factory} if isinstance(container, defaultdict) else {}


def empty(kind: Any, options: dict[str, Any]) -> Any:
    """An empty container of this class, which is not asked."""
    made = kind.__new__(kind)
    if issubclass(kind, deque):
        deque.__init__(made, **options)
    elif issubclass(kind, defaultdict):
        defaultdict.__init__(made, options["default_factory"])
    return made
