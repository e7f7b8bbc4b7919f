"""What an object was given when it was built, where its class alone does not tell: `Residual(block)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.values import UNKNOWN, Choice, Instance, Method, Value

if TYPE_CHECKING:
    from ...facts.values import Call


def asked_of_self(call: Call) -> str | None:
    """The attribute of its own object that a method calls: `fn` in `self.fn(x)`; None for other calls."""
    function = call.place.function
    arguments = function.node.args.args if function is not None and function.owner is not None else []
    match call.node.func:
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if arguments and arguments[0].arg == name:
            return attribute
    return None


def of_object(call: Call, instance: Instance | None) -> Value:
    """What ``call``, in a method of ``instance``, calls: what that object holds rather than any of its class."""
    name = asked_of_self(call) if instance is not None and instance.call is not None else None
    if name is None or instance is None:
        return call.func
    if isinstance(call.func, Method):
        return Method(instance, call.func.function, call.func.node)
    own = (instance.attributes or {}).get(name)
    if own is not None:
        return own
    held = instance.cls.fields.get(name)
    # Its constructor was not followed: which of them it holds is not known.
    return UNKNOWN if isinstance(held, Choice) else call.func
