"""Entries that a checkpointed region takes out of a container, so that the recomputation does not find them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import all_nodes
from ...facts.surroundings import holders, parents_in
from ...facts.values import Dict, Param, Result, Seq, Value, options
from ..calls.call_targets import call_targets
from .free_variables import free_names

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from ...facts.values import Call, Function
    from ..calls.call_targets import CallTarget
    from ..events import Checkpoint
    from ..run import Run

#: Methods that take an entry out.
_TAKING = ("pop", "popleft", "popitem")
#: Methods that leave a container as it is.
_READING = frozenset(("get", "items", "keys", "values", "copy", "index", "count"))
#: Functions that do so.
_ASKING = frozenset(("len", "print", "isinstance", "list", "tuple", "dict", "sorted", "enumerate", "zip", "bool"))


class Consumed(NamedTuple):
    """What the recomputation lacks, in words, and where the forward pass takes it."""

    text: str
    node: ast.AST


class _Taken(NamedTuple):
    """``container.pop(...)``, or ``del container[...]``."""

    node: ast.AST
    container: ast.expr
    what: str
    #: How many arguments it has; with a default, the key need not have been there in the first run.
    given: int


def taken_out(run: Run, event: Checkpoint) -> Consumed | None:
    """The first entry that the region of ``event`` takes out of what it does not make itself."""
    return _of_parameter(run, event.function) or _of_object(run, event)


def _of_parameter(
    run: Run, function: Value, given_on: AbstractSet[str] | None = None, depth: int = 3
) -> Consumed | None:
    """``skips.pop(...)`` in the checkpointed function, of a parameter or of a variable around the function.

    Args:
        run: The program.
        function: What is checkpointed, or what that hands a parameter on to.
        given_on: The parameters that come from those of the checkpointed function; None for all.
        depth: How often a parameter is followed into another function.
    """
    for body in call_targets(function):
        own = body.kept_parameters() if given_on is None else body.kept_parameters() & given_on
        around = {name for name in free_names(body.function.node) if _has_entries(body.function.scope.look_up(name))}
        for taken in _takings(body.function):
            match taken.container:
                case ast.Name(id=name) if name in own | around and _is_missed(body.function, name, taken, name in own):
                    return Consumed(f"what `{taken.what}` took is gone", taken.node)
        for call in run.bodies.calls_in(body.function) if own and depth else ():
            handed = _handed_on(call, own)
            found = _of_parameter(run, call.func, handed, depth - 1) if handed else None
            if found is not None:
                return found
    return None


def _of_object(run: Run, event: Checkpoint) -> Consumed | None:
    """``self.skips.pop()``, of a container that nothing else in the region touches."""
    for body in call_targets(event.function):
        for taken in _takings(body.function):
            match taken.container:
                case ast.Attribute(value=ast.Name("self"), attr=name) if taken.given < 2 and _is_held(body, name):
                    inside = run.region(event).functions
                    if all(_is_only_taken(function, name) for function in inside):
                        return Consumed(f"what `{taken.what}` took is gone", taken.node)
    return None


def _takings(function: Function) -> Iterator[_Taken]:
    inside = function.node.body
    for node in (node for part in (inside if isinstance(inside, list) else [inside]) for node in ast.walk(part)):
        match node:
            case ast.Call(func=ast.Attribute(value=container, attr=method), args=given) if method in _TAKING:
                yield _Taken(node, container, f"{ast.unparse(container)}.{method}", len(given))
            case ast.Delete(targets=[ast.Subscript(value=container) as target]) if not _is_under_test(node, function):
                yield _Taken(node, container, f"del {ast.unparse(target)}", 1)


def _is_under_test(node: ast.AST, function: Function) -> bool:
    """Whether a condition may ask for the entry first: `if "mask" in batch:`."""
    return any(isinstance(holder, ast.If | ast.Try) for holder in holders(node, function.node))


def _is_missed(function: Function, name: str, taken: _Taken, own: bool) -> bool:
    """Whether the second run of ``function`` does not find what the first one took out of its variable ``name``."""
    if not taken.given:
        return _only_taken(function, name)
    return (own or taken.given == 1) and not _may_put_back(function, name)


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
    """Whether ``value``, what a name around a function means, is a list, a dict or a deque, or may be one."""
    is_deque = isinstance(value, Result) and value.call.name == "collections.deque"
    return is_deque or isinstance(value, Seq | Dict | Param)


def _is_held(body: CallTarget, name: str) -> bool:
    """Whether the object of a method surely holds a container under ``name``."""
    held = None if body.function.owner is None else body.function.owner.fields.get(name)
    return held is not None and all(_has_entries(option) and not isinstance(option, Param) for option in options(held))


def _only_taken(function: Function, name: str) -> bool:
    """Whether nothing in ``function`` can put back what it takes from ``name``."""
    takings = [taken.container for taken in _takings(function)]
    uses = [node for node in all_nodes(function.node) if isinstance(node, ast.Name) and node.id == name]
    return all(use in takings for use in uses)


def _is_only_taken(function: Function, name: str) -> bool:
    """Whether ``function`` does nothing with an attribute ``name`` but take entries out."""
    takings = [taken.container for taken in _takings(function)]
    uses = [node for node in all_nodes(function.node) if isinstance(node, ast.Attribute) and node.attr == name]
    return all(use in takings for use in uses)


def _may_put_back(function: Function, name: str) -> bool:
    """Whether something in ``function`` may add entries to its variable ``name``."""
    above = parents_in(function.node)
    uses = [node for node in all_nodes(function.node) if isinstance(node, ast.Name) and node.id == name]
    return any(_may_add(above.get(use), above) for use in uses)


def _may_add(holder: ast.AST | None, above: dict[ast.AST, ast.AST]) -> bool:
    match holder:
        case ast.Subscript(ctx=ctx):
            return isinstance(ctx, ast.Store)
        case ast.Attribute(attr=method):
            return method not in (*_TAKING, *_READING) and isinstance(above.get(holder), ast.Call)
    return False
