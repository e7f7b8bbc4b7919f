"""Functions that a program puts in the place of a `forward`: `Block.forward = run`, `block.forward = run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...facts.objects.classes import ancestors
from ...facts.values import Class, Function, Instance, Method, Partial, Result, Value, options, same

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable, Iterator

    from ...facts.values import Call
    from ...facts.walk import Write


class _Replacement(NamedTuple):
    """What runs instead of the `forward` of ``owner``, a class or an object."""

    owner: Class | Instance
    function: Function


def calls_by_replacement(writes: Iterable[Write], calls: Iterable[Call]) -> dict[ast.AST, list[Call]]:
    """By function that is put in the place of a `forward`, the calls of the modules that come to it."""
    replaced = [found for write in writes if write.field == "forward" for found in _replacements(write)]
    found: dict[ast.AST, list[Call]] = {}
    if not replaced:
        return found
    for call in calls:
        if isinstance(call.func, Instance):
            for node in dict.fromkeys(it.function.node for it in replaced if _is_of(it.owner, call.func)):
                found.setdefault(node, []).append(call)
    return found


def _replacements(write: Write) -> Iterator[_Replacement]:
    functions = [function for value in options(write.value) if (function := function_put(value)) is not None]
    owners = [owner for owner in options(write.obj) if isinstance(owner, Class | Instance)]
    return (_Replacement(owner, function) for owner in owners for function in functions)


def function_put(value: Value) -> Function | None:
    """The function that runs where ``value`` is put in the place of a method, bound to an object or not."""
    match value:
        case Function():
            return value
        case Method(_, function) | Partial(func=Function() as function):
            return function
        case Result(call) if call.name == "types.MethodType" and call.args:
            return function_put(call.args[0])
        case Result(call) if call.method == "__get__":
            return function_put(call.receiver)
    return None


def _is_of(owner: Class | Instance, module: Instance) -> bool:
    """Whether a call of ``module`` comes to what is put in the place of the `forward` of ``owner``."""
    if isinstance(owner, Instance):
        return owner.call is not None and same(owner, module)
    for cls in (module.cls, *ancestors(module.cls)):
        if cls is owner:
            return True
        if "forward" in cls.body:
            return False
    return False
