"""The plain call that stands beside a checkpointed one of the same block, and what decides between the two."""

from __future__ import annotations

import ast
from copy import copy
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import is_inside
from ...facts.straight import only_call
from ...facts.values import Attr, Element, Function, Method, Param, Partial, Unknown, same
from ..events import Checkpoint, CheckpointSequential, LayerCheckpoint
from ..texts.written_texts import bound_once
from .arguments import Argument
from .parting import Parting, parting
from .passed_on import Passed, passed_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...facts.values import Call, Place, Value
    from ...facts.walk import Untaken
    from ..events import TorchCheckpoint
    from ..history import History

#: A function that calls one block very often is generated code; its twin stands near.
_NEAREST = 8


class Side(NamedTuple):
    """One of the two calls: what it calls in the end, and with what."""

    call: Call
    block: Value
    arguments: list[Argument]

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self.call.place


class Pair(NamedTuple):
    """A checkpointed and a plain call of one block, and what decides between them."""

    mine: Side
    plain: Side
    parting: Parting


def checkpointed_sides(event: TorchCheckpoint | LayerCheckpoint, run: History) -> Iterator[Side]:
    """What a checkpoint calls: the function that it is given, and what that function calls when it only passes on."""
    if isinstance(event, CheckpointSequential):
        written = event.node.args[2:3] or [word.value for word in event.node.keywords if word.arg == "input"]
        if not event.call.is_given_elsewhere(Checkpoint.OWN) and not event.call.open_args and written:
            yield Side(event.call, event.functions, [Argument(written[0], event.input, 0, None)])
    if not isinstance(event, Checkpoint | LayerCheckpoint):
        return
    given = _written_arguments(event.call, 1)
    if given is None or event.call.is_given_elsewhere(Checkpoint.OWN):
        return
    function = event.function
    if isinstance(function, Attr) and function.name in ("forward", "__call__"):
        function = function.base
    yield Side(event.call, function, given)
    if isinstance(function, Function):
        passed = passed_on(function, given, run.bodies.calls_in(function), event.place.function)
        if passed is not None:
            yield Side(event.call, passed.block, passed.arguments)
    if isinstance(function, Partial) and (bound := _bound_early(function)) is not None:
        count = sum(part.position is not None for part in bound)
        moved = [part if part.position is None else part._replace(position=part.position + count) for part in given]
        yield Side(event.call, function.func, [*bound, *moved])
    yield from _called_for(event, function, run)


def _bound_early(partial: Partial) -> list[Argument] | None:
    """What `functools.partial(block, mask=mask)` gives the block; None where that is not all written there."""
    written = _written_arguments(partial.call, 1)
    return None if written is None or partial.open_args or partial.open_kwargs else written


def _called_for(event: Checkpoint | LayerCheckpoint, block: Value, run: History) -> Iterator[Side]:
    """What the caller of a function that only makes the checkpoint calls: `self._checkpointed(x, mask)`."""
    helper, path = event.place.function, run.path_to(event.call)
    if helper is None or len(path) < 2 or only_call(helper.node) is not event.node:
        return
    passed = _passed_by(path[-2], helper, [event.call])
    if passed is not None and passed.arguments and passed.arguments[0].position == 0:
        first, *rest = passed.arguments
        moved = [part if part.position is None else part._replace(position=part.position - 1) for part in rest]
        # A parameter that is checkpointed stands for what this caller gives.
        block = first.value if isinstance(block, Param) else block
        yield Side(path[-2], block, [part for part in moved if part.name not in Checkpoint.OWN])


def _passed_by(call: Call, helper: Function, calls: Iterable[Call]) -> Passed | None:
    """What ``call`` of ``helper``, which makes ``calls``, passes on."""
    given = _written_arguments(call, 0)
    if given is None or call.is_given_elsewhere():
        return None
    match call.func, call.attribute:
        case Method(receiver, _), ast.Attribute(value=ast.Name("self")):
            return passed_on(helper, given, calls, call.place.function, receiver)
        case Function(), _:
            return passed_on(helper, given, calls, call.place.function)
    return None


