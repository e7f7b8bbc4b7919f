"""How two branches differ in what they make of the results of equal calls."""

from __future__ import annotations

import ast
import copy
import re
from functools import lru_cache, partial
from itertools import chain, islice, pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ...facts.identifiers import is_own_attribute, names_in, own_attributes, words_in
from ...facts.nodes import all_nodes, returned_by, source_text, start
from ...facts.values import Choice, Instance, Result, options, same
from ..calls.call_targets import call_targets
from ..calls.own_forward import written_out
from ..conditions.guards import own_guards, own_loops
from ..conditions.loop_counters import counters
from ..names import canonical
from .branches import effects
from .chosen_branches import choice_between
from .goes_on import adds_input_to, goes_on_from, value_of
from .parting import asks_for_mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...facts.values import Function, FunctionNode, Place, Value
    from ..history import History
    from .arguments import Argument
    from .paired_calls import Pair

#: What asks for the kind of a value.
_KIND = re.compile(r"(^|\.)(isinstance|type|is_tensor)$")


class Difference(NamedTuple):
    """How two calls differ, in words, and what must hold for it to matter."""

    text: str
    assumes: str | None = None
    advice: str = "pass the same arguments in both"
    #: The arguments that must be something for it to matter.
    optional: tuple[Argument, ...] = ()


def difference_of_results(pair: Pair, run: History) -> Difference | None:
    """What the branches around two equal calls make of the results."""
    mine, plain, parts = pair
    choice = choice_between(mine.call, plain.call)
    if choice is None:
        return None
    # Both calls give the same, so one stands for the other.
    instead = {id(mine.call.node): copy.deepcopy(plain.call.node)}
    here, there = effects([copy.deepcopy(part, dict(instead)) for part in choice.checkpointed]), effects(choice.plain)
    by_mode = _may_return_by_mode(mine.block, choice.test)
    function = mine.place.function
    asked = _asked_for_kind(function.node) if function is not None else frozenset[str]()
    means_more = parts.by_mode or _chooses_layers(mine.place) or _is_asked_again(choice.test, function)
    for place in here.keys() & there.keys():
        found = None if by_mode or place in asked else _of_results(here[place], there[place])
        found = found or _of_blocks(here[place], there[place])
        if found is None and not parts.by_mode:
            found = _of_another_block(here[place], there[place], function)
        if found is None and not means_more and not any(key.startswith("<") for key in (*here, *there)):
            found = _of_more(here[place], there[place], pair, run)
        if found is None and parts.by_mode and not by_mode and _is_carried_on(place, pair):
            found = _of_input(here[place], there[place], pair, run)
        if found is not None:
            return found
    return None if means_more else _behind_loops(choice.behind, pair, run)


def _behind_loops(behind: tuple[Sequence[ast.stmt], Sequence[ast.stmt]], pair: Pair, run: History) -> Difference | None:
    """What one branch does to a variable behind its loop over the blocks, and the other does not."""
    here, there = map(effects, behind)
    if any(not key.isidentifier() or key == "return" for key in (*here, *there)):
        return None
    for place in here.keys() ^ there.keys():
        before = ast.Name(place, ast.Load())
        found = _of_more(here.get(place, before), there.get(place, before), pair, run)
        if found is not None:
            return found
    return None


def difference_of_tuples(pair: Pair) -> Difference | None:
    """Which of two calls, equal or not, keeps the tuple that the block gives whatever it is called with."""
    function = pair.mine.place.function
    if function is None or not _gives_tuples(pair.mine.block):
        return None
    mine, plain = (_bound_to(side.call.node, function) for side in (pair.mine, pair.plain))
    for whole, parts, kept, other in ((mine, plain, "checkpointed", "plain"), (plain, mine, "plain", "checkpointed")):
        if not isinstance(whole, ast.Name) or not isinstance(parts, ast.Tuple):
            continue
        if whole.id in _asked_for_kind(function.node) or _is_taken_apart(whole.id, function):
            continue
        if whole.id in map(ast.unparse, parts.elts):
            text = f"the {kept} one keeps the whole result, the {other} one an element of it"
            return Difference(text, advice="take the result apart in both")
    return None


def _bound_to(node: ast.AST, function: Function) -> ast.expr | None:
    """What `target = call` binds."""
    for statement in all_nodes(function.node):
        if isinstance(statement, ast.Assign) and statement.value is node and len(statement.targets) == 1:
            return statement.targets[0]
    return None


def _is_taken_apart(name: str, function: Function) -> bool:
    """Whether ``function`` takes an element or several of the variable ``name``."""
    for node in all_nodes(function.node):
        match node:
            case ast.Subscript(value=ast.Name(id=of)) | ast.Starred(value=ast.Name(id=of)) if of == name:
                return True
            case ast.Assign(targets=[ast.Tuple()], value=ast.Name(id=of)) if of == name:
                return True
    return False


