"""What changes a model between a forward pass and its backward pass, and is not taken back before that."""

from __future__ import annotations

import ast
from itertools import islice
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in
from ...facts.nodes import is_inside
from ...facts.objects.classes import ancestors
from ...facts.parameters import positional_names
from ...facts.values import (
    Absent,
    Const,
    Element,
    Instance,
    Method,
    Result,
    Seq,
    Value,
    equals,
    one,
    options,
    same,
)
from ..flow.frames import call_beside, follows, iteration_of, stands_between
from ..types import unwrapped
from .cleared_gradients import finds_no_gradients
from .losses_in_turn import are_known, steps_before_later_losses
from .optimizers import changes_weights
from .put_back_later import may_be_put_back_later
from .randomness import adapter_dropout, config_dropout, torch_draws
from .run_again import regions_run_again, weights_run_again
from .updates import computes_with
from .weights_in_place import changes_by_hand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Class, Loop
    from ...facts.walk import Write
    from ..regions.region import Region
    from ..run import Run

#: Methods that change which weights a forward pass uses, and those that take it back.
_PAIRS = (
    ("disable_adapters", "enable_adapters"),
    ("disable_adapter_layers", "enable_adapter_layers"),
)


def changes_between(run: Run, model: Value, forward: Call, backward: Call) -> Iterator[Call]:
    """The calls that leave ``model`` in another state than ``forward`` found it in, when ``backward`` runs it again."""
    for change in _changes(run, model, forward, backward):
        is_taken_back = change.method != "step" and may_be_put_back_later(run, backward)
        if not is_taken_back and not _is_undone_on_exit(run, change, backward):
            yield change


def attributes_between(run: Run, model: Value, forward: Call, backward: Call) -> Iterator[ast.AST]:
    """What sets, in each step to another value, an attribute that the layers of ``model`` compute with.

    A second write to the same attribute before ``backward`` may take it back.

    Yields:
        The write, or the call beside ``forward`` that leads to it.
    """
    writes = [
        write
        for write in run.writes
        if forward.order < write.order < backward.order
        and not write.is_item
        and _is_between(run, write, forward, backward)
    ]
    if not writes or may_be_put_back_later(run, backward):
        return
    regions = regions_run_again(run, model)
    for write in writes:
        owners = _owners(write, model, regions)
        is_only = len(owners) == 1 and _is_built_once(run, model) and not any(run.calls_to("copy.deepcopy"))
        is_single = len({(other.node, other.place.stack) for other in writes if other.field == write.field}) == 1
        if is_only and is_single and _changes_each_step(run, write, backward):
            owner = owners.pop()
            held = [region for region in regions if _runs(region, owner)]
            if any(computes_with(region, owner, write.field) for region in held):
                beside = call_beside(run, write, forward)
                yield write.node if beside is None else beside.node


def _owners(write: Write, model: Value, regions: list[Region]) -> set[Class]:
    """The classes of the objects whose attribute is set; of `model.modules()`, those whose objects have it."""
    match write.obj:
        case Element(of=Result(call)) if call.method == "modules" and _is(call.receiver, model):
            return _having(write.field, model, regions)
        case Element(of=Element(of=Result(call)), index=1) if call.method == "named_modules":
            return _having(write.field, model, regions) if _is(call.receiver, model) else set()
    return {option.cls for option in options(write.obj) if isinstance(option, Instance)}


def _having(field: str, model: Value, regions: list[Region]) -> set[Class]:
    """The classes of ``model`` and of the modules in ``regions`` whose objects have the attribute ``field``."""
    modules = [model, *(module for region in regions for module in region.modules)]
    found = {module.cls for module in modules if isinstance(module, Instance)}
    return {cls for cls in found if any(field in it.fields for it in (cls, *ancestors(cls)))}


def _runs(region: Region, owner: Class) -> bool:
    """Whether ``region`` runs an object of ``owner``, or a method of it."""
    own = any(function.owner is owner for function in region.functions)
    return own or any(getattr(module, "cls", None) is owner for module in region.modules)


def _beside_layers(write: Write, forward: Call) -> Write:
    """``write`` as if it stood in the loops of ``forward`` alone: a loop over layers inside of them is left."""
    place, loops = write.place, forward.place.loops
    is_inside = place.stack == forward.place.stack and place.loops[: len(loops)] == loops
    return write._replace(place=place._replace(loops=loops)) if is_inside else write


def _is_between(run: Run, write: Write, forward: Call, backward: Call) -> bool:
    """Whether ``write`` comes after ``forward`` and before ``backward`` in one iteration."""
    moment = _beside_layers(write, forward)
    return follows(run, moment, forward) and follows(run, backward, moment)


def _is_built_once(run: Run, model: Value) -> bool:
    """Whether the program builds one object, at most, of the class of ``model``."""
    built = [call for call in run.program.calls if isinstance(model, Instance) and call.func is model.cls]
    return isinstance(model, Instance) and len(built) <= 1


