"""How the checkpointed and the plain call of one block differ in what they compute."""

from __future__ import annotations

import ast
import copy
import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ...facts.identifiers import attributes_in, names_in
from ...facts.surroundings import holders
from ...facts.values import Attr, Element, Function, Unknown, same
from ..events import Checkpoint
from ..regions.call_targets import call_targets
from .arguments import Argument, effect_of_lack
from .branches import branches, effects
from .passed_on import passed_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...facts.values import Call, Place, Value
    from ..history import History

#: What a condition on the mode is written with.
_MODE = re.compile(r"training|is_grad_enabled|requires_grad|scripting|tracing|exporting")
#: What a checkpointed branch leaves out on purpose.
_MAY_DIFFER = re.compile(
    r"cache|past|state|output_|return_|use_|need_|kwargs|debug|verbose|inference|incremental"
    # The number of a layer, by which it looks up a cache.
    r"|^(i|idx|index|layer_(i|id|idx|index|num|number))$"
)


class Difference(NamedTuple):
    """How two calls differ, in words, and what must hold for it to matter."""

    text: str
    assumes: str | None = None


class Side(NamedTuple):
    """One of the two calls: what it calls in the end, and with what."""

    call: Call
    block: Value
    arguments: list[Argument]

    @property
    def place(self) -> Place:
        """Where it stands."""
        return self.call.place


def checkpointed_sides(event: Checkpoint, run: History) -> Iterator[Side]:
    """What a checkpoint calls: the function that it is given, and what that function calls when it only passes on."""
    given = written_arguments(event.call, 1)
    if given is None or event.call.via:
        return
    function = event.function
    if isinstance(function, Attr) and function.name in ("forward", "__call__"):
        function = function.base
    yield Side(event.call, function, given)
    passed = passed_on(function, given, run.calls_in(function)) if isinstance(function, Function) else None
    if passed is not None:
        yield Side(event.call, passed.block, passed.arguments)


def plain_side(mine: Side, run: History) -> Side | None:
    """The call of the same block where no checkpoint is made, the nearest one."""
    for call in run.calls_beside(mine.call):
        if _is_one_block(call.func, mine.block) and mine.place.excludes(call.place):
            given = None if call.via else written_arguments(call, 0)
            return None if given is None else Side(call, call.func, given)
    return None


def _is_one_block(left: Value, right: Value) -> bool:
    """Whether both are one block: the same expression, or each the variable of a loop over the same blocks."""
    if isinstance(left, Unknown):
        return False
    if isinstance(left, Element) and isinstance(right, Element) and left.index is None and right.index is None:
        return same(left, right) or _is_one_block(left.of, right.of)
    return same(left, right)


def written_arguments(call: Call, first: int) -> list[Argument] | None:
    """The arguments of the block as they are written, from ``first`` on; None when some are not known."""
    if call.open_args or call.open_kwargs or any(isinstance(part, ast.Starred) for part in call.node.args):
        return None
    values = zip(call.node.args[first:], call.args[first:], strict=True)
    found = [Argument(part, value, position, None) for position, (part, value) in enumerate(values)]
    written = {word.arg: word.value for word in call.node.keywords}
    for name, value in call.kwargs.items():
        if not first or name not in Checkpoint.OWN:
            # What `**kwargs` gives stands nowhere in the call; its key says what it is.
            found.append(Argument(written.get(name) or ast.Name(name, ast.Load()), value, None, name))
    return found


def difference(mine: Side, plain: Side) -> Difference | None:
    """How the calls differ in what they compute; None when they do not or cannot be compared."""
    given, wanted = mine.arguments, plain.arguments
    found = _packed(given, wanted) or _exchanged(mine.block, given, wanted) or _lacking(mine, plain)
    return found or (_of_branches(mine, plain) if _texts(given) == _texts(wanted) else None)


def _texts(arguments: list[Argument]) -> list[str]:
    return sorted(ast.unparse(argument.node) for argument in arguments)


def _packed(given: list[Argument], wanted: list[Argument]) -> Difference | None:
    """A tuple (or a list) in one call that holds what the other passes by itself."""
    for here, there in ((given, wanted), (wanted, given)):
        apart = set(_texts(there))
        for argument in here:
            if isinstance(argument.node, ast.Tuple | ast.List) and ast.unparse(argument.node) not in apart:
                parts = {ast.unparse(part) for part in argument.node.elts}
                if parts and parts <= apart:
                    return Difference("one passes a tuple, the other its parts")
    if len(given) == 1 and len(wanted) > 1 and isinstance(given[0].node, ast.Tuple):
        packed = _read_in(given[0].node) >= _read_in(wanted[0].node)
        return Difference("one passes a tuple, the other its parts") if packed else None
    return None


