"""How the checkpointed and the plain call of one block differ in what they compute."""

from __future__ import annotations

import ast
import copy
import re
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple

from ...facts.identifiers import attributes_in, is_own_attribute, names_in, own_attributes
from ...facts.nodes import all_nodes, source_text
from ...facts.objects.containers import is_none
from ...facts.values import Attr, Const, Element, Function, Method, Param, Result, Unknown, may_be_none, same
from ..events import Checkpoint
from ..regions.call_targets import call_targets
from .arguments import Argument, effect_of_lack
from .branches import effects
from .chosen_branches import choice_between
from .goes_on import goes_on_from, value_of
from .guards import own_guards, own_loops
from .loop_counters import counters
from .parting import Parting, asks_for_mode, parting, sources
from .passed_on import Passed, only_call, passed_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...facts.values import Call, Place, Value
    from ..history import History

#: What a checkpointed branch leaves out on purpose.
_MAY_DIFFER = re.compile(r"cache|past|state|output_|return_|use_|need_|kwargs|debug|verbose|inference|incremental")
#: What asks for the kind of a value.
_KIND = re.compile(r"(^|\.)(isinstance|type|is_tensor)$")


class Difference(NamedTuple):
    """How two calls differ, in words, and what must hold for it to matter."""

    text: str
    assumes: str | None = None
    advice: str = "pass the same arguments in both"


#: What makes tensors of one number.
_FILLED = frozenset(f"torch.{name}{like}" for name in ("zeros", "ones", "full", "empty") for like in ("", "_like"))
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


def checkpointed_sides(event: Checkpoint, run: History) -> Iterator[Side]:
    """What a checkpoint calls: the function that it is given, and what that function calls when it only passes on."""
    given = _written_arguments(event.call, 1)
    if given is None or event.call.via:
        return
    function = event.function
    if isinstance(function, Attr) and function.name in ("forward", "__call__"):
        function = function.base
    yield Side(event.call, function, given)
    if isinstance(function, Function):
        passed = passed_on(function, given, run.bodies.calls_in(function), event.place.function)
        if passed is not None:
            yield Side(event.call, passed.block, passed.arguments)
    yield from _called_for(event, function, run)


def _called_for(event: Checkpoint, block: Value, run: History) -> Iterator[Side]:
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
    if given is None or call.via:
        return None
    match call.func, call.attribute:
        case Method(receiver, _), ast.Attribute(value=ast.Name("self")):
            return passed_on(helper, given, calls, call.place.function, receiver)
        case Function(), _:
            return passed_on(helper, given, calls, call.place.function)
    return None


def paired(mine: Side, run: History) -> Pair | None:
    """``mine`` with the call of the same block where no checkpoint is made: the nearest that a switch decides."""
    by_mode = None
    for side in islice(_plain_sides(mine, run), _NEAREST):
        parts = parting(mine.place, side.place)
        if parts is None:
            continue
        found = Pair(mine, side, parts)
        if not parts.by_mode:
            return found
        by_mode = by_mode or found
    return by_mode


def _plain_sides(mine: Side, run: History) -> Iterator[Side]:
    """The plain calls of the block, the nearest first: by themselves, or as all that a function does."""
    looked_through = 0
    for call in run.calls_beside(mine.call):
        if _is_one_block(call.func, mine.block):
            given = None if call.via else _written_arguments(call, 0)
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
    if call.open_args or call.open_kwargs or any(isinstance(part, ast.Starred) for part in call.node.args):
        return None
    if len(call.args) != len(call.node.args):  # a partial gives some of them, elsewhere
        return None
    values = zip(call.node.args[first:], call.args[first:], strict=True)
    found = [Argument(part, value, position, None) for position, (part, value) in enumerate(values)]
    written = {word.arg: word.value for word in call.node.keywords}
    for name, value in call.kwargs.items():
        if not first or name not in Checkpoint.OWN:
            # What `**kwargs` gives stands nowhere in the call; its key says what it is.
            found.append(Argument(written.get(name) or ast.Name(name, ast.Load()), value, None, name))
    return found


def difference(pair: Pair) -> Difference | None:
    """How the calls differ in what they compute; None when they do not or cannot be compared."""
    mine, plain, _ = pair
    given, wanted = mine.arguments, plain.arguments
    found = _packed(given, wanted) or _exchanged(mine.block, given, wanted) or _lacking(pair) or _emptied(pair)
    return found or (_of_branches(pair) if _texts(given) == _texts(wanted) else None)


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


def _lacking(pair: Pair) -> Difference | None:
    """What one call passes and the other does not."""
    lacking, having = sorted((pair.mine, pair.plain), key=lambda side: len(side.arguments))
    few, many = lacking.arguments, having.arguments
    known = set().union(*(_read_in(argument.node) for argument in few)) if few else set()
    replaced = _replaced(few, many)
    missing = [
        argument
        for argument in many
        if (_counts(argument.node, having.place) or _is_set(argument, pair, lacking))
        and argument.position not in replaced
        and not _read_in(argument.node) & known
    ]
    if not missing or len(few) == len(many) or len(missing) > len(many) - len(few) or _belongs(missing, pair, lacking):
        return None
    return _of_effect(missing, lacking, "checkpointed" if lacking is pair.mine else "plain")