def paired(mine: Side, run: History) -> Pair | None:
    """``mine`` with the call of the same block where no checkpoint is made: the nearest that a switch decides."""
    left_out = _with_left_out(mine, run)
    if left_out is not None or not mine.place.guards:  # nothing excludes it from another call
        return left_out
    by_mode = None
    near = [*islice(_plain_sides(mine, run), _NEAREST)]
    for side in [side for side in near if _are_branches(mine.place, side.place)] or near:
        parts = parting(mine.place, side.place)
        if parts is None:
            continue
        found = Pair(mine, side, parts)
        if not parts.by_mode:
            return found
        by_mode = by_mode or found
    return by_mode


def _with_left_out(mine: Side, run: History) -> Pair | None:
    """``mine`` with the plain call that a switch, as the program sets it, leaves out."""
    for untaken in run.untaken_beside(mine.call):
        given = _written_arguments(untaken.call, 0)
        if given is None or not _is_one_block(untaken.call.func, mine.block) or not _is_instead(mine.call, untaken):
            continue
        call = copy(mine.call)
        call.place = call.place._replace(guards=(*call.place.guards, untaken.instead))
        parts = parting(call.place, untaken.call.place)
        if parts is not None and not parts.by_mode:
            return Pair(mine._replace(call=call), Side(untaken.call, untaken.call.func, given), parts)
    return None


def _is_instead(call: Call, untaken: Untaken) -> bool:
    """Whether ``call`` is made on the other side, or behind a side that would have ended the function."""
    side = untaken.node.orelse if untaken.instead.taken else untaken.node.body
    ends = isinstance(side, list) and bool(side) and isinstance(side[-1], ast.Return | ast.Continue)
    return ends or is_inside(call.node, untaken.node)


def _are_branches(place: Place, other: Place) -> bool:
    """Whether these are the two branches of one condition, which belong together more than what is near."""
    return any(mine.test is its.test and mine.taken != its.taken for mine in place.guards for its in other.guards)


def _plain_sides(mine: Side, run: History) -> Iterator[Side]:
    """The plain calls of the block, the nearest first: by themselves, or as all that a function does."""
    looked_through = 0
    for call in run.calls_beside(mine.call):
        if _is_one_block(call.func, mine.block):
            given = None if call.is_given_elsewhere() else _written_arguments(call, 0)
            if given is not None:
                yield Side(call, call.func, given)
            continue
        helper = call.func.function if isinstance(call.func, Method) else call.func
        if looked_through < _NEAREST and isinstance(helper, Function) and only_call(helper.node) is not None:
            looked_through += 1
            passed = _passed_by(call, helper, run.bodies.calls_in(helper))
            if passed is not None and _is_one_block(passed.block, mine.block):
                yield Side(call, *passed)


def _is_one_block(left: Value, right: Value) -> bool:
    """Whether both are one block: the same expression, or each the variable of a loop over the same blocks."""
    if isinstance(left, Unknown):
        return False
    if isinstance(left, Element) and isinstance(right, Element) and left.index is None and right.index is None:
        return same(left, right) or _is_one_block(left.of, right.of)
    return same(left, right)


def _written_arguments(call: Call, first: int) -> list[Argument] | None:
    """The arguments of the block as they are written, from ``first`` on; None when some are not known."""
    nodes = _spread_out(call)
    if call.open_args or call.open_kwargs or any(isinstance(part, ast.Starred) for part in nodes):
        return None
    if len(call.args) != len(nodes):  # a partial gives some of them, elsewhere
        return None
    values = zip(nodes[first:], call.args[first:], strict=True)
    found = [Argument(part, value, position, None) for position, (part, value) in enumerate(values)]
    written = {word.arg: word.value for word in call.node.keywords}
    for name, value in call.kwargs.items():
        if not first or name not in Checkpoint.OWN:
            # What `**kwargs` gives stands nowhere in the call; its key says what it is.
            node = written.get(name)
            found.append(Argument(node or ast.Name(name, ast.Load()), value, None, name, spread=node is None))
    return found


def _spreads(items: list[ast.expr]) -> bool:
    return any(isinstance(item, ast.Starred) for item in items)


def _spread_out(call: Call) -> list[ast.expr]:
    """The positional arguments as they are written; for `*args` those of the one display that `args` is bound to."""
    function = call.place.function
    found: list[ast.expr] = []
    for part in call.node.args:
        held = part.value if isinstance(part, ast.Starred) else part
        if held is not part and isinstance(held, ast.Name) and function is not None:
            held = bound_once((function.node,), held.id) or held
        match held:
            case ast.Tuple(elts=items) | ast.List(elts=items) if held is not part and not _spreads(items):
                found += items
            case _:
                found.append(part)
    return found