def _exchanged(block: Value, given: list[Argument], wanted: list[Argument]) -> Difference | None:
    """What one call passes to one parameter and the other to another one."""
    if _texts(given) != _texts(wanted) or len(set(_texts(given))) < len(given):
        return None
    to = dict(_destinations(block, given)), dict(_destinations(block, wanted))
    moved = [text for text in to[0] if text in to[1] and to[0][text] != to[1][text]]
    if not moved:
        return None
    quoted = " and ".join(f"`{text}`" for text in moved)
    return Difference(f"{quoted} {'go' if len(moved) > 1 else 'goes'} to another parameter")


def _destinations(block: Value, arguments: list[Argument]) -> Iterator[tuple[str, object]]:
    """Each argument as it is written, with the parameter (or the position) it goes to."""
    bodies = list(call_targets(block))
    for argument in arguments:
        text = ast.unparse(argument.node)
        filled = {argument.parameter(part) for part in bodies}
        if len(filled) == 1 and None not in filled:
            yield text, filled.pop()
        elif not bodies and all(other.position is not None for other in arguments):
            yield text, argument.position


def _lacking(mine: Side, plain: Side) -> Difference | None:
    """What one call passes and the other does not."""
    lacking, having = sorted((mine, plain), key=lambda side: len(side.arguments))
    few, many = lacking.arguments, having.arguments
    known = set().union(*(_read_in(argument.node) for argument in few)) if few else set()
    replaced = _replaced(few, many)
    missing = [
        argument
        for argument in many
        if _counts(argument.node) and argument.position not in replaced and not _read_in(argument.node) & known
    ]
    if not missing or len(few) == len(many) or len(missing) > len(many) - len(few):
        return None
    return _of_effect(missing, lacking, "checkpointed" if lacking is mine else "plain")


def _replaced(few: list[Argument], many: list[Argument]) -> set[int]:
    """The positions where one call passes something that the other passes nowhere: it is there instead."""
    apart = set(_texts(many))
    return {part.position for part in few if part.position is not None and ast.unparse(part.node) not in apart}


def _of_effect(missing: list[Argument], lacking: Side, side: str) -> Difference | None:
    """What of ``missing`` changes the result; under a condition when all of that may be None."""
    found = {part: effect_of_lack(part, lacking.block, lacking.arguments, lacking.place) for part in missing}
    certain = [argument for argument, effect in found.items() if effect]
    possible = [argument for argument, effect in found.items() if effect is None]
    if not certain and not possible:
        return None
    quoted = [f"`{ast.unparse(argument.node)}`" for argument in certain or possible]
    assumes = None if certain else f"{' or '.join(quoted)} is given"
    return Difference(f"the {side} one lacks {', '.join(quoted)}", assumes)


def _of_branches(mine: Side, plain: Side) -> Difference | None:
    """What the branches around two equal calls make of the results."""
    choice = _choice_between(mine.call, plain.call)
    if choice is None:
        return None
    # Both calls give the same, so one stands for the other.
    instead = {id(mine.call.node): copy.deepcopy(plain.call.node)}
    here, there = effects([copy.deepcopy(part, dict(instead)) for part in choice.checkpointed]), effects(choice.plain)
    by_mode = _may_return_by_mode(mine.block, choice.test)
    for place in here.keys() & there.keys():
        found = None if by_mode else _of_results(here[place], there[place])
        found = found or _of_blocks(here[place], there[place])
        if found is not None:
            return found
    return None


class _Choice(NamedTuple):
    """A condition between the two calls, and its branches."""

    test: ast.expr
    checkpointed: Sequence[ast.stmt]
    plain: Sequence[ast.stmt]


