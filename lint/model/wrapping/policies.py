"""Policies of selective activation checkpointing: the functions that torch asks for each op, and what they compare."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import all_nodes
from ...facts.objects.attributes import get_attribute
from ...facts.objects.classes import ancestors
from ...facts.parameters import parameter_names
from ...facts.scopes import bound_names
from ...facts.straight import only_value
from ...facts.values import Class, Dict, Function, Instance, Method, Ref, Result, Seq, Value, options
from ..names import canonical
from .meanings import meaning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ..run import Run

CONTEXTS = "torch.utils.checkpoint.create_selective_checkpoint_contexts"


_SETS = frozenset(("builtins.set", "builtins.frozenset"))


class Comparison(NamedTuple):
    """A comparison of what a policy is given with each of ``values``: a `case` too, and the keys of a table."""

    node: ast.AST
    values: list[Value]


def policies(run: Run) -> Iterator[Function]:
    """The functions of the file given to torch as a policy, directly or through a partial."""
    seen: set[ast.AST] = set()
    for call in run.calls_to(CONTEXTS, "functools.partial"):
        given = call.args
        if call.name == "functools.partial":
            maker = given[0] if given else None
            given = given[1:] if isinstance(maker, Ref) and canonical(maker.name) == CONTEXTS else []
        for value in options(given[0]) if given else ():
            # A policy may ask other functions of the file.
            for policy in run.bodies.of(value).functions:
                if policy.node not in seen:
                    seen.add(policy.node)
                    yield policy


def comparisons(run: Run, policy: Function) -> Iterator[Comparison]:
    """The comparisons with a parameter that ``policy`` makes, with what these values mean around it.

    Another name may hold what the policy makes of its parameter: its `overloadpacket`, its text.
    """
    own = _only_object(run, policy)
    given = parameter_names(policy.node).difference(bound_names(policy.node))
    nodes = list(all_nodes(policy.node))
    asks_packet = any(isinstance(node, ast.Attribute) and node.attr == "overloadpacket" for node in nodes)
    # A table may have the packet for the one question and the overload for the other.
    tables = frozenset[str]() if asks_packet else given
    for node in nodes:
        match node:
            case ast.Compare(left=ast.Name(id=name), comparators=compared) if name in given:
                yield _compared(node, compared, policy, own)
            case ast.Subscript(value=table, slice=ast.Name(id=name), ctx=ast.Load()) if name in tables:
                yield _compared(node, [table], policy, own)
            case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[ast.Name(id=name), *_]) if name in tables:
                yield _compared(node, [table], policy, own)
            case ast.Match(subject=ast.Name(id=name), cases=cases) if name in given:
                for value in (value for case in cases for value in _values(case.pattern)):
                    yield Comparison(value, [meaning(value, policy, own)])


def _only_object(run: Run, policy: Function) -> Instance | None:
    """The one object of the class whose method ``policy`` is, or of one derived from it; None for none or several."""
    owner = policy.owner
    if owner is None:
        return None
    built = ((call, call.func) for call in run.program.calls if isinstance(call.func, Class))
    made = [(call, cls) for call, cls in built if cls is owner or owner in ancestors(cls)]
    return Instance(made[0][1], made[0][0]) if len(made) == 1 else None


def _compared(node: ast.AST, parts: Iterable[ast.expr], policy: Function, own: Instance | None) -> Comparison:
    meant = [meaning(part, policy, own) for part in parts]
    return Comparison(node, [held for value in meant for held in _held(value)])


def _held(value: Value) -> Iterator[Value]:
    """What a comparison with ``value`` compares with: the elements of a list or set, the keys of a dict, or itself."""
    match value:
        case Seq(_, items):
            yield from items
        case Dict(keys=keys) if keys:
            yield from keys
        case Result(call) if call.name in _SETS and call.args:
            yield from _held(call.args[0])
        case _:
            yield value


def _values(pattern: ast.pattern) -> Iterator[ast.expr]:
    return (part.value for part in all_nodes(pattern) if isinstance(part, ast.MatchValue))


def given_each_time(value: Value) -> Value | None:
    """What a function only hands out, `lambda: made`, a method that returns `self.made`; None for anything else."""
    function = value.function if isinstance(value, Method) else value
    if not isinstance(function, Function):
        return None
    match only_value(function.node):
        case ast.Name(id=name):
            return function.scope.look_up(name)
        case ast.Tuple(elts=parts) as pair if all(isinstance(part, ast.Name) for part in parts):
            return meaning(pair, function)
        case ast.Attribute(value=ast.Name("self"), attr=attribute) as held if isinstance(value, Method):
            return get_attribute(value.receiver, attribute, held)
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) as held:
            return get_attribute(function.scope.look_up(name), attribute, held)
    return None


def policy_each_time(run: Run, value: Value) -> Value | None:
    """The policy of the contexts that a function of the program makes anew in every call; None for anything else."""
    function = value.function if isinstance(value, Method) else value
    returns = run.program.returns.get(function.node, []) if isinstance(function, Function) else []
    made = [it.value for it in returns]
    if len({it.node for it in returns}) != 1 or not isinstance(made[0], Result) or made[0].call.name != CONTEXTS:
        return None
    return made[0].call.argument(0, "policy_fn_or_list")
