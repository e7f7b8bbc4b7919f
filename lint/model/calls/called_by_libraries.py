"""Methods of a program's class that a method of a library calls, which the class inherits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.objects.attributes import get_attribute
from ...facts.values import Attr, Instance, Method
from ..types import bases
from .given import asked_of_self

if TYPE_CHECKING:
    from ...facts.values import Call, Value

#: By the method of PyTorch Geometric's `MessagePassing` (2.6) what that calls.
_OF_MESSAGE_PASSING = {"propagate": ("message", "aggregate", "update"), "edge_updater": ("edge_update",)}


def called_by_libraries(call: Call, instance: Instance | None) -> list[Value]:
    """What an inherited method calls of its object: `self.propagate(edges, x=x)` comes to `self.message`.

    Args:
        call: A call.
        instance: The object whose method makes it, where that is known.
    """
    match call.func:
        case Attr(base=Instance(cls) as module, name=name) if name in _OF_MESSAGE_PASSING:
            if any(base.startswith("torch_geometric.") and base.endswith(".MessagePassing") for base in bases(cls)):
                own = module if instance is None or asked_of_self(call) is None else instance
                found = [get_attribute(own, method, call.node) for method in _OF_MESSAGE_PASSING[name]]
                return [method for method in found if isinstance(method, Method)]
    return []