def _choice_between(checkpointed: Call, plain: Call) -> _Choice | None:
    """The condition where the ways to the two calls part."""
    function = checkpointed.place.function.node if checkpointed.place.function is not None else None
    if function is None:
        return None
    mine, others = ([*reversed(holders(call.node, function)), call.node] for call in (checkpointed, plain))
    apart = next((at for at, (here, there) in enumerate(zip(mine, others, strict=False)) if here is not there), 0)
    # The last one that is around both; or the statement of one of them, when it leaves the function.
    for node in (*mine[:apart][-1:], mine[apart], others[apart]):
        if isinstance(node, ast.If):
            body, other = branches(node, function)
            if _is_in(body, mine) and _is_in(other, others):
                return _in_loops(_Choice(node.test, body, other), mine, others)
            if _is_in(body, others) and _is_in(other, mine):
                return _in_loops(_Choice(node.test, other, body), mine, others)
    return None


def _in_loops(choice: _Choice, mine: list[ast.AST], others: list[ast.AST]) -> _Choice:
    """The choice between the bodies of two loops over the same, where each branch is such a loop."""
    checkpointed = _past_versions(choice.checkpointed, mine)
    here, there = _statement_on(checkpointed, mine), _statement_on(choice.plain, others)
    match here, there:
        case ast.For(), ast.For() if _heads(here) == _heads(there):
            return _Choice(choice.test, _past_versions(here.body, mine), there.body)
    return _Choice(choice.test, checkpointed, choice.plain)


def _heads(loop: ast.For) -> tuple[str, str]:
    return ast.dump(loop.target), ast.dump(loop.iter)


def _past_versions(body: Sequence[ast.stmt], way: list[ast.AST]) -> Sequence[ast.stmt]:
    """The statements on the ``way`` to a call, inside the branches for versions of a library."""
    statement = _statement_on(body, way)
    while isinstance(statement, ast.If) and "version" in ast.unparse(statement.test):
        body = statement.body if _is_in(statement.body, way) else statement.orelse
        statement = _statement_on(body, way)
    return body


def _statement_on(body: Sequence[ast.stmt], way: list[ast.AST]) -> ast.stmt | None:
    return next((statement for statement in body if statement in way), None)


def _may_return_by_mode(block: Value, test: ast.expr) -> bool:
    """Whether the block may return something else in training than in evaluation, which takes the plain branch."""
    bodies: list[ast.AST] = [part.function.node for part in call_targets(block)]
    if bodies:
        return any("training" in ast.unparse(node) for node in bodies)
    # Where a switch of its own is asked too, training takes the plain branch when that is off.
    asked = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    return all(_MODE.search(ast.unparse(part)) for part in asked)


def _is_in(body: Sequence[ast.stmt], way: list[ast.AST]) -> bool:
    """Whether the ``way`` down to a node leads through one of the statements of ``body``."""
    return any(node in body for node in way if isinstance(node, ast.stmt))


def _of_results(mine: ast.expr, other: ast.expr) -> Difference | None:
    """One branch takes the whole result, the other an element of it."""
    for whole, part, side in ((mine, other, "checkpointed"), (other, mine, "plain")):
        match part:
            case ast.Subscript(value=ast.Call() as call, slice=ast.Constant(value=int())) if _equal(call, whole):
                return Difference(f"the {side} one keeps the whole result, the other an element of it")
            case ast.Tuple(elts=[ast.Call() as call]) if _equal(call, whole):
                return Difference(f"the {side} one gives the result itself, the other a tuple with it")
    return None


def _of_blocks(mine: ast.expr, other: ast.expr) -> Difference | None:
    """The checkpointed branch runs a block again where the plain one runs another block."""
    here, there = _chain(mine), _chain(other)
    if len(here) != len(there) or len(set(there)) < len(there):
        return None
    again = [block for before, block in pairwise(here) if before == block]
    missed = [block for block in there if block not in here]
    if not again or not missed or not set(here) < set(there):
        return None
    return Difference(f"the checkpointed one runs `{again[0]}` twice and `{missed[0]}` never")


def _chain(value: ast.expr) -> list[str]:
    """The functions that `c(b(a(x)))` calls, the outermost first."""
    found = []
    while isinstance(value, ast.Call) and value.args:
        found.append(ast.unparse(value.func))
        value = value.args[0]
    return found


def _equal(left: ast.expr, right: ast.expr) -> bool:
    return ast.dump(left) == ast.dump(right)


def _counts(argument: ast.expr) -> bool:
    """Whether leaving ``argument`` out changes the result: constants and caches may be left out."""
    names = _read_in(argument)
    return bool(names) and not any(_MAY_DIFFER.search(name) for name in names)


def _read_in(node: ast.expr) -> frozenset[str]:
    """The names and attributes that an expression reads."""
    return names_in(node) - {"self"} | attributes_in(node)
