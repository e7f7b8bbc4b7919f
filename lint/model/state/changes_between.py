"""What changes a model between a forward pass and its backward pass, and is not taken back before that."""

from __future__ import annotations

import ast
from itertools import islice
from typing import TYPE_CHECKING

from ...facts.identifiers import names_in
from ...facts.nodes import is_inside
from ...facts.values import (
    Absent,
    Computed,
    Const,
    Dict,
    Instance,
    Result,
    Seq,
    Value,
    equals,
    one,
    options,
    same,
)
from ..events import BlockWrapping, Checkpoint
from ..flow.frames import call_beside, follows, iteration_of
from ..libraries.enabled import checkpoints_in
from ..names import canonical
from ..types import class_names, unwrapped
from .randomness import adapter_dropout, config_dropout, torch_draws
from .updates import computes_with

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Loop
    from ...facts.walk import Write
    from ..regions.region import Region
    from ..run import Run

#: Methods that change which weights a forward pass uses, and those that take it back.
_PAIRS = (
    ("disable_adapters", "enable_adapters"),
    ("disable_adapter_layers", "enable_adapter_layers"),
)


#: What gives the parameters that it gets.
_JOINING = frozenset(("builtins.list", "builtins.tuple", "itertools.chain"))


def changes_between(run: Run, model: Value, forward: Call, backward: Call) -> Iterator[Call]:
    """The calls that leave ``model`` in another state than ``forward`` found it in, when ``backward`` runs it again."""
    for change in _changes(run, model, forward, backward):
        if not _is_undone_on_exit(run, change, backward):
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
    regions = _regions_of(run, model) if writes else []
    for write in writes:
        owners = {option.cls for option in options(write.obj) if isinstance(option, Instance)}
        is_only = len(owners) == 1 and _is_built_once(run, model) and not any(run.calls_to("copy.deepcopy"))
        is_single = len({(other.node, other.place.stack) for other in writes if other.field == write.field}) == 1
        if is_only and is_single and _changes_each_step(write, backward):
            owner = owners.pop()
            held = [region for region in regions if any(getattr(it, "cls", None) is owner for it in region.modules)]
            if any(computes_with(region, owner, write.field) for region in held):
                beside = call_beside(run, write, forward)
                yield write.node if beside is None else beside.node


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


def _changes_each_step(write: Write, backward: Call) -> bool:
    """Whether another value is written in each iteration of the loop that ``backward`` stands in."""
    loops = backward.place.loops
    if write.augmented or not loops:
        return write.augmented
    counted = {name for loop in loops if isinstance(loop, ast.For) for name in names_in(loop.target)}
    counted |= {
        name
        for loop in loops
        for node in ast.walk(loop)
        if isinstance(node, ast.AugAssign)
        for name in names_in(node.target)
    }
    value = write.value.node
    return value is not None and not counted.isdisjoint(names_in(value))


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
    for step in run.method_calls("step"):
        beside = iteration_of(step) == iteration_of(backward)
        between = step.order > forward.order or step.order < backward.order
        if beside and between and not _is_chosen(step, loop, kept) and _is_step_of(run, step, model):
            yield step


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
    for step in _between(run, forward, backward, "step"):
        if _is_step_of(run, step, model):
            yield step


def _is_step_of(run: Run, step: Call, model: Value) -> bool:
    """Whether ``step`` is one of an optimizer of ``model``, or of a scaler that is given one."""
    scaled = class_names(step.receiver) & {"torch.amp.GradScaler", "torch.cuda.amp.GradScaler"}
    optimizer = step.argument(0, "optimizer") if scaled else step.receiver
    return any(_optimizes(run, unwrapped(option), model) for option in options(optimizer))


def _optimizes(run: Run, optimizer: Value, model: Value) -> bool:
    """Whether ``optimizer`` is one of torch over all parameters of ``model``, with a learning rate that is not 0."""
    if not isinstance(optimizer, Result) or not optimizer.call.name.startswith("torch.optim."):
        return False
    is_whole = _holds_parameters(run, optimizer.call.argument(0, "params"), model)
    return is_whole and equals(optimizer.call.argument(1, "lr"), 0, 0.0) is not True


def _holds_parameters(run: Run, held: Value, model: Value) -> bool:
    """Whether ``held`` is all parameters of ``model``, or a list or a group with them, beside those of others."""
    match held:
        case Result(call) if call.method == "parameters":
            return _is(call.receiver, model)
        case Result(call) if canonical(call.name) in _JOINING:
            return any(_holds_parameters(run, part, model) for part in call.args)
        case Computed(operands=parts):
            return any(_holds_parameters(run, part, model) for part in parts)
        case Dict() as group:
            trains = equals(group.get("lr"), 0, 0.0) is not True
            return trains and _holds_parameters(run, group.get("params"), model)
        case Seq(items=items):
            return any(_holds_parameters(run, part, model) for part in (*items, *_spread(run, held)))
    return False


def _spread(run: Run, listed: Value) -> Iterator[Value]:
    """What the calls give that a display spreads: `a.parameters()` of `[*a.parameters(), *b.parameters()]`."""
    match listed.node:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            spread = (part.value for part in parts if isinstance(part, ast.Starred))
            calls = (call for part in spread if isinstance(part, ast.Call) for call in run.calls_at(part))
            yield from (Result(call) for call in calls)


def _adapters_left(run: Run, model: Value, forward: Call, backward: Call) -> Iterator[Call]:
    """The last ``set_adapter``, unless it sets what was set before the forward pass."""
    found = [call for call in _between(run, forward, backward, "set_adapter") if _is(call.receiver, model)]
    if not found:
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


def _gives_the_same(left: Call, right: Call) -> bool:
    named = [call.argument(0, "adapter_name") for call in (left, right)]
    if all(isinstance(name, Const) for name in named):
        return same(*named)  # A helper that gets the name writes all alike.
    arguments = [[*call.node.args, *(keyword.value for keyword in call.node.keywords)] for call in (left, right)]
    texts = [[ast.unparse(argument) for argument in given] for given in arguments]
    return texts[0] == texts[1]


def _weights_left(run: Run, model: Value, forward: Call, backward: Call) -> Iterator[Call]:
    """The ``load_state_dict`` that no second one takes back."""
    found = (call for call in _between(run, forward, backward, "load_state_dict") if _is(call.receiver, model))
    loads = [*islice(found, 2)]
    yield from loads if len(loads) == 1 else ()


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
    drawing = any(draw for region in _regions_of(run, model) for draw in torch_draws(run, region))
    return drawing or adapter_dropout(run, model) is not None or config_dropout(model) is not None


def _regions_of(run: Run, model: Value) -> list[Region]:
    """What a backward pass of ``model`` runs again."""
    regions = [run.region(event) for event in checkpoints_in(run, model)]
    regions += [run.region(event) for event in run.replayed(Checkpoint) if _is(event.function, model)]
    return regions + [run.region(event) for event in run.replayed(BlockWrapping) if _is(event.model, model)]