def _gives_tuples(block: Value) -> bool:
    """Whether every body that ``block`` may run ends in `return a, b`, each time with as many parts."""
    returned = [returned_by(body.node) for option in options(block) for body in _bodies(option)]
    sizes = {len(value.elts) if isinstance(value, ast.Tuple) else 0 for values in returned for value in values}
    return bool(returned) and all(returned) and len(sizes) == 1 and min(sizes) > 1


def _bodies(block: Value) -> list[Function]:
    """The functions that say what ``block`` gives, those that a `forward` leaves its work to among them."""
    made = block.cls if isinstance(block, Instance) else None
    found = (part.function for part in call_targets(block))
    return [written_out(function, made or function.owner) for function in found]


def _of_more(mine: ast.expr, other: ast.expr, pair: Pair, run: History) -> Difference | None:
    """One branch does more to the result than the other: `self.scale * block(x)` against `block(x)`."""
    function = pair.mine.place.function
    for more, less in ((mine, other), (other, mine)):
        if function is None or not pair.parting.asked.isdisjoint(words_in(more)):
            continue
        if goes_on_from(more, less, function, partial(_called_by, run, pair, function)):
            return _of_both(mine, other)
    return None


def _of_input(mine: ast.expr, other: ast.expr, pair: Pair, run: History) -> Difference | None:
    """One branch adds the input of the block to its result, which is no matter of the mode."""
    function = pair.mine.place.function
    if function is None or not pair.parting.asked.isdisjoint(words_in(mine) | words_in(other)):
        return None
    called = partial(_called_by, run, pair, function)
    is_added = any(adds_input_to(*sides, function, called) for sides in ((mine, other), (other, mine)))
    return _of_both(mine, other) if is_added else None


def _of_both(mine: ast.expr, other: ast.expr) -> Difference:
    given = [f"`{source_text(side)}`" for side in (mine, other)]
    text = f"the checkpointed one gives {given[0]}, the plain one {given[1]}"
    return Difference(text, advice="do the same in both")


def _is_carried_on(place: str, pair: Pair) -> bool:
    """Whether a loop over blocks gives what this one leaves in the variable ``place`` to the next one."""
    loops = [[*own_loops(side.place)] for side in (pair.mine, pair.plain)]
    first = [part.node for side in (pair.mine, pair.plain) for part in side.arguments if part.position == 0]
    takes_it = len(first) == 2 and all(isinstance(node, ast.Name) and node.id == place for node in first)
    return bool(loops[0]) and loops[0] == loops[1] and takes_it


def _called_by(run: History, pair: Pair, function: Function, node: ast.Call) -> Value:
    """What a call in one of the branches, or a copy of it, calls; one that is not known in the run, by the class."""
    at = start(node), ast.unparse(node.func)
    untaken = (it.call for it in run.untaken_beside(pair.plain.call))
    beside = chain(run.calls_beside(pair.plain.call), untaken)
    found = [call.func for call in beside if (start(call.node), ast.unparse(call.node.func)) == at]
    if not found:
        return value_of(node.func, function)
    return Choice(tuple(found)) if len(found) > 1 else found[0]


def _chooses_layers(place: Place) -> bool:
    """Whether a condition around ``place`` asks for the number of the layer: other layers may be other ones."""
    numbers = frozenset[str]().union(*(counters(loop) for loop in own_loops(place)))
    return any(not numbers.isdisjoint(names_in(guard.test)) for guard in own_guards(place))


def _is_asked_again(test: ast.expr, function: Function | None) -> bool:
    """Whether ``function`` asks for the same switch elsewhere: there it may do what one branch leaves out."""
    if function is None:
        return False
    tests = _tests_by_subject(function.node)
    return len({its for subject in _subjects(test) for its in islice(tests.get(subject, ()), 2)}) > 1


def _subjects(test: ast.expr) -> frozenset[str]:
    """The variables and the attributes of the object that ``test`` asks for."""
    return names_in(test) - {"self"} | own_attributes(test, ast.Load)


@lru_cache(maxsize=8)
def _tests_by_subject(function: FunctionNode) -> Mapping[str, list[ast.expr]]:
    """The conditions in ``function`` by what they ask for."""
    found: dict[str, list[ast.expr]] = {}
    for test in (node.test for node in all_nodes(function) if isinstance(node, ast.If | ast.IfExp)):
        for subject in _subjects(test):
            found.setdefault(subject, []).append(test)
    return MappingProxyType(found)


@lru_cache(maxsize=8)
def _asked_for_kind(function: FunctionNode) -> frozenset[str]:
    """The variables of which ``function`` asks what they are, `isinstance(x, tuple)`: either result is met."""
    return frozenset(
        ast.unparse(call.args[0])
        for call in all_nodes(function)
        if isinstance(call, ast.Call) and call.args and _KIND.search(ast.unparse(call.func))
    )


def _may_return_by_mode(block: Value, test: ast.expr) -> bool:
    """Whether the block may return something else in training than in evaluation, which takes the plain branch."""
    bodies = [body.node for option in options(block) for body in _bodies(option)]
    if bodies:
        return any("training" in ast.unparse(node) for node in bodies)
    if all(isinstance(it, Result) and canonical(it.call.name).startswith("torch.nn.") for it in options(block)):
        return False
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
