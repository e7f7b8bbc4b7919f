"""Policies of selective activation checkpointing: the functions that torch asks for each op, and what they compare."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import all_nodes
from ...facts.parameters import parameter_names
from ...facts.scopes import bound_names
from ...facts.values import Function, Ref, Value, options
from ..names import canonical
from .meanings import meaning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..run import Run

CONTEXTS = "torch.utils.checkpoint.create_selective_checkpoint_contexts"


class Comparison(NamedTuple):
    """A comparison of what a policy is given, a `case` among them, with ``values``."""

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


def comparisons(policy: Function) -> Iterator[Comparison]:
    """The comparisons with a parameter that ``policy`` makes, with what these values mean around it.

    Another name may hold what the policy makes of its parameter: its `overloadpacket`, its text.
    """
    given = parameter_names(policy.node).difference(bound_names(policy.node))
    for node in all_nodes(policy.node):
        match node:
            case ast.Compare(left=ast.Name(id=name), comparators=compared) if name in given:
                yield Comparison(node, [meaning(part, policy) for part in compared])
            case ast.Match(subject=ast.Name(id=name), cases=cases) if name in given:
                for value in (value for case in cases for value in _values(case.pattern)):
                    yield Comparison(value, [meaning(value, policy)])


def _values(pattern: ast.pattern) -> Iterator[ast.expr]:
    return (part.value for part in all_nodes(pattern) if isinstance(part, ast.MatchValue))


def given_by_lambda(value: Value) -> Value | None:
    """What `lambda: made` gives each time: the one object that the name means around it; None for anything else."""
    match value:
        case Function(ast.Lambda(body=ast.Name(id=name))):
            return value.scope.look_up(name)
    return None
