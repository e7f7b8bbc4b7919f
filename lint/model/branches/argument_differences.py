"""How a checkpointed and a plain call of one block differ: in what they pass, or in what is made of their results."""

from __future__ import annotations

import ast
import re
from collections import Counter
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in, words_in
from ...facts.nodes import all_nodes
from ...facts.objects.containers import is_none
from ...facts.parameters import positional_names
from ...facts.values import Const, Param, is_absent, may_be_none, options
from ..calls.call_targets import call_targets
from ..conditions.guards import own_loops
from ..conditions.loop_counters import counters
from ..tensors.tensor_values import is_filled, is_something, is_tensor
from .added_terms import added_by, adds_input
from .arguments import effect_of_lack, is_none_by_default
from .other_inputs import other_input
from .parting import sources
from .result_differences import Difference, difference_of_results, difference_of_tuples

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from ...facts.values import Function, Place, Value
    from ..history import History
    from .arguments import Argument
    from .paired_calls import Pair, Side

#: Through how many callers a mask is followed.
_HOPS = 4
#: What a checkpointed branch leaves out on purpose.
_MAY_DIFFER = re.compile(
    r"cache|past|state|output_|return_|use_|need_|kwargs|debug|verbose|inference|incremental", re.IGNORECASE
)


def difference(pair: Pair, run: History) -> Difference | None:
    """How the calls differ in what they compute; None when they do not or cannot be compared."""
    mine, plain, _ = pair = _without_defaults(pair)
    given, wanted = mine.arguments, plain.arguments
    found = _packed(given, wanted) or _exchanged(mine.block, given, wanted) or _lacking(pair)
    found = found or _emptied(pair) or _opposed(pair) or other_input(pair)
    if found is not None and found.assumes is None:
        return found
    if _texts(given) == _texts(wanted):
        return found or difference_of_results(pair, run)
    # What only one of the calls passes may be left out; that the other takes a tuple apart holds anyway.
    return difference_of_tuples(pair) or found


def _without_defaults(pair: Pair) -> Pair:
    """``pair`` without what one call alone spells out though the block takes it anyway: None for its default, None."""
    mine, plain, _ = pair
    here, there = ({place for place, _ in _destinations(side.block, side.arguments)} for side in (mine, plain))
    return pair._replace(
        mine=mine._replace(arguments=_but_defaults(mine, there)),
        plain=plain._replace(arguments=_but_defaults(plain, here)),
    )


def _but_defaults(side: Side, others: AbstractSet[object]) -> list[Argument]:
    bodies = list(call_targets(side.block))
    empty = [
        argument
        for place, argument in _destinations(side.block, side.arguments)
        if isinstance(place, str) and place not in others and is_none(argument.value)
    ]
    default = [part for part in empty if all(is_none_by_default(part.parameter(body), body) for body in bodies)]
    return [argument for argument in side.arguments if argument not in default]


def is_mask_to_pass(run: History, argument: Argument, function: Function | None) -> bool:
    """Whether ``argument`` is a mask that ``function`` takes, by its name, and no call in the program leaves it out.

    Its default, None, is for calls that have nothing to hide: a function that takes a mask is called with one. What has
    another name is one where every call is shown to give something.
    """
    if function is None or not isinstance(argument.node, ast.Name):
        return False
    name = argument.node.id
    if _is_asked_or_bound(name, function):
        return False
    if name not in (*positional_names(function.node), *(part.arg for part in function.node.args.kwonlyargs)):
        return False
    given = list(_given_to(run, function, name))
    if not name.endswith("mask"):  # The name says nothing: what all calls give must be seen.
        return bool(given) and all(_is_shown(run, value, _HOPS) for value in given)
    return all(_gives_one(run, value, _HOPS) for value in given)


def _is_shown(run: History, given: Value, hops: int) -> bool:
    """Whether the program shows that ``given`` is not None, in every call of the function whose parameter it is."""
    if not isinstance(given, Param):
        return all(map(is_something, options(given)))
    outer = list(_given_to(run, given.function, given.name)) if hops > 0 else []
    return bool(outer) and all(_is_shown(run, value, hops - 1) for value in outer)