def _emptied(pair: Pair) -> Difference | None:
    """Where one call gives None, and the other something."""
    mine, plain, parts = pair
    here, there = (dict(_filled(pair.mine.block, side.arguments)) for side in (mine, plain))
    for place in here.keys() & there.keys() if not parts.by_mode else ():
        for nothing, given, side in ((here, there, "checkpointed"), (there, here, "plain")):
            argument, empty = given[place], nothing[place]
            lacking = mine if side == "checkpointed" else plain
            if not is_none(empty.value) or may_be_none(argument.value) or not _counts(argument.node, lacking.place):
                continue
            if isinstance(place, str) and (_MAY_DIFFER.search(place) or _asks_for_none(lacking.block, place)):
                continue
            if _is_filled(argument.value):
                continue
            left = [part for part in lacking.arguments if part is not empty]
            effect = effect_of_lack(argument, lacking.block, left, lacking.place)
            if effect is not False and not _belongs([argument], pair, lacking):
                text = f"`{ast.unparse(argument.node)}`"
                assumes = None if _is_tensor(argument.value) else f"{text} is not None"
                return Difference(f"the {side} one gives None for {text}", assumes)
    return None


def _is_filled(value: Value) -> bool:
    """Whether it is a tensor of one number, which may well do nothing: `torch.zeros(8)`."""
    return isinstance(value, Result) and value.call.name in _FILLED


def _asks_for_none(block: Value, parameter: str) -> bool:
    """Whether the block computes with the answer to `mask is None`, other than to leave something out."""
    for part in call_targets(block):
        nodes = list(all_nodes(part.function.node))
        tests = [node.test for node in nodes if isinstance(node, ast.If | ast.IfExp | ast.Assert)]
        left_out = {inner for test in tests for inner in all_nodes(test)}
        for node in nodes:
            match node:
                case ast.Compare(left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot()]) if name == parameter:
                    if node not in left_out:
                        return True
    return False


def _is_tensor(value: Value) -> bool:
    """Whether ``value`` was certainly computed here by torch: `torch.ones(4, 4).tril()`."""
    match value:
        case Result(call) if call.method:
            return _is_tensor(call.receiver)
        case Result(call):
            return call.name.startswith("torch.") and call.name.count(".") == 1
    return False


def _filled(block: Value, arguments: list[Argument]) -> Iterator[tuple[object, Argument]]:
    """The arguments by the parameter, or where that is not known the position, that each goes to."""
    bodies = list(call_targets(block))
    for argument in arguments:
        names = {argument.parameter(part) for part in bodies}
        if len(names) == 1 and None not in names:
            yield names.pop(), argument
        elif not bodies and argument.position is not None:
            yield argument.position, argument


def _belongs(missing: list[Argument], pair: Pair, lacking: Side) -> bool:
    """Whether what is missing belongs to one of the ways: only training has it, or the data decides over it."""
    mine, plain, parts = pair
    if parts.by_mode and (lacking is plain or [*own_loops(mine.place)] != [*own_loops(plain.place)]):
        return True
    function = mine.place.function
    made_from = frozenset().union(*(sources(argument.node, function) for argument in missing))
    return not parts.asked.isdisjoint(made_from | names_in(plain.call.node.func))


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


def _of_branches(pair: Pair) -> Difference | None:
    """What the branches around two equal calls make of the results."""
    mine, plain, parts = pair
    choice = choice_between(mine.call, plain.call)
    if choice is None:
        return None
    # Both calls give the same, so one stands for the other.
    instead = {id(mine.call.node): copy.deepcopy(plain.call.node)}
    here, there = effects([copy.deepcopy(part, dict(instead)) for part in choice.checkpointed]), effects(choice.plain)
    by_mode = _may_return_by_mode(mine.block, choice.test)
    asked = _asked_for_kind(mine.place.function)
    means_more = parts.by_mode or _chooses_layers(mine.place) or _is_asked_again(choice.test, mine.place.function)
    for place in here.keys() & there.keys():
        found = None if by_mode or place in asked else _of_results(here[place], there[place])
        found = found or _of_blocks(here[place], there[place])
        if found is None and not parts.by_mode:
            found = _of_another_block(here[place], there[place], mine.place.function)
        if found is None and not means_more and not any(key.startswith("<") for key in (*here, *there)):
            found = _of_more(here[place], there[place], pair)
        if found is not None:
            return found
    return None


def _of_more(mine: ast.expr, other: ast.expr, pair: Pair) -> Difference | None:
    """One branch does more to the result than the other: `self.scale * block(x)` against `block(x)`."""
    function = pair.mine.place.function
    for more, less in ((mine, other), (other, mine)):
        if function is None or not pair.parting.asked.isdisjoint(_read_in(more)):
            continue
        if goes_on_from(more, less, function):
            given = [f"`{source_text(side)}`" for side in (mine, other)]
            text = f"the checkpointed one gives {given[0]}, the plain one {given[1]}"
            return Difference(text, advice="do the same in both")
    return None


