"""What a condition says when it holds, and which conditions cannot hold together."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Says(NamedTuple):
    """That ``subject`` is true (or false), or one of ``constants`` (or none of them)."""

    subject: str
    #: None when only its truth is said.
    constants: frozenset[object] | None
    holds: bool
    #: The part of the condition that says it.
    part: ast.AST

    def contradicts(self, other: Says) -> bool:
        """Whether no value of the subject fits both."""
        if self.subject != other.subject:
            return False
        mine, others = self.constants, other.constants
        if mine is None and others is None:
            return self.holds != other.holds
        if mine is None:
            return other.contradicts(self)
        if others is None:
            return self.holds and all(bool(constant) != other.holds for constant in mine)
        if self.holds and other.holds:
            return mine.isdisjoint(others)
        return self.holds != other.holds and (mine <= others if self.holds else others <= mine)


def contradict(left: ast.AST, left_taken: bool, right: ast.AST, right_taken: bool) -> bool:
    """Whether the conditions ``left`` and ``right`` cannot both come out as said."""
    ways = [*ways_to_hold(left, left_taken)]
    if len(ways) > 1:
        return all(contradict(right, right_taken, way, holds) for way, holds in ways)
    if len([*ways_to_hold(right, right_taken)]) > 1:
        return contradict(right, right_taken, left, left_taken)
    return any(True for _ in contradictions(left, left_taken, right, right_taken))


def contradictions(left: ast.AST, left_taken: bool, right: ast.AST, right_taken: bool) -> Iterator[ast.AST]:
    """The parts of ``left`` that cannot come out as said where ``right`` does."""
    if left is right:
        if left_taken != right_taken:
            yield left
        return
    said = list(_says(right, right_taken))
    for mine in _says(left, left_taken):
        if any(mine.contradicts(other) for other in said):
            yield mine.part


def parts_that_hold(test: ast.AST, taken: bool) -> Iterator[tuple[ast.AST, bool]]:
    """The parts that all hold when ``test`` came out as ``taken``, and whether they are true."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from parts_that_hold(operand, not taken)
        case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And) == taken:
            for value in values:
                yield from parts_that_hold(value, taken)
        case _:
            yield test, taken


def ways_to_hold(test: ast.AST, taken: bool) -> Iterator[tuple[ast.AST, bool]]:
    """The parts of which one suffices for ``test`` to come out as ``taken``, and whether it is true."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from ways_to_hold(operand, not taken)
        case ast.BoolOp(op=op, values=values) if isinstance(op, ast.Or) == taken:
            for value in values:
                yield from ways_to_hold(value, taken)
        case _:
            yield test, taken


def conjuncts(test: ast.AST, taken: bool) -> Iterator[tuple[str, bool]]:
    """The parts that all hold when ``test`` came out as ``taken``, as text and whether they are true."""
    for part, holds in parts_that_hold(test, taken):
        match part:
            case ast.Compare(left=left, ops=[ast.NotEq() | ast.IsNot() as op], comparators=[right]):
                plain = ast.Eq() if isinstance(op, ast.NotEq) else ast.Is()
                yield ast.dump(ast.Compare(left, [plain], [right])), not holds
            case ast.Compare(left=left, ops=[ast.Eq()], comparators=[ast.Constant()]):
                yield ast.dump(ast.Compare(left, [ast.Eq()], part.comparators)), holds
            case _:
                yield ast.dump(part), holds


def _says(test: ast.AST, taken: bool) -> Iterator[Says]:
    """What is certain when ``test`` came out as ``taken``."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _says(operand, not taken)
            return
        case ast.BoolOp(op=op, values=values) if isinstance(op, ast.And) == taken:
            for value in values:
                yield from _says(value, taken)
        case ast.Compare(left=subject, ops=[op], comparators=[constant]):
            constants = _constants(constant, op)
            if constants is not None:
                holds = taken != isinstance(op, ast.NotEq | ast.IsNot | ast.NotIn)
                yield Says(ast.dump(subject), constants, holds, test)
    yield Says(ast.dump(test), None, taken, test)


def _constants(node: ast.expr, op: ast.cmpop) -> frozenset[object] | None:
    """The constants a comparison is with; None for anything else."""
    match op, node:
        case ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot(), ast.Constant(value=value):
            return frozenset((value,))
        case ast.In() | ast.NotIn(), ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            if all(isinstance(element, ast.Constant) for element in elements):
                return frozenset(element.value for element in elements if isinstance(element, ast.Constant))
    return None


def pattern_test(subject: ast.expr, pattern: ast.pattern) -> ast.AST:
    """A ``case`` that compares with constants as the condition it stands for; other patterns as they are."""
    match pattern:
        case ast.MatchValue(value=value):
            return ast.copy_location(ast.Compare(subject, [ast.Eq()], [value]), pattern)
        case ast.MatchSingleton(value=constant):
            value = ast.copy_location(ast.Constant(constant), pattern)
            return ast.copy_location(ast.Compare(subject, [ast.Is()], [value]), pattern)
        case ast.MatchOr(patterns=patterns) if all(isinstance(part, ast.MatchValue) for part in patterns):
            values = [part.value for part in patterns if isinstance(part, ast.MatchValue)]
            listed = ast.copy_location(ast.Tuple(values, ast.Load()), pattern)
            return ast.copy_location(ast.Compare(subject, [ast.In()], [listed]), pattern)
    return pattern