def _gives_one(run: History, given: Value, hops: int) -> bool:
    """Whether ``given`` is a mask: not None, and no parameter that some call of its function leaves out."""
    if isinstance(given.node, ast.Compare):
        return True  # `scores > 0`
    if is_absent(given) is not False or is_none(given) or hops < 0:
        return False
    if not isinstance(given, Param) or given.default is None:
        return True
    return all(_gives_one(run, outer, hops - 1) for outer in _given_to(run, given.function, given.name))


def _given_to(run: History, function: Function, name: str) -> Iterator[Value]:
    """What each call of ``function`` gives for its parameter ``name``."""
    names = positional_names(function.node)
    place = names.index(name) - (function.owner is not None) if name in names else len(names)
    calls = (*run.forwards.get(function.node, ()), *run.calls_of(function))
    return (call.argument(place, name) for call in calls)


def _is_asked_or_bound(name: str, function: Function) -> bool:
    """Whether ``function`` compares or tests the variable ``name``, or makes it something else."""
    for node in all_nodes(function.node):
        match node:
            case ast.Name(id=bound, ctx=ast.Store()) if bound == name:
                return True
            case ast.Assign(value=ast.Name(id=kept)) if kept == name:
                return True
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()) if name in names_in(node):
                return True
            case ast.If(test=test) | ast.IfExp(test=test) | ast.Assert(test=test) if name in names_in(test):
                return True
    return False


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
        packed = words_in(given[0].node) >= words_in(wanted[0].node)
        return Difference("one passes a tuple, the other its parts") if packed else None
    return None


def _exchanged(block: Value, given: list[Argument], wanted: list[Argument]) -> Difference | None:
    """What one call passes to one parameter and the other to another one.

    Where the parameters of the block are not known, positions are compared, of calls that pass the same alone.
    """
    alike = _texts(given) == _texts(wanted)
    here, there = (_places(block, arguments) for arguments in (given, wanted))
    moved = [text for text, place in here.items() if text in there and _differ(place, there[text], alike=alike)]
    if not moved:
        return None
    quoted = " and ".join(f"`{text}`" for text in moved)
    return Difference(f"{quoted} {'go' if len(moved) > 1 else 'goes'} to another parameter")


def _differ(here: object, there: object, *, alike: bool) -> bool:
    """Whether these are two parameters, of which one at least changes what is computed."""
    if not (isinstance(here, str) and isinstance(there, str)):
        return alike and here != there
    return here != there and not (_MAY_DIFFER.search(here) and _MAY_DIFFER.search(there))


def _places(block: Value, arguments: list[Argument]) -> dict[str, object]:
    """Where each argument goes, by how it is written; constants, and what the call passes twice, are left out."""
    written = Counter(_texts(arguments))
    known = _destinations(block, arguments)
    found = {ast.unparse(part.node): place for place, part in known if words_in(part.node) or _is_factor(part.node)}
    return {text: place for text, place in found.items() if written[text] == 1}


def _is_factor(node: ast.expr) -> bool:
    """Whether it is a number that the block computes with; a whole one may count something."""
    return isinstance(node, ast.Constant) and isinstance(node.value, float)


def _destinations(block: Value, arguments: list[Argument]) -> Iterator[tuple[object, Argument]]:
    """The arguments by the parameter, or where that is not known the position, that each goes to."""
    bodies = list(call_targets(block))
    for argument in arguments:
        names = {argument.parameter(part) for part in bodies}
        if len(names) == 1 and None not in names:
            yield names.pop(), argument
        elif not bodies and argument.position is not None:
            yield argument.position, argument


def _lacking(pair: Pair) -> Difference | None:
    """What one call passes and the other does not."""
    lacking, having = sorted((pair.mine, pair.plain), key=lambda side: len(side.arguments))
    few, many = lacking.arguments, having.arguments
    known = set().union(*(words_in(argument.node) for argument in few)) if few else set()
    replaced = _replaced(few, many)
    filled = _filled_by_spread(lacking, many)
    if filled is None:
        return None
    missing = [
        argument
        for argument in many
        if (_counts(argument.node, having.place) or _is_set(argument, pair, lacking))
        and argument.position not in replaced
        and argument not in filled
        and not words_in(argument.node) & known
    ]
    if not missing or len(few) == len(many) or len(missing) > len(many) - len(few) or _belongs(missing, pair, lacking):
        return None
    return _of_effect(missing, lacking, "checkpointed" if lacking is pair.mine else "plain")