def _chooses_layers(place: Place) -> bool:
    """Whether a condition around ``place`` asks for the number of the layer: other layers may be other ones."""
    numbers = frozenset[str]().union(*(counters(loop) for loop in own_loops(place)))
    return any(not numbers.isdisjoint(names_in(guard.test)) for guard in own_guards(place))


def _is_asked_again(test: ast.expr, function: Function | None) -> bool:
    """Whether ``function`` asks for the same switch elsewhere: there it may do what one branch leaves out."""
    if function is None:
        return False
    asked = names_in(test) - {"self"} | own_attributes(test, ast.Load)
    tests = (node.test for node in all_nodes(function.node) if isinstance(node, ast.If | ast.IfExp))
    same_switch = [
        its for its in tests if not asked.isdisjoint(names_in(its) - {"self"} | own_attributes(its, ast.Load))
    ]
    return len(same_switch) > 1


def _asked_for_kind(function: Function | None) -> frozenset[str]:
    """The variables of which ``function`` asks what they are, `isinstance(x, tuple)`: either result is met."""
    return frozenset(
        ast.unparse(call.args[0])
        for call in (all_nodes(function.node) if function is not None else ())
        if isinstance(call, ast.Call) and call.args and _KIND.search(ast.unparse(call.func))
    )


def _may_return_by_mode(block: Value, test: ast.expr) -> bool:
    """Whether the block may return something else in training than in evaluation, which takes the plain branch."""
    bodies: list[ast.AST] = [part.function.node for part in call_targets(block)]
    if bodies:
        return any("training" in ast.unparse(node) for node in bodies)
    # Where a switch of its own is asked too, training takes the plain branch when that is off.
    asked = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    return all(map(asks_for_mode, asked))


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


def _of_another_block(mine: ast.expr, other: ast.expr, function: Function | None) -> Difference | None:
    """Where all is the same but that the checkpointed branch runs a block again where the plain one runs another."""
    apart = _apart(mine, other)
    match apart:
        case [(ast.Attribute(value=ast.Name("self")) as again, ast.Attribute(value=ast.Name("self")) as missed)]:
            here, there = _called(mine), _called(other)
            if function is not None and same(value_of(again, function), value_of(missed, function)):
                return None
            if (
                there.count(again.attr) >= 1
                and here.count(again.attr) > there.count(again.attr)
                and (missed.attr not in here)
            ):
                return Difference(
                    f"the checkpointed one runs `{ast.unparse(again)}` again and `{ast.unparse(missed)}` never",
                    advice="run the same blocks in both",
                )
    return None


def _called(value: ast.expr) -> list[str]:
    """The attributes of the object that ``value`` calls."""
    calls = (part.func for part in all_nodes(value) if isinstance(part, ast.Call))
    return [func.attr for func in calls if isinstance(func, ast.Attribute) and is_own_attribute(func)]


def _apart(left: ast.AST, right: ast.AST) -> list[tuple[ast.AST, ast.AST]]:
    """The smallest parts in which two expressions differ."""
    if ast.dump(left) == ast.dump(right):
        return []
    if isinstance(left, ast.Attribute) or type(left) is not type(right):
        return [(left, right)]
    mine, others = list(ast.iter_child_nodes(left)), list(ast.iter_child_nodes(right))
    if not mine or len(mine) != len(others):
        return [(left, right)]
    return [pair for pair_of in zip(mine, others, strict=True) for pair in _apart(*pair_of)]


def _chain(value: ast.expr) -> list[str]:
    """The functions that `c(b(a(x)))` calls, the outermost first."""
    found = []
    while isinstance(value, ast.Call) and value.args:
        found.append(ast.unparse(value.func))
        value = value.args[0]
    return found


def _equal(left: ast.expr, right: ast.expr) -> bool:
    return ast.dump(left) == ast.dump(right)


def _counts(argument: ast.expr, place: Place) -> bool:
    """Whether leaving ``argument`` out changes the result: constants, caches, a layer's number may be left out."""
    if isinstance(argument, ast.Name) and any(argument.id in counters(loop) for loop in own_loops(place)):
        return False
    names = _read_in(argument)
    return bool(names) and not any(_MAY_DIFFER.search(name) for name in names)


def _is_set(argument: Argument, pair: Pair, lacking: Side) -> bool:
    """Whether a number is another one than the known default of the parameter that it goes to.

    Switches, counts and words often choose between ways to compute the same (`fused=False`, `chunks=4`).
    """
    given, bodies = argument.value, list(call_targets(lacking.block))
    names = {argument.parameter(part) for part in bodies}
    name = names.pop() if len(names) == 1 else None
    if pair.parting.by_mode or name is None or _MAY_DIFFER.search(name):
        return False
    if not (isinstance(given, Const) and isinstance(given.value, float)):
        return False
    return effect_of_lack(argument, lacking.block, lacking.arguments, lacking.place) is True


def _read_in(node: ast.expr) -> frozenset[str]:
    """The names and attributes that an expression reads."""
    return names_in(node) - {"self"} | attributes_in(node)
