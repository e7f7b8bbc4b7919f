"""What a `forward` hands on to a checkpoint: `def forward(self, *args): return checkpoint(self.block, *args)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import all_nodes
from ...facts.values import is_given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ...facts.values import Call, Function, Value
    from ..history import History

#: Methods that hand on what they got.
_HOPS = 3


def handed_on(forwards: Mapping[ast.AST, list[Call]], call: Call) -> list[tuple[Call, Value]] | None:
    """What the calls of the module around ``call`` give for the `*args` that ``call`` passes on.

    Args:
        forwards: By method `forward`, the calls of modules that come to it.
        call: A call with a star among its arguments.

    Returns:
        Each such call with each value; None where the star is something else, or a call leaves open what it gives.
    """
    function = call.place.function
    if function is None or not _passes_own_star(function, call):
        return None
    callers = forwards.get(function.node, [])
    if not callers or any(it.open_args or it.open_kwargs or it.kwargs for it in callers):
        return None
    arguments = function.node.args
    own = len((*arguments.posonlyargs, *arguments.args)) - 1
    return [(it, value) for it in callers for value in it.args[own:]]


class Keywords(NamedTuple):
    """What one call of a module gives by keyword that its method has no parameter for."""

    call: Call
    names: list[str]


def keywords_handed_on(run: History, call: Call, hops: int = _HOPS) -> list[Keywords]:
    """What the module's `**kwargs` hold where ``call`` passes them on, for each call of the module.

    Args:
        run: The history that ``call`` is of.
        call: A call in a `forward`, in what is put in its place, or in a method that one of them hands all on to.
        hops: How many methods to follow that hand on what they got.
    """
    function = call.place.function
    if function is None or not _passes_own_mapping(function, call):
        return []
    arguments = function.node.args
    own = {argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)}
    found = [
        Keywords(it, [name for name in it.kwargs if is_given(it, name)])
        for it in (*run.forwards.get(function.node, ()), *run.replacements.get(function.node, ()))
    ]
    for caller in run.calls_of(function) if hops else ():
        found += keywords_handed_on(run, caller, hops - 1)
    return [Keywords(it.call, [name for name in it.names if name not in own]) for it in found]


def _passes_own_mapping(function: Function, call: Call) -> bool:
    """Whether ``call`` gets the `**kwargs` of ``function``, which does nothing with them but pass them on."""
    own = function.node.args.kwarg
    if own is None:
        return False
    nodes = [*all_nodes(function.node)]
    named = [node for node in nodes if isinstance(node, ast.Name) and node.id == own.arg]
    spread = [node.value for node in nodes if isinstance(node, ast.keyword) and node.arg is None]
    here = [keyword.value for keyword in call.node.keywords if keyword.arg is None]
    return any(node in named for node in here) and all(node in spread for node in named)


def _passes_own_star(function: Function, call: Call) -> bool:
    """Whether the only star of ``call`` is the `*args` of ``function``, as it was given."""
    own = function.node.args.vararg
    stars = [argument.value for argument in call.node.args if isinstance(argument, ast.Starred)]
    if own is None or [ast.unparse(star) for star in stars] != [own.arg]:
        return False
    return not any(
        isinstance(node, ast.Name) and node.id == own.arg and isinstance(node.ctx, ast.Store)
        for node in all_nodes(function.node)
    )
