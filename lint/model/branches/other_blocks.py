"""Branches that run the same blocks in the same order, but for one; or that go through other parts of one list."""

from __future__ import annotations

import ast
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ...facts.identifiers import names_in
from ...facts.nodes import is_inside, source_text, start, uncounted
from ...facts.surroundings import parents_in
from ...facts.values import Element, Instance, Result, options
from ..events import Checkpoint
from ..flow.statements import body_around

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ...facts.values import Call, Value
    from ..history import History


#: A function that runs very many blocks is generated code; what belongs together stands near.
_NEAREST = 16
_STATEMENTS = 32


class OtherBlocks(NamedTuple):
    """What a checkpointed branch runs otherwise, in words, and the plain call beside it."""

    text: str
    plain: ast.Call


class _Run(NamedTuple):
    """A call that runs a block: the block's text and value, and what a loop around the call goes through."""

    node: ast.Call
    text: str
    block: Value
    passed: ast.expr | None


def other_blocks(run: History) -> Iterator[tuple[Checkpoint, OtherBlocks]]:
    """The checkpoints in branches that run other blocks than the plain branches beside them."""
    events = {it.node: it for it in run.of(Checkpoint)}
    parents: dict[ast.AST, Mapping[ast.AST, ast.AST]] = {}
    for event in events.values():
        body = body_around(run, event.call)
        if body not in parents:
            parents[body] = parents_in(body)
        found = _Branches(run, events, parents[body]).compare(event)
        if found is not None:
            yield event, found


class _Branches(NamedTuple):
    """The branches of one function, and what is around each of its nodes."""

    run: History
    events: Mapping[ast.Call, Checkpoint]
    parents: Mapping[ast.AST, ast.AST]

    def compare(self, event: Checkpoint) -> OtherBlocks | None:
        """How the branch of ``event`` differs from the other side of its condition."""
        sides = self._sides(event.node)
        if sides is None or not event.node.args or not sides[1] or max(map(len, sides)) > _STATEMENTS:
            return None
        # A branch that the program never takes is written all the same.
        untaken = (it.call for it in self.run.untaken_beside(event.call))
        beside = [event.call, *islice(self.run.calls_beside(event.call), _NEAREST), *islice(untaken, _NEAREST)]
        # In its own branch what excludes it, `block(x) if first else checkpoint(block, x)`, runs in its place.
        own = [call for call in beside if call is event.call or not call.place.excludes(event.place)]
        mine, plain = self._runs(own, sides[0]), self._runs(beside, sides[1])
        if not plain or any(it.node in self.events for it in plain) or not all(map(_is_module, (*mine, *plain))):
            return None
        at = next((number for number, it in enumerate(mine) if it.node is event.node), None)
        return (
            None if at is None else _swapped(mine, plain, at) or _part_of_list(mine, plain) or _again(mine, plain, at)
        )

    def _sides(self, node: ast.AST | None) -> tuple[list[ast.stmt], list[ast.stmt]] | None:
        """The statements of the innermost condition around ``node``, those of its own side first."""
        while node is not None:
            around = self.parents.get(node)
            if isinstance(around, ast.If) and node is not around.test:
                mine, other = (around.body, around.orelse) if node in around.body else (around.orelse, around.body)
                ends = bool(mine) and isinstance(mine[-1], ast.Return | ast.Continue)
                return mine, (other or (self._behind(around) if ends else []))
            node = around
        return None

    def _behind(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements that follow ``statement`` in its block."""
        for name in ("body", "orelse", "finalbody"):
            block = getattr(self.parents.get(statement), name, None)
            if isinstance(block, list) and statement in block:
                return block[block.index(statement) + 1 :]
        return []

    def _runs(self, calls: list[Call], side: list[ast.stmt]) -> list[_Run]:
        """The blocks that a branch runs, in the order of the text."""
        found: dict[ast.Call, _Run] = {}
        for call in sorted(calls, key=lambda it: start(it.node)):
            if not any(is_inside(call.node, statement) for statement in side):
                continue
            event = self.events.get(call.node)
            block = call.node.func if event is None else call.node.args[0] if call.node.args else None
            value = call.func if event is None else event.function
            if isinstance(block, ast.Name | ast.Attribute | ast.Subscript):
                passed = self._passed(call.node, block)
                if event is not None or passed or _may_be_block(value):
                    found.setdefault(call.node, _Run(call.node, source_text(block), value, passed))
        return [*found.values()]

    def _passed(self, node: ast.AST | None, block: ast.expr) -> ast.expr | None:
        """What the loop around ``node`` goes through whose variable ``block`` is."""
        while node is not None and isinstance(block, ast.Name):
            node = self.parents.get(node)
            if isinstance(node, ast.For) and block.id in names_in(node.target):
                return uncounted(node.iter)
        return None


def _may_be_block(value: Value) -> bool:
    return all(isinstance(it, Instance | Result | Element) for it in options(value))


def _is_module(it: _Run) -> bool:
    """Whether it is a module, or what a loop goes through: a method may run the other block itself."""
    return it.passed is not None or _may_be_block(it.block)


def _swapped(mine: list[_Run], plain: list[_Run], at: int) -> OtherBlocks | None:
    """The one block that differs among several, or a part of the block that the plain branch runs."""
    texts = [(here.text, there.text) for here, there in zip(mine, plain, strict=False)]
    different = [number for number, (here, there) in enumerate(texts) if here != there]
    if len(mine) != len(plain) or different != [at]:
        return None
    here, there = texts[at]
    if len(mine) < 2 and not here.startswith(f"{there}."):
        return None
    return OtherBlocks(f"runs `{here}` where the plain one runs `{there}`", plain[at].node)


def _again(mine: list[_Run], plain: list[_Run], at: int) -> OtherBlocks | None:
    """A block that the checkpointed branch runs once more."""
    here, there = Counter(it.text for it in mine), Counter(it.text for it in plain)
    more = here - there
    last = max(number for number, it in enumerate(mine) if it.text == mine[at].text)
    if there - here or list(more) != [mine[at].text] or mine[at].text not in there or at != last:
        return None
    twin = next(it for it in plain if it.text == mine[at].text)
    return OtherBlocks(f"runs `{mine[at].text}` once more than the plain one", twin.node)


def _part_of_list(mine: list[_Run], plain: list[_Run]) -> OtherBlocks | None:
    """A loop through a part of a list, or from its end, where the plain branch goes through all of it."""
    if len(mine) != 1 or len(plain) != 1:
        return None
    here, there = mine[0].passed, plain[0].passed
    if here is None or there is None or source_text(here) == source_text(there):
        return None
    if source_text(_whole(here)) != source_text(_whole(there)):
        return None
    return OtherBlocks(
        f"goes through `{source_text(here)}` where the plain one takes `{source_text(there)}`", plain[0].node
    )


def _whole(passed: ast.expr) -> ast.expr:
    """The list of `blocks[1:]` and of `reversed(blocks)`."""
    match passed:
        case ast.Subscript(value=held, slice=ast.Slice()):
            return held
        case ast.Call(func=ast.Name(id="reversed"), args=[held]):
            return held
    return passed
