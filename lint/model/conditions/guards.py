"""The conditions around one place, and what they test."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ...facts.composed import composed
from ...facts.exclusion import parts_that_hold
from ...facts.nodes import is_inside
from ...facts.origin import origin
from ...facts.values import Result, Seq, Test

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Guard, Loop, Place, Value

#: Conditions that hold in one process.
_OF_ONE_PROCESS = re.compile(r"main|process|rank|master|zero")


def own_guards(place: Place) -> Iterator[Guard]:
    """The conditions around ``place`` inside the function it is in, those of the callers left out."""
    function = place.function
    for guard in place.guards:
        line = getattr(guard.test, "lineno", 0)
        if function is None or function.node.lineno <= line <= (function.node.end_lineno or 0):
            yield guard


def is_optional(place: Place) -> bool:
    """Whether a switch of the run, `if args.save:`, may leave out ``place``; some process always comes to it."""
    tests = (guard.test for guard in own_guards(place))
    return any(isinstance(it, ast.Name | ast.Attribute) and not _OF_ONE_PROCESS.search(ast.unparse(it)) for it in tests)


def kinds_asked(guard: Guard) -> list[Value]:
    """The classes that a condition which is one `isinstance` asks for, whichever way it came out; none for others."""
    match guard.value:
        case Result(call) if call.name == "builtins.isinstance":
            asked = call.argument(1)
            return [*asked.items] if isinstance(asked, Seq) else [asked]
    return []


def own_loops(place: Place) -> Iterator[Loop]:
    """The loops around ``place`` inside the function it is in; a comprehension of a caller may be among them."""
    for loop in place.loops:
        # The text of a comprehension has no position of its own.
        if place.function is None or isinstance(loop, ast.comprehension) or is_inside(loop, place.function.node):
            yield loop


def tests_training(guard: Guard) -> bool:
    """Whether the condition holds in train mode, where a backward pass is: `self.training`, or not `not ...`.

    Parts beside it that the program decides, `self.use_checkpoint and self.training`, ask for nothing.
    """
    parts = list(parts_that_hold(guard.test, guard.taken))
    decided = _decided_parts(guard)
    return all(
        part in decided or (holds and getattr(part, "attr", "") == "training") for part, holds in parts
    ) and not all(part in decided for part, _ in parts)


def tests_gradients(guard: Guard) -> bool:
    """Whether the condition asks whether gradients are on, beside train mode: `torch.is_grad_enabled()`."""
    return all(holds and _asks_for_mode(part) for part, holds in parts_that_hold(guard.test, guard.taken))


def _asks_for_mode(part: ast.AST) -> bool:
    match part:
        case ast.Call(func=ast.Attribute(attr="is_grad_enabled") | ast.Name(id="is_grad_enabled")):
            return True
        case ast.Attribute(attr="training"):
            return True
    return False


def _decided_parts(guard: Guard) -> list[ast.AST]:
    """The parts of an `and` that holds which the program decides; none where that is not certain."""
    if not isinstance(guard.test, ast.BoolOp) or not isinstance(guard.test.op, ast.And) or not guard.taken:
        return []
    operands = guard.value.operands if isinstance(guard.value, Test) else (guard.value,)
    left_open = [operand.node for operand in operands]
    if not all(node in guard.test.values for node in left_open):
        return []
    return [part for part in guard.test.values if part not in left_open]


def is_tested(question: ast.AST, place: Place) -> bool:
    """Whether a condition around ``place`` is, or has in it, the expression ``question``."""
    tests = (guard.test for guard in place.guards)
    return any(is_inside(question, test) and origin(question) == origin(test) for test in tests)


def in_mode(test: ast.AST, training: bool, *, of_any: bool = False) -> bool | None:
    """What a condition is in train or in eval mode of `self`, or ``of_any`` object; None where that does not decide."""

    def ask(part: ast.AST) -> bool | None:
        match part:
            case ast.Attribute(value=ast.Name(id=name), attr="training") if of_any or name == "self":
                return training
        return None

    return composed(test, ask)


def excludes_mode(guard: Guard, training: bool, *, of_any: bool = False) -> bool:
    """Whether the condition never holds in train (or in eval) mode: `not self.training`."""
    return in_mode(guard.test, training, of_any=of_any) is (not guard.taken)