def _changes_each_step(run: Run, write: Write, backward: Call) -> bool:
    """Whether another value is written in each iteration of the loop that ``backward`` stands in."""
    loops, value = backward.place.loops, write.value.node
    if write.augmented or not loops:
        return write.augmented
    return value is not None and (
        _moves(value, write.field) or not _names_behind(run, write, value).isdisjoint(_moving(loops))
    )


def _names_behind(run: Run, write: Write, value: ast.AST) -> set[str]:
    """The names in ``value``; for a parameter of the function that writes it, those in what its caller gives."""
    names, function = set(names_in(value)), write.place.function
    for caller in (run.callers_of(write.place) or [])[-1:]:
        if function is not None:
            given = caller.written_arguments(positional_names(function.node)[isinstance(caller.func, Method) :])
            names |= {behind for name in names & given.keys() for behind in names_in(given[name])}
    return names


def _moving(loops: tuple[Loop, ...]) -> set[str]:
    """The names that have another value in each iteration of ``loops``: their counters, and what moves on in them."""
    found = {name for loop in loops if isinstance(loop, ast.For) for name in names_in(loop.target)}
    for node in (node for loop in loops for node in ast.walk(loop)):
        match node:
            case ast.AugAssign(target=target):
                found |= names_in(target)
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _moves(value, name):
                found.add(name)
    return found


def _moves(value: ast.AST, name: str) -> bool:
    """Whether ``value`` computes with what the variable or the attribute ``name`` was: `max(0.1, tau * 0.99)`."""
    sides = (side for node in ast.walk(value) if isinstance(node, ast.BinOp) for side in (node.left, node.right))
    return any(name in (getattr(side, "id", ""), getattr(side, "attr", "")) for side in sides)


def steps_before_next_iteration(
    run: Run, model: Value, forward: Call, backward: Call, kept: frozenset[str]
) -> Iterator[Call]:
    """The steps of the optimizer of ``model`` between ``forward`` and ``backward``, which is of the next iteration.

    A condition in the loop leaves open which iterations make them, unless it asks for ``kept``, what is kept for
    ``backward``: `if pending is not None`.
    """
    loop, calls = backward.place.loops[-1], (forward, backward)
    if any(_is_chosen(call, loop, kept) for call in calls if call.place.stack == backward.place.stack):
        return
    again = weights_run_again(run, model)
    for step in run.method_calls("step"):
        beside = iteration_of(step) == iteration_of(backward)
        between = step.order > forward.order or step.order < backward.order
        if beside and between and not _is_chosen(step, loop, kept) and changes_weights(run, step, model, again):
            yield step


def steps_between_losses(run: Run, model: Value, forward: Call, backward: Call, loop: ast.For) -> Iterator[Call]:
    """The steps of the optimizer of ``model`` in a ``loop`` that takes several losses of ``forward`` in turn."""
    again = weights_run_again(run, model)
    for steps in steps_before_later_losses(run, run.losses, forward, backward, loop):
        found = [step for step in steps if changes_weights(run, step, model, again)]
        if found == [*steps] and are_known(steps):
            yield found[0]


def _is_chosen(call: Call, loop: Loop, kept: frozenset[str]) -> bool:
    """Whether a condition in ``loop`` decides over ``call``, other than one that asks for ``kept``."""
    inside = (guard for guard in call.place.guards if is_inside(guard.test, loop) and not guard.asserted)
    return any(not names_in(guard.test) <= kept for guard in inside)


def _is_undone_on_exit(run: Run, change: Call, backward: Call) -> bool:
    """Whether an `__enter__` makes the ``change`` whose `__exit__`, before ``backward``, may take it back unseen."""
    ends = (run.program.exits.get(call) for call in run.path_to(change))
    # Weights are given back in many ways, by `copy_` too.
    return any(
        end is not None and end.order < backward.order and (not end.is_whole or change.method == "load_state_dict")
        for end in ends
    )


def _changes(run: Run, model: Value, forward: Call, backward: Call) -> Iterator[Call]:
    yield from _steps(run, model, forward, backward)
    yield from _adapters_left(run, model, forward, backward)
    yield from _weights_left(run, model, forward, backward)
    yield from _mode_left(run, model, forward, backward)
    for change, back in _PAIRS:
        calls = [*_between(run, forward, backward, change, back)]
        yield from (call for call in calls[-1:] if call.method == change and _is(call.receiver, model))
    yield from _disabled_around(run, model, forward, backward)


def _between(run: Run, forward: Call, backward: Call, *methods: str) -> Iterator[Call]:
    """The calls of these methods, of whatever object, that come after ``forward`` and before ``backward``."""
    for call in run.method_calls_between(forward, backward, *methods):
        if follows(run, call, forward) and follows(run, backward, call):
            yield call


