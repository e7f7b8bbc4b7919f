"""Models that a script builds once and freezes as a whole before it trains: what they held then is frozen."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from ...facts.objects.classes import ancestors
from ...facts.objects.containers import container_kind
from ...facts.values import Class, Dict, Instance, Ref, Result, Seq, Value, options
from ..events import Backward, GradientSwitch
from ..flow.ordering import implies
from ..regions.module_tree import module_tree
from ..tensors.tensor_changes import LIBRARIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...facts.values import Call
    from ..history import History


def is_frozen_with_model(run: History, module: Result) -> bool:
    """Whether the one model of the script that holds ``module`` is frozen before all training."""
    return module.copied_by is None and module.call.node in _frozen_parts(run)


def is_built_frozen(run: History, module: Instance) -> bool:
    """Whether such a model holds ``module``, an object of the program, with all that this is made of."""
    built = parts_built(module) if module.copied_by is None else set()
    tree = module_tree(module) if built else None
    return tree is not None and tree.is_whole and built <= _frozen_parts(run)


@lru_cache(maxsize=1)
def _frozen_parts(run: History) -> frozenset[ast.AST]:
    """The calls that built what such models hold."""
    last: dict[Instance, GradientSwitch] = {}
    for switch in run.of(GradientSwitch):
        model = switch.module
        if isinstance(model, Instance) and _freezes_all(run, switch):
            last[model] = switch
    made, handed = _made(run), _handed_over(run)
    whole = (
        (model, switch)
        for model, switch in last.items()
        if _is_only_one(run, model, made) and handed.get(model, 0) < switch.order
    )
    return frozenset(node for model, switch in whole for node in _built_before(run, model, switch))


def _freezes_all(run: History, switch: GradientSwitch) -> bool:
    """Whether ``switch`` freezes, and every backward pass of the program comes behind it under its conditions."""
    place = switch.place
    if not switch.freezes or switch.is_partial:
        return False
    backwards = list(run.of(Backward))
    return bool(backwards) and all(
        it.place.walk == place.walk and it.order > switch.order and implies(it.place, place) for it in backwards
    )


def _is_only_one(run: History, model: Instance, made: dict[Class, list[Call]]) -> bool:
    """Whether the script builds one object of the class, and copies nothing."""
    script = run.program.script
    if script is None or model.cls.node not in script.built or model.copied_by is not None:
        return False
    built = made.get(model.cls, [])
    if len(built) != 1 or built[0] is not model.call or any(step.place.loops for step in run.path_to(built[0])):
        return False
    return not any(run.calls_to("copy.deepcopy", "copy.copy"))


def _made(run: History) -> dict[Class, list[Call]]:
    """The calls that build an object of each class of the program, or of one derived from it."""
    made: dict[Class, list[Call]] = {}
    for call in run.program.calls:
        if isinstance(call.func, Class):
            for cls in (call.func, *ancestors(call.func)):
                made.setdefault(cls, []).append(call)
    return made


def _handed_over(run: History) -> dict[Instance, int]:
    """By object, when a function that is not shown last gets it, which may switch gradients on."""
    last: dict[Instance, int] = {}
    for call in run.program.calls:
        for given in (*call.args, *call.kwargs.values()) if _is_foreign(call.func) else ():
            last.update((option, call.order) for option in options(given) if isinstance(option, Instance))
    return last


def _is_foreign(called: Value) -> bool:
    return isinstance(called, Ref) and called.name.partition(".")[0] not in LIBRARIES


def _built_before(run: History, model: Instance, switch: GradientSwitch) -> Iterator[ast.AST]:
    """The calls that built what ``model`` holds, each of them in its constructor alone, before ``switch``."""
    made = None if model.call is None else model.call.node
    for node in parts_built(model):
        calls = run.calls_at(node)
        if all(made in call.place.stack and call.order < switch.order for call in calls):
            yield node


def parts_built(model: Instance) -> set[ast.AST]:
    """The calls that built the modules in ``model``, those in containers and in modules of the program too."""
    found, seen, left = set[ast.AST](), set[int](), [*own_fields(model)]
    while left:
        value = left.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        match value:
            case Instance():
                left += own_fields(value)
            case Result(call) if container_kind(value):
                left += _listed((*call.args, *call.spread, *call.kwargs.values()))
            case Result(call):
                found.add(call.node)
            case _:
                several = options(value)
                left += several if several != (value,) else ()
    return found


def own_fields(module: Instance) -> Iterator[Value]:
    """What the attributes of an object of the program may hold."""
    for owner in (module.cls, *ancestors(module.cls)):
        yield from owner.fields.values()


def _listed(given: Iterable[Value]) -> Iterator[Value]:
    for value in given:
        match value:
            case Seq(items=items):
                yield from items
            case Dict(items=entries):
                yield from entries.values()
            case _:
                yield value
