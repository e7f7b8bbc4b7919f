"""What a checkpointed function finds in a dict that is written where it is given: `checkpoint(run, x, {"text": t})`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes, start
from ..calls.call_targets import call_targets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...facts.values import FunctionNode
    from ..events import Checkpoint


def given_entries(checkpoints: list[Checkpoint]) -> frozenset[tuple[ast.AST, bool]]:
    """The questions `"text" in cond` in what all of ``checkpoints`` run, with their answers, by the dicts they give."""
    found = [frozenset(_answers(event)) for event in checkpoints]
    return frozenset.intersection(*found) if found else frozenset()


def _answers(event: Checkpoint) -> Iterator[tuple[ast.AST, bool]]:
    for target in call_targets(event.function):
        for name, given in zip(target.parameters(), event.node.args[1:], strict=False):
            if isinstance(given, ast.Dict) and name in target.kept_parameters():
                keys = [key.value if isinstance(key, ast.Constant) else None for key in given.keys]
                if None not in keys:
                    yield from _asked(target.function.node, name, keys)


def _asked(function: FunctionNode, name: str, keys: Sequence[object]) -> Iterator[tuple[ast.AST, bool]]:
    """The questions for ``keys`` of the dict ``name``, before the function does something else than ask it."""
    changes = [start(node) for node in all_nodes(function) if _may_change(node, name)]
    first = min(changes, default=None)
    for node in all_nodes(function):
        match node:
            case ast.Compare(
                left=ast.Constant(value=key), ops=[ast.In() | ast.NotIn() as asks], comparators=[ast.Name(id=held)]
            ) if held == name and (first is None or start(node) < first):
                yield node, isinstance(asks, ast.In) is (key in keys)


def _may_change(node: ast.AST, name: str) -> bool:
    match node:
        case (
            ast.Call(func=ast.Attribute(value=ast.Name(id=held)))
            | ast.Subscript(value=ast.Name(id=held), ctx=ast.Store() | ast.Del())
        ):
            return held == name
        case ast.Call(args=given):
            return any(isinstance(it, ast.Name) and it.id == name for it in given)
    return False