def _steps(run: Run, model: Value, forward: Call, backward: Call) -> Iterator[Call]:
    between = run.method_calls_between(forward, backward, "step")
    steps = [step for step in between if stands_between(run, step, forward, backward)]
    again = weights_run_again(run, model) if steps else {}
    found = (step for step in steps if changes_weights(run, step, model, again))
    yield from (step for step in found if not finds_no_gradients(run, step))


def _adapters_left(run: Run, model: Value, forward: Call, backward: Call) -> Iterator[Call]:
    """The last ``set_adapter``, unless it sets what was set before the forward pass."""
    found = [call for call in _between(run, forward, backward, "set_adapter") if _is(call.receiver, model)]
    if not found or not _names_known(found[-1]):
        return
    before = [
        call
        for call in run.method_calls("set_adapter")
        if call.order < forward.order and call.place.walk == forward.place.walk and _is(call.receiver, model)
    ]
    if (before and _gives_the_same(before[-1], found[-1])) or (not before and len(found) > 1):
        return  # The adapter of the forward pass is back; which one is active from the start is not known.
    if not before and _may_be_active_at_start(run, model, found[-1]):
        return
    yield next((call for call in found if _gives_the_same(call, found[-1])), found[-1])


def _may_be_active_at_start(run: Run, model: Value, call: Call) -> bool:
    """Whether the ``set_adapter`` may name the adapter that PEFT made active when it added the first one."""
    added = run.calls_to("peft.get_peft_model", "peft.PeftModel.from_pretrained")
    names = [made.argument(2, "adapter_name") for made in added if _is(made.argument(0, "model"), model)]
    first = [Const("default", None) if isinstance(name, Absent) else name for name in names]
    wanted = call.argument(0, "adapter_name")
    return any(_may_be_equal(wanted, name) for name in first or [Const("default", None)])


def _may_be_equal(left: Value, right: Value) -> bool:
    return not isinstance(right, Const) or equals(left, right.value) is not False


def _names_known(call: Call) -> bool:
    """Whether the program says which adapter is set: not one that was asked for before, `model.active_adapter`."""
    given = call.argument(0, "adapter_name")
    named = given.items if isinstance(given, Seq) and not given.open else [given]
    return all(isinstance(option, Const) for name in named for option in options(name))


def _gives_the_same(left: Call, right: Call) -> bool:
    named = [call.argument(0, "adapter_name") for call in (left, right)]
    if all(isinstance(name, Const) for name in named):
        return same(*named)  # A helper that gets the name writes all alike.
    arguments = [[*call.node.args, *(keyword.value for keyword in call.node.keywords)] for call in (left, right)]
    texts = [[ast.unparse(argument) for argument in given] for given in arguments]
    return texts[0] == texts[1]


def _weights_left(run: Run, model: Value, forward: Call, backward: Call) -> Iterator[Call]:
    """The ``load_state_dict`` that nothing takes back, a second one or a change of the weights by hand."""
    found = (call for call in _between(run, forward, backward, "load_state_dict") if _is(call.receiver, model))
    loads = [*islice(found, 2)]
    if len(loads) == 1 and all(it.moment is loads[0] for it in changes_by_hand(run, forward, backward)):
        yield from loads


def _mode_left(run: Run, model: Value, forward: Call, backward: Call) -> Iterator[Call]:
    """The ``eval()`` of a model with dropout that no ``train()`` takes back."""
    switches = [
        call
        for call in _between(run, forward, backward, "eval", "train")
        if _is(call.receiver, model) or (call.method == "train" and not _is_known(call.receiver))
    ]
    for last in switches[-1:]:
        if _is_switched_by_hand(run, model, last, backward):
            continue
        off = last.method == "eval" or equals(last.argument(0, "mode"), False) is True
        if off and _is(last.receiver, model) and _drops(run, model):
            yield last


def _is_switched_by_hand(run: Run, model: Value, switch: Call, backward: Call) -> bool:
    """Whether the program sets `training` of ``model``, or of modules that may be in it, behind ``switch``."""
    return any(
        write.field == "training"
        and switch.order < write.order < backward.order
        and write.place.walk == switch.place.walk
        and equals(write.value, False) is not True
        and (_is(write.obj, model) or not _is_known(write.obj))
        for write in run.writes
    )


def _is_known(value: Value) -> bool:
    return all(isinstance(unwrapped(option), Instance | Result) for option in options(value))


def _disabled_around(run: Run, model: Value, forward: Call, backward: Call) -> Iterator[Call]:
    """The ``with model.disable_adapter()`` that only the backward pass stands in."""
    for change in run.method_calls("disable_adapter"):
        inside = any(same(value, Result(change)) for value in backward.place.contexts)
        outside = not any(same(value, Result(change)) for value in forward.place.contexts)
        if inside and outside and _is(change.receiver, model):
            yield change


def _is(value: Value, model: Value) -> bool:
    return one(unwrapped(value), model)


def _drops(run: Run, model: Value) -> bool:
    drawing = any(draw for region in regions_run_again(run, model) for draw in torch_draws(run, region))
    return drawing or adapter_dropout(run, model) is not None or config_dropout(model) is not None
