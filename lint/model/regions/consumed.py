"""What a checkpointed region uses up in its first run, so that the recomputation does not get it again."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import all_nodes
from ...facts.scopes import bound_names
from ...facts.values import Dict, Function, Param, Result, Seq, Unknown, Value, options
from ..calls.call_targets import call_targets
from .free_variables import free_names

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from ...facts.values import Call
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


class Consumed(NamedTuple):
    """What the recomputation lacks, in words, and where the forward pass takes it."""

    text: str
    node: ast.AST


def consumed(run: Run, event: Checkpoint) -> Consumed | None:
    """The first thing that the region of ``event`` takes away from its own recomputation; None for nothing."""
    return _iterator(run, event) or _advanced(run, event) or _popped(run, event.function)


def _iterator(run: Run, event: Checkpoint) -> Consumed | None:
    """An input that is certainly an iterator."""
    for value in (*event.inputs, *event.function_kwargs.values()):
        if value.node is not None and all(_is_iterator(run, option) for option in options(value)):
            return Consumed("the iterator it gets is used up", value.node)
    made = {call.node for call in run.calls_to("builtins.iter")}
    written = next((argument for argument in event.node.args[1:] if argument in made), None)
    return None if written is None else Consumed("the iterator it gets is used up", written)


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
    for call in run.region(event).calls_to("builtins.next"):
        function, taken = call.place.function, call.node.args[0] if call.node.args else None
        match taken:
            case ast.Name(id=name) if function is not None and _is_from_outside(function, name):
                return Consumed(f"`next({name})` gives the next value instead of the same one", call.node)
            case ast.Attribute(value=ast.Name(id="self")):
                return Consumed(f"`next({ast.unparse(taken)})` gives the next value instead of the same one", call.node)
    return None


def _is_from_outside(function: Function, name: str) -> bool:
    """Whether ``name`` belongs to a scope around ``function`` and does more than count."""
    made = function.scope.look_up(name)
    counts = isinstance(made, Result) and made.call.name == "itertools.count"
    return name in free_names(function.node) and not counts


def _popped(run: Run, function: Value, given_on: AbstractSet[str] | None = None, depth: int = 3) -> Consumed | None:
    """``skips.pop(...)`` in the checkpointed function, of a parameter or of a variable around the function.

    Args:
        run: The program.
        function: What is checkpointed, or what that hands a parameter on to.
        given_on: The parameters that come from those of the checkpointed function; None for all.
        depth: How often a parameter is followed into another function.
    """
    for body in call_targets(function):
        own = set(body.parameters()) - set(bound_names(body.function.node))
        own = own if given_on is None else own & given_on
        around = {name for name in free_names(body.function.node) if _has_entries(body.function.scope.look_up(name))}
        inside = body.function.node.body
        for node in (node for part in (inside if isinstance(inside, list) else [inside]) for node in ast.walk(part)):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="pop"), args=given):
                    # With a default, the key need not have been there in the first run.
                    asks = (name in own and given) or (name in around and len(given) == 1)
                    if asks or (name in own | around and not given and _is_only_popped(body.function, name)):
                        return Consumed(f"what `{name}.pop` took is gone", node)
        for call in run.bodies.calls_in(body.function) if own and depth else ():
            handed = _handed_on(call, own)
            found = _popped(run, call.func, handed, depth - 1) if handed else None
            if found is not None:
                return found
    return None


def _handed_on(call: Call, names: AbstractSet[str]) -> frozenset[str]:
    """The parameters of what ``call`` runs that get one of the variables ``names`` as it is."""
    written = [call.written_arguments(target.parameters()) for target in call_targets(call.func)]
    return frozenset(
        parameter
        for given in written
        for parameter, value in given.items()
        if isinstance(value, ast.Name) and value.id in names
    )


def _has_entries(value: Value | None) -> bool:
    """Whether ``value``, what a name around a function means, is a list or a dict, or may be one."""
    return isinstance(value, Seq | Dict | Param)


def _is_only_popped(function: Function, name: str) -> bool:
    """Whether nothing in ``function`` can put back what it takes from ``name``."""
    uses = [node for node in all_nodes(function.node) if isinstance(node, ast.Name) and node.id == name]
    pops = [node.value for node in all_nodes(function.node) if isinstance(node, ast.Attribute) and node.attr == "pop"]
    return all(use in pops for use in uses)