def _filled_by_spread(lacking: Side, many: list[Argument]) -> list[Argument] | None:
    """Which of ``many`` the dict of a `**kwargs` gives as well, by their parameter; None when a key may be any of them.

    `block(x, **kwargs)` passes `e0` under the key "e": the name of the variable does not stand in the call.
    """
    spread = [argument for argument in lacking.arguments if argument.spread]
    if not spread:
        return []
    written = set().union(*(words_in(argument.node) for argument in many))
    keys = {argument.name for argument in spread}
    at = dict(_destinations(lacking.block, many))
    if keys - written - at.keys():
        return None
    return [at[key] for key in keys & at.keys()]


def _emptied(pair: Pair) -> Difference | None:
    """Where one call gives None, and the other something."""
    mine, plain, parts = pair
    here, there = (dict(_destinations(mine.block, side.arguments)) for side in (mine, plain))
    for place in here.keys() & there.keys() if not parts.by_mode else ():
        for nothing, given, side in ((here, there, "checkpointed"), (there, here, "plain")):
            argument, empty = given[place], nothing[place]
            lacking = mine if side == "checkpointed" else plain
            if not is_none(empty.value) or may_be_none(argument.value) or not _counts(argument.node, lacking.place):
                continue
            if isinstance(place, str) and (_MAY_DIFFER.search(place) or _asks_for_none(lacking.block, place)):
                continue
            if is_filled(argument.value):
                continue
            left = [part for part in lacking.arguments if part is not empty]
            effect = effect_of_lack(argument, lacking.block, left, lacking.place)
            if effect is not False and not _belongs([argument], pair, lacking):
                text = f"`{ast.unparse(argument.node)}`"
                is_something = is_tensor(argument.value) or isinstance(argument.value.node, ast.Compare)
                assumes = None if is_something else f"{text} is not None"
                # Every caller gives a parameter without a default, so the callers tell whether it is None.
                taken = isinstance(argument.value, Param) and argument.value.default is None
                optional = (argument,) if assumes and taken else ()
                return Difference(f"the {side} one gives None for {text}", assumes, optional=optional)
    return None


def _opposed(pair: Pair) -> Difference | None:
    """Where one call switches a term of the result on, and the other off."""
    here, there = (dict(_destinations(pair.mine.block, side.arguments)) for side in (pair.mine, pair.plain))
    for place in here.keys() & there.keys():
        match here[place].value, there[place].value:
            case Const(value=bool(mine)), Const(value=bool(plain)) if mine != plain and isinstance(place, str):
                if _switches_term(place, pair, pair.mine):
                    return Difference(f"the checkpointed one gives {mine} for `{place}`, the plain one {plain}")
    return None


def _switches_term(name: str, pair: Pair, side: Side) -> bool:
    """Whether the block adds something to its result by its parameter ``name``: its input, where the mode decides."""
    decides = adds_input if pair.parting.by_mode else added_by
    bodies = list(call_targets(side.block))
    return bool(bodies) and all(decides(name, part.function.node) for part in bodies)


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
    return Difference(f"the {side} one lacks {', '.join(quoted)}", assumes, optional=tuple(() if certain else possible))


def _counts(argument: ast.expr, place: Place) -> bool:
    """Whether leaving ``argument`` out changes the result: constants, caches, a layer's number may be left out."""
    if isinstance(argument, ast.Name) and any(argument.id in counters(loop) for loop in own_loops(place)):
        return False
    return bool(words_in(argument)) and not _MAY_DIFFER.search(ast.unparse(argument))


def _is_set(argument: Argument, pair: Pair, lacking: Side) -> bool:
    """Whether a number is another one than the known default of the parameter that it goes to.

    Switches, counts and words often choose between ways to compute the same (`fused=False`, `chunks=4`). A switch
    counts where the block adds something to its result by it, and in the mode for evaluation where that is its input.
    """
    given, bodies = argument.value, list(call_targets(lacking.block))
    names = {argument.parameter(part) for part in bodies}
    name = names.pop() if len(names) == 1 else None
    if name is None:
        return False
    if isinstance(given, Const) and isinstance(given.value, bool):
        is_set = _switches_term(name, pair, lacking)
        return is_set and effect_of_lack(argument, lacking.block, lacking.arguments, lacking.place) is True
    if pair.parting.by_mode or _MAY_DIFFER.search(name):
        return False
    if not (isinstance(given, Const) and isinstance(given.value, float)):
        return False
    return effect_of_lack(argument, lacking.block, lacking.arguments, lacking.place) is True
