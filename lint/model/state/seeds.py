"""Random seeds that are the same in every step."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.objects.classes import ancestors
from ...facts.objects.containers import GAP, fits
from ...facts.values import Class, Computed, Const, Instance, Param, Unknown, options
from ..events import FunctionCheckpoint
from ..regions.given_parameters import GivenParameters
from ..types import bases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Function, Value
    from ...facts.walk import Write
    from ..events import Checkpointing
    from ..run import Run


def is_constant(run: Run, call: Call) -> bool:
    """Whether ``call`` gets a seed that is the same for every object, in every step."""
    seed = _seed(call)
    return seed is not None and isinstance(call.argument(0, "seed"), Const) and _settles_attributes(run, call, seed)


def is_given_constant(run: Run, call: Call, event: Checkpointing) -> bool:
    """Whether ``call``, in the region of ``event``, gets a seed that this checkpoint gives, a number each time."""
    seed = call.argument(0, "seed")
    if not isinstance(event, FunctionCheckpoint) or not isinstance(seed, Param):
        return False
    given = GivenParameters(event.function, event.inputs, event.function_kwargs).values_of(seed)
    cls, written = _class_around(event.call), (*event.node.args, *(word.value for word in event.node.keywords))
    read = {field for expression in written for field in _own_attributes(event.call, expression)}
    settled = cls is None or all(_is_set_once(run, cls, field) for field in read if _holds_number(cls, field))
    return bool(given) and settled and all(isinstance(value, Const) for value in given)


def _holds_number(cls: Class, field: str) -> bool:
    owners = (cls, *ancestors(cls))
    held = [owner.fields.get(field) or owner.body.get(field) for owner in owners]
    return any(isinstance(option, Const) for value in held if value is not None for option in options(value))


def is_same_in_every_step(run: Run, call: Call) -> bool:
    """Whether the seed that ``call``, in a method of a module, gets is a number that its constructor settles.

    A part of it that somebody may set later, or that comes with another object in each step, leaves that open.
    """
    seed = _seed(call)
    return seed is not None and _is_settled(run, call, seed, call.argument(0, "seed"))


def _seed(call: Call) -> ast.expr | None:
    given = [*call.node.args[:1], *(word.value for word in call.node.keywords if word.arg == "seed")]
    return given[0] if len(given) == 1 else None


def _is_settled(run: Run, call: Call, expression: ast.expr, value: Value) -> bool:
    match expression, value:
        case ast.BinOp(left=left, right=right), Computed(operands=(first, second)):
            return _is_settled(run, call, left, first) and _is_settled(run, call, right, second)
        case ast.Name(), Computed(node=ast.BinOp() as computed):
            return _is_settled(run, call, computed, value)
    if isinstance(value, Const):
        return _settles_attributes(run, call, expression)
    cls = _class_around(call)
    field = next(_own_attributes(call, expression), None)
    is_own = field is not None and isinstance(expression, ast.Attribute)
    return is_own and cls is not None and _is_set_once(run, cls, str(field)) and _is_part_of_model(run, cls)


def _settles_attributes(run: Run, call: Call, expression: ast.expr) -> bool:
    """Whether the attributes of its object that ``expression``, in ``call``, reads are set by constructors alone."""
    cls = _class_around(call)
    return cls is None or all(_is_set_once(run, cls, field) for field in _own_attributes(call, expression))


def _class_around(call: Call) -> Class | None:
    method = _method_around(call)
    return method.owner if method is not None else None


def _method_around(call: Call) -> Function | None:
    """The method that ``call`` is in, in a function inside of it perhaps."""
    function = call.place.function
    while function is not None and function.owner is None:
        function = function.place.function
    return function


def _own_attributes(call: Call, expression: ast.expr) -> Iterator[str]:
    """The attributes of the object that ``call`` is in a method of."""
    method = _method_around(call)
    arguments = method.node.args.args[:1] if method is not None else []
    for part in all_nodes(expression):
        match part:
            case ast.Attribute(value=ast.Name(id=name), attr=field) if any(own.arg == name for own in arguments):
                yield field


def _is_set_once(run: Run, cls: Class, field: str) -> bool:
    """Whether only constructors store the attribute, and as nothing that changes by itself."""
    owners = (cls, *ancestors(cls))
    writes = [it for it in run.writes if it.field == field or (GAP in it.field and fits(it.field, field))]
    stored = any(isinstance(write.obj, Instance) and write.obj.cls in owners for write in writes)
    defaults = [owner.body[field] for owner in owners if field in owner.body]
    known = (stored or bool(defaults)) and all(isinstance(default, Const) for default in defaults)
    return known and all(map(_is_by_constructor, writes))


def _is_by_constructor(write: Write) -> bool:
    function = write.place.function
    plain = all(isinstance(option, Const | Param | Unknown) for option in options(write.value))
    return function is not None and function.name == "__init__" and not write.augmented and plain


def _is_part_of_model(run: Run, cls: Class) -> bool:
    """Whether it is a module that only constructors of other modules build."""
    if not any(base.startswith("torch.nn.") for base in bases(cls)):
        return False
    built = [call.place.function for call in run.program.calls if call.func is cls]
    return bool(built) and all(function is not None and function.name == "__init__" for function in built)
