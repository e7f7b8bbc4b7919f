"""What a checkpointed region uses up in its first run, so that the recomputation does not get it again."""

from __future__ import annotations

import ast
from itertools import chain
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.parameters import defaults
from ...facts.values import Function, Partial, Result, Seq, Unknown, Value, options
from ..calls.call_targets import call_targets
from .free_variables import free_names
from .taken_out import Consumed, taken_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..calls.call_targets import CallTarget
    from ..events import Checkpoint
    from ..run import Run

_ITERATORS = frozenset(
    (
        *(f"builtins.{name}" for name in ("iter", "zip", "map", "filter", "enumerate", "reversed")),
        *(
            f"itertools.{name}"
            for name in ("accumulate", "batched", "chain", "chain.from_iterable", "compress", "cycle")
        ),
        *(f"itertools.{name}" for name in ("islice", "pairwise", "starmap", "takewhile", "dropwhile", "zip_longest")),
    )
)


#: Functions that take all that their arguments give.
_TAKING = frozenset(
    ("list", "tuple", "dict", "set", "sum", "max", "min", "sorted", "any", "all", "zip", "map", "enumerate", "filter")
)
_USED_UP = "the iterator it gets is used up"


def consumed(run: Run, event: Checkpoint) -> Consumed | None:
    """The first thing that the region of ``event`` takes away from its own recomputation; None for nothing."""
    return _iterator(run, event) or _advanced(run, event) or _drained(run, event) or taken_out(run, event)


def _iterator(run: Run, event: Checkpoint) -> Consumed | None:
    """An input that is certainly an iterator."""
    for value in (*event.inputs, *event.function_kwargs.values(), *_given_early(event.function)):
        if value.node is not None and _is_always_iterator(run, value):
            return Consumed(_USED_UP, value.node)
    made = {call.node for call in run.calls_to("builtins.iter")}
    given = (argument for argument in event.node.args[1:] if argument in made)
    written = next(chain(given, _bound_early(run, event)), None)
    return None if written is None else Consumed(_USED_UP, written)


def _given_early(function: Value) -> Iterator[Value]:
    """What partials give the function beforehand."""
    for option in options(function):
        if isinstance(option, Partial):
            yield from (*option.args, *option.kwargs.values(), *_given_early(option.func))


def _bound_early(run: Run, event: Checkpoint) -> Iterator[ast.expr]:
    """The defaults of the function that are iterators, made once: `lambda h, weights=iter(weights): ...`."""
    for body in call_targets(event.function):
        given = {*body.parameters()[: len(event.inputs)], *event.function_kwargs, *body.named}
        for name, default in defaults(body.function.node).items():
            made = any(call.name in _ITERATORS for call in run.calls_at(default))
            if name not in given and (made or isinstance(default, ast.GeneratorExp)):
                yield default


def _is_always_iterator(run: Run, value: Value) -> bool:
    return all(_is_iterator(run, option) for option in options(value))


def _is_iterator(run: Run, value: Value) -> bool:
    match value:
        case Result(call):
            return call.name in _ITERATORS
        case Seq(node=ast.GeneratorExp()) | Seq(kind="generator"):
            return True
        case Unknown(node=ast.FunctionDef() as function):
            # What a function of the file returned whose result is not followed: a coroutine or a generator.
            return run.program.generators.get(function, False)
    return False


def _advanced(run: Run, event: Checkpoint) -> Consumed | None:
    """``next`` on an iterator that the region does not make itself."""
    given = {(body.function.node, name) for body in call_targets(event.function) for name in body.kept_parameters()}
    for call in run.region(event).calls_to("builtins.next"):
        function, taken = call.place.function, call.node.args[0] if call.node.args else None
        match taken:
            case ast.Name(id=name) if function is not None:
                if (function.node, name) in given or _is_from_outside(function, name):
                    return Consumed(f"`next({name})` gives the next value instead of the same one", call.node)
            case ast.Attribute(value=ast.Name(id="self")):
                return Consumed(f"`next({ast.unparse(taken)})` gives the next value instead of the same one", call.node)
    return None


def _drained(run: Run, event: Checkpoint) -> Consumed | None:
    """A loop, or what takes everything, of an iterator around the function or in its object."""
    for body in call_targets(event.function):
        node, scope = body.function.node, body.function.scope
        around = free_names(node)
        for part in all_nodes(node):
            for taken in _taken_whole(part):
                match taken:
                    case ast.Name(id=name) if name in around and _is_always_iterator(run, scope.look_up(name)):
                        return Consumed(f"`{name}` is used up", taken)
                    case ast.Attribute(value=ast.Name("self"), attr=name) if _holds_iterator(run, body, name):
                        return Consumed(f"`self.{name}` is used up", taken)
    return None


def _taken_whole(part: ast.AST) -> Sequence[ast.expr]:
    """What ``part`` goes through to the end."""
    match part:
        case ast.For(iter=gone_through) | ast.comprehension(iter=gone_through):
            return (gone_through,)
        case ast.Call(func=ast.Name(id=name), args=given) if name in _TAKING:
            return given
    return ()


def _holds_iterator(run: Run, body: CallTarget, name: str) -> bool:
    """Whether the object of a method holds an iterator under ``name`` that the method does not make itself."""
    held = None if body.function.owner is None else body.function.owner.fields.get(name)
    return (
        held is not None
        and _is_always_iterator(run, held)
        and not any(
            isinstance(part, ast.Attribute) and part.attr == name and isinstance(part.ctx, ast.Store)
            for part in all_nodes(body.function.node)
        )
    )


def _is_from_outside(function: Function, name: str) -> bool:
    """Whether ``name`` belongs to a scope around ``function`` and does more than count."""
    made = function.scope.look_up(name)
    counts = isinstance(made, Result) and made.call.name == "itertools.count"
    return name in free_names(function.node) and not counts
