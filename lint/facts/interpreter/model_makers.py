"""`Trainer(model_init=build)`: a Trainer calls the function and trains what it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..objects.classes import ancestors, method_of
from ..parameters import positional_names
from ..values import Absent, Arguments, Call, Class, Function, Instance, Method, Partial, Ref, Unknown, Value, equals
from .handing_on import resolve

if TYPE_CHECKING:
    import ast

    from ..walk import Walk

_MAKER = "model_init"
_LIBRARIES = ("transformers.", "trl.")


def with_model_made(walk: Walk, node: ast.Call, target: Value, given: Arguments) -> Arguments:
    """``given`` with the model that the Trainer ``target`` makes by a function; itself where that makes none."""
    maker = _called(given.kwargs.get(_MAKER))
    if not isinstance(maker, Function | Method | Partial) or not _is_trainer(target) or not _lacks_model(given):
        return given
    made = Call(node, maker, walk.place, walk.program.next_order())
    resolve(walk, made)
    receiver = made.func.receiver if isinstance(made.func, Method) else None
    function = made.func.function if isinstance(made.func, Method) else made.func
    if not isinstance(function, Function):
        return given
    if made.func is maker:
        # With one parameter it gets a trial of the search for hyperparameters, or None.
        taken = positional_names(function.node)[receiver is not None :]
        made.args = [Unknown(node) for _ in taken[:1]]
    more = Arguments(given)
    more.kwargs = {**given.kwargs, "model": walk.follow(function, made, receiver)}
    return more


def _called(maker: Value | None) -> Value | None:
    """What a call of ``maker`` runs: the method `__call__` of an object."""
    own = method_of(maker.cls, "__call__") if isinstance(maker, Instance) else None
    return maker if own is None or maker is None else Method(maker, own, maker.node)


def _lacks_model(given: Arguments) -> bool:
    model = given.argument(0, "model")
    return isinstance(model, Absent) or equals(model, None) is True


def _is_trainer(target: Value) -> bool:
    owners = (target, *ancestors(target)) if isinstance(target, Class) else ()
    return any(_names_trainer(base) for base in (target, *(base for owner in owners for base in owner.bases)))


def _names_trainer(value: Value) -> bool:
    return isinstance(value, Ref) and value.name.startswith(_LIBRARIES) and value.name.endswith("Trainer")
