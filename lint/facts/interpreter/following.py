"""Calls of the program's own functions: the body is walked with the arguments that the caller gives."""

from __future__ import annotations

import ast
import sys
from typing import TYPE_CHECKING

from ..grad_modes import Passage, agreed, expected
from ..objects.annotations import annotated, narrowed
from ..objects.classes import is_manager, is_run_as_written
from ..scopes import Scope
from ..values import UNKNOWN, Const, Function, Instance, Seq, Unknown, Value, join_under
from ..values.grad_mode import GradState
from ..walk import Returned, Walk
from .context_managers import entered_by
from .generators import yields
from .grad_mode import enter_decorators
from .parameters import bind_given

if TYPE_CHECKING:
    from ..values import Call
    from ..walk import Program

#: Calls followed inside calls; deeper ones are unknown.
MAX_DEPTH = 6
#: Times one function is walked for different callers, and walks of functions in one file.
MAX_WALKS, MAX_TOTAL_WALKS = 4, 2_000
#: Whoever allows less depth of recursion, does the analysis again with more (`lint/analysis/deep.py`).
_ENOUGH = 100_000
#: The same for constructors, what they call and registries, and for the steps of loops over settings: what an object
#: holds, or a step does, only its own call tells.
MAX_BUILT = 24


def follow(caller: Walk, function: Function, call: Call, receiver: Value | None) -> Value:
    """What ``function`` returns for ``call``; unknown when it was followed too often or has a decorator."""
    program, node = caller.program, function.node
    stack = caller.place.stack
    walked = program.followed.get(node, 0)
    few = walked < (MAX_BUILT if _builds(caller, function) or _is_in_turn(caller) else MAX_WALKS)
    if not few or len(stack) >= MAX_DEPTH or program.walks >= MAX_TOTAL_WALKS or call.node in stack:
        return _as_before(program, function, call)
    program.followed[node] = walked + 1
    program.walks += 1
    callees = (*caller.place.callees, node)
    contexts = (*caller.place.contexts, *entered_by(function))
    place = caller.place._replace(
        function=function, loops=(), stack=(*stack, call.node), callees=callees, contexts=contexts
    )
    if _is_step(caller):
        place = place._replace(in_turn=(*place.in_turn, call.node))
    instance = receiver if isinstance(receiver, Instance) else None
    walk = Walk(program, Scope(node, function.scope), place, caller.engine, instance)
    bind_given(walk, function, call, receiver)
    _walk_in_mode(caller, walk, function, call)
    value = _result(walk, function)
    returns = getattr(node, "returns", None)
    value = narrowed(value, annotated(returns, function.scope)) if returns is not None else value
    return value if is_run_as_written(function) else Unknown(call.node)


def _is_step(caller: Walk) -> bool:
    """Whether a loop around the call takes its elements one by one."""
    return not caller.program.in_turn.isdisjoint(caller.place.loops)


def _is_in_turn(caller: Walk) -> bool:
    """Whether such a step led to the call: each of the few steps has arguments of its own."""
    return bool(caller.place.in_turn) or _is_step(caller)


def _builds(caller: Walk, function: Function) -> bool:
    """Whether the call makes what an object or a registry holds: `self.bn = norm(width)` in a constructor."""
    entered = caller.place.function
    around = [function.node, *caller.place.callees, *([] if entered is None else [entered.node])]
    return caller.program.registering or any(getattr(node, "name", "") == "__init__" for node in around)


def _as_before(program: Program, function: Function, call: Call) -> Value:
    """What a call gives whose function is not walked again: it leaves the grad mode that calls like it left."""
    grad = program.grad
    program.not_walked += 1
    grad.yielded_in[call.node] = [expected(grad.yielded_by.get(function.node, ()), call)]
    left = expected(grad.left_by.get(function.node, ()), call)
    grad.current = grad.current if left is None else GradState(left)
    return Unknown(call.node)


def _walk_in_mode(caller: Walk, walk: Walk, function: Function, call: Call) -> None:
    """Walk the body in the grad mode of its decorators, and leave the mode as the call does."""
    grad, block = walk.program.grad, caller.block
    before = grad.current
    if block is not None and block.item.context_expr is call.node and block.ends is None and is_manager(function):
        walk.entered_for = block
    is_entered = walk.entered_for is not None
    switched = enter_decorators(walk, function)
    grad.yielded_in.pop(call.node, None)
    walk_body(walk, function)
    if is_manager(function):
        yielded = agreed(grad.yielded_in.get(call.node, ()))
        grad.yielded_by.setdefault(function.node, []).append(Passage(call, yielded))
    if switched or (not is_entered and is_manager(function)):
        grad.current = before  # The call alone runs nothing of a generator.
    elif not is_entered:
        grad.left_by.setdefault(function.node, []).append(Passage(call, grad.switched_since(before)))


def walk_body(walk: Walk, function: Function) -> None:
    """Walk the body of ``function``; what it returns is collected in ``walk``."""
    node = function.node
    function.walked = True
    try:
        if isinstance(node, ast.Lambda):
            value = walk.evaluate(node.body)
            walk.give_back(value)
            walk.program.returns.setdefault(node, []).append(Returned(value, node, walk.place))
        elif not walk.engine.execute(walk, node.body):
            walk.give_back(Const(None, node))
    except RecursionError:
        if sys.getrecursionlimit() < _ENOUGH:
            raise  # The analysis is done again where more fits.
        walk.returned = [(UNKNOWN, ())]


def _result(walk: Walk, function: Function) -> Value:
    """What the walked body of ``function`` gives to its caller."""
    node = function.node
    if isinstance(node, ast.Lambda):
        return walk.returned[0][0]
    if isinstance(node, ast.AsyncFunctionDef):
        return Unknown(node)
    if yields(walk.program, node):
        # A loop over it gives what the body hands over; how much that is, and in which order, stays open.
        return Seq("generator", walk.yielded, True, node, walk.begun_at)
    return join_under(*walk.returned)
