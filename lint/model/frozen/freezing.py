"""Which modules are frozen: certainly, or for all that is shown."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from ...facts.objects.classes import ancestors
from ...facts.objects.containers import held_by
from ...facts.values import (
    Attr,
    Class,
    Computed,
    Const,
    Function,
    Instance,
    Method,
    Result,
    equals,
    is_absent,
    options,
    same,
)
from ..conditions.constructed import comes_out_as
from ..conditions.guards import own_guards
from ..names import canonical
from ..regions.module_tree import module_tree
from ..tensors.tensor_methods import NUMBERS
from ..tensors.tensor_values import is_operation, is_tensor
from ..texts.given_texts import meant_at
from ..texts.passing_names import is_named_in, name_passes_all, prefix_asked
from ..types import same_object
from .frozen_models import is_built_frozen, is_frozen_with_model, own_fields, parts_built
from .module_loops import loop_over_modules
from .named_switches import EMBEDDING, PARAMETER, WEIGHT_ONLY, comes_to, is_parameter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from ...facts.values import Call, Guard, Place, Value
    from ...facts.walk import Write
    from ..events import GradientSwitch
    from ..history import History
    from ..texts.given_texts import Meant

_PARAMETERS = ("weight", "bias")
#: Modules that have a bias besides their weight unless they are told otherwise.
_WITH_BIAS = frozenset(f"torch.nn.{kind}" for kind in ("Linear", "Conv1d", "Conv2d", "Conv3d", "LayerNorm"))
#: How functions are named that freeze a module, or do so by what they are told.
_FREEZES = re.compile(r"^_?(freeze|frozen|set_requires_grad|toggle_(requires_)?grad)")
#: How many containers in containers are looked into.
_DEPTH = 3
#: Methods that torch, Lightning or Python call.
_IS_CALLED = re.compile(r"__|forward$|train$|setup$|on_|configure_|training_step$|prepare_data$")


def is_frozen(run: History, module: Value) -> bool:
    """Whether the program freezes exactly this module, without a condition, and never switches it on again.

    It may do so as a whole, or by each of its parameters: an embedding has its `weight` only.
    """
    if may_be_switched_on(run, module):
        return False
    given = [write for name in _PARAMETERS for write in _given_as(run, module, name)]
    if _is_switched_off(run, module, max((write.order for write in given), default=0)):
        return True
    if isinstance(module, Result) and not given and (_is_made_frozen(module) or is_frozen_with_model(run, module)):
        return True
    parameters = _parameters(module)
    if parameters and not given and _is_frozen_by_its_name(run, module, parameters):
        return True
    return bool(parameters) and all(_is_parameter_frozen(run, module, name) for name in parameters)


def _is_frozen_by_its_name(run: History, module: Value, parameters: tuple[str, ...]) -> bool:
    """Whether a loop over `named_parameters()` freezes ``module``, a part of the object, by how its name is."""
    stored = run.uses.writes.of(module)
    fields = [write for write in stored if same(write.value, module) and isinstance(write.obj, Instance)]
    if not stored and (holder := _built_in(module)) is not None:
        return _is_frozen_by_its_path(run, module, holder)  # A part of an `nn.Sequential`.
    if len(fields) != 1:
        return False
    names = [f"{fields[0].field}.{name}" for name in parameters]
    own = any(
        all(name_passes_all(guards, loop, name, meant) is True for name in names)
        for cls, guards, loop, meant in _frozen_by_names(run)
        if isinstance(fields[0].obj, Instance) and fields[0].obj.cls is cls
    )
    return own or _is_frozen_by_its_path(run, module, fields[0].obj)


def _built_in(module: Value) -> Instance | None:
    """The object in whose constructor ``module`` is built."""
    function = module.call.place.function if isinstance(module, Result) else None
    is_constructor = function is not None and function.owner is not None and function.name == "__init__"
    return function.owner.instance if is_constructor and function is not None and function.owner is not None else None


def _is_frozen_by_its_path(run: History, module: Value, holder: Value) -> bool:
    """The same by a loop over the names of a model that has ``holder``, the object with ``module``, somewhere in it."""
    if not isinstance(holder, Instance) or not _is_built_once(run, holder.cls):
        return False
    return any(
        (whole := _whole_of(switch)) is not None
        and _is_built_once(run, whole.cls)
        and not _is_left_uncalled(switch.place)
        and comes_to(run, switch, module) is True
        for switch in run.uses.freezes
    )


def _whole_of(switch: GradientSwitch) -> Instance | None:
    """The object of whose parameters, or modules, a loop around ``switch`` chooses some."""
    over_modules = loop_over_modules(switch.module)
    if over_modules is not None:
        return over_modules.whole
    return switch.module if isinstance(switch.module, Instance) else None


@lru_cache(maxsize=1)
def _frozen_by_names(run: History) -> tuple[tuple[Class, list[Guard], ast.For, Meant], ...]:
    """The loops over names that freeze what passes tests: the class whose object it is done to, the tests, the loop.

    With them goes what other names in the test stand for.
    """
    found = []
    for switch in run.uses.freezes:
        guards, whole = [*own_guards(switch.place)], switch.module
        loop = switch.place.loops[-1] if switch.place.loops else None
        if guards and isinstance(whole, Instance) and isinstance(loop, ast.For) and is_named_in(loop):
            found.append((whole.cls, guards, loop, meant_at(run.program, switch.place)))
    return tuple(found)


def may_be_switched_on(run: History, value: Value) -> bool:
    """Whether the program may switch the gradients of a module, a parameter or a buffer on."""
    return any(_may_switch_on(run, switch, value) for switch in run.uses.thaws)


def _may_switch_on(run: History, switch: GradientSwitch, module: Value) -> bool:
    owner = _owner(switch)
    if _is_result(owner):
        return False  # `loss.requires_grad_()`
    if comes_to(run, switch, module) is False:
        return False
    if isinstance(owner, Instance) and isinstance(module, Result):
        return _may_hold(owner, (module,))
    return same(owner, module) or not isinstance(owner, Result)


def _is_result(value: Value) -> bool:
    """Whether ``value`` is a tensor that was computed, and so neither a module nor a parameter of one."""
    match value:
        case Computed():
            return is_operation(value)
        case Result(call) if call.method in NUMBERS:
            return True
    return is_tensor(value)


def is_frozen_whole(run: History, module: Value) -> bool:
    """Whether ``module`` is frozen with all that it holds: nothing of it is switched on again."""
    if not is_frozen(run, module) and not (isinstance(module, Instance) and is_built_frozen(run, module)):
        return False
    return not any(_may_reach_into(switch, module) for switch in run.uses.thaws)


def _may_reach_into(switch: GradientSwitch, module: Value) -> bool:
    """Whether ``switch`` may be on something that ``module`` holds, or that holds ``module``."""
    owner = _owner(switch)
    if _is_result(owner):
        return False
    return _may_hold(owner, (module,)) or any(_may_hold(module, (part,)) for part in _with_held(owner))


def _is_switched_off(run: History, target: Value, since: int) -> bool:
    """Whether the gradients of a module or a parameter are surely switched off, not before ``since``."""
    return any(
        switch.order >= since
        and any(same(part, target) for part in _switched_with(switch))
        and _copied_by(switch.module) in (None, _copied_by(target))
        and all(comes_out_as(run, guard.test) is guard.taken for guard in own_guards(switch.place))
        and not _is_left_uncalled(switch.place)
        for switch in run.uses.frozen.of(target)
    )


def _switched_with(switch: GradientSwitch) -> Iterator[Value]:
    """The module of ``switch``, with what it holds where that is a container of torch and not a slice of one."""
    return iter((switch.module,)) if switch.is_partial else _with_held(switch.module)


def _copied_by(value: Value) -> ast.AST | None:
    """The `copy.deepcopy` that gave the object; to freeze a copy leaves the original alone."""
    made = value.copied_by if isinstance(value, Instance | Result) else None
    return None if made is None else made.node


def _is_left_uncalled(place: Place) -> bool:
    """Whether ``place`` is in a method that the program offers, `def freeze_stem(self)`, and nothing of it calls."""
    function = place.function
    if function is None or function.owner is None or place.stack:
        return False
    return not _IS_CALLED.match(function.name)


def _parameters(module: Value) -> tuple[str, ...]:
    """The parameters of a module of torch; empty where they are not known."""
    kind = canonical(module.call.name) if isinstance(module, Result) else ""
    if not isinstance(module, Result) or kind not in WEIGHT_ONLY | _WITH_BIAS:
        return ()
    return ("weight",) if kind in WEIGHT_ONLY or equals(module.call.keyword("bias"), False) else _PARAMETERS


def _is_parameter_frozen(run: History, module: Value, name: str) -> bool:
    """Whether the parameter ``name`` is frozen, as it was built or as what the program puts in its place."""
    given = _given_as(run, module, name)
    if not given:
        return _is_switched_off(run, Attr(module, name, None), 0)
    last = given[-1]
    if any(own_guards(last.place)):
        return False
    return is_frozen_parameter(last.value) or any(
        _is_switched_off(run, target, last.order) for target in (last.value, Attr(module, name, None))
    )


def _given_as(run: History, module: Value, name: str) -> list[Write]:
    """What the program makes the parameter ``name`` of ``module``, in order."""
    return [write for write in _parameter_writes(run) if write.field == name and same(same_object(write.obj), module)]


@lru_cache(maxsize=1)
def _parameter_writes(run: History) -> list[Write]:
    return [write for write in run.writes if write.field in _PARAMETERS and not write.is_item]


def is_frozen_parameter(value: Value) -> bool:
    """Whether it is `nn.Parameter(tensor, requires_grad=False)`."""
    if not isinstance(value, Result) or canonical(value.call.name) not in PARAMETER:
        return False
    return equals(value.call.argument(1, "requires_grad"), False) is True


def _is_made_frozen(module: Result) -> bool:
    """Whether ``module`` is an embedding that is built from weights, which freezes it by default."""
    if equals(module.call.keyword("_freeze"), True) is True:
        return canonical(module.call.name) == EMBEDDING
    freeze = module.call.argument(1, "freeze")
    loaded = canonical(module.call.name) == f"{EMBEDDING}.from_pretrained"
    return loaded and (is_absent(freeze) is True or equals(freeze, True) is True)


def may_be_frozen(run: History, *modules: Value) -> bool:
    """Whether the program freezes one of ``modules``, or something that may contain them, and leaves none trained."""
    switches = (it for it in run.uses.freezes if not it.is_partial and not _is_taken_back(run, it, modules))
    switches = (it for it in switches if not _leaves_out_by_name(it, modules) and not _comes_too_soon(run, it, modules))
    switches = (it for it in switches if not any(comes_to(run, it, module) is False for module in modules))
    switched = (_owner(it) for it in switches)
    return any(_may_hold(frozen, modules) for frozen in (*switched, *_frozen_by_name(run)))


def own_parameters(module: Value) -> Iterator[Value]:
    """The parameters that an object of the program has by itself: `self.scale = nn.Parameter(torch.ones(8))`."""
    for held in own_fields(module) if isinstance(module, Instance) else ():
        yield from filter(is_parameter, options(held))


def _is_taken_back(run: History, switch: GradientSwitch, modules: tuple[Value, ...]) -> bool:
    """Whether a part of ``modules`` is surely switched on again behind ``switch``."""
    return any(
        it.place.walk == switch.place.walk
        and it.order > switch.order
        and _switches_on(it)
        and not it.place.excludes(switch.place)
        and any(_surely_comes_to(run, it, module) for module in modules)
        for it in run.uses.thaws
    )


def _switches_on(switch: GradientSwitch) -> bool:
    return is_absent(switch.value) is True or equals(switch.value, True) is True


def _surely_comes_to(run: History, switch: GradientSwitch, module: Value) -> bool:
    """Whether ``switch`` comes to a parameter of ``module``, a part of a model, whatever the run."""
    if comes_to(run, switch, module) is True:
        return True
    return not any(own_guards(switch.place)) and any(same(part, module) for part in _with_held(_owner(switch)))


def _leaves_out_by_name(switch: GradientSwitch, modules: tuple[Value, ...]) -> bool:
    """Whether a loop freezes what begins with a name that only layers have which are none of ``modules``."""
    guards, whole = [*own_guards(switch.place)], switch.module
    loop = switch.place.loops[-1] if switch.place.loops else None
    if not isinstance(loop, ast.For) or not isinstance(whole, Instance) or len(guards) != 1:
        return False
    prefix = prefix_asked(guards[0], loop)
    if prefix is None:
        return False
    fields = [held for owner in (whole.cls, *ancestors(whole.cls)) for held in owner.fields.items()]
    named = [value for field, value in fields if field.startswith(prefix) or prefix.startswith(f"{field}.")]
    return bool(named) and all(
        isinstance(value, Result)
        and canonical(value.call.name) in WEIGHT_ONLY | _WITH_BIAS | {*PARAMETER}
        and not any(same(value, module) for module in modules)
        for value in named
    )


def _comes_too_soon(run: History, switch: GradientSwitch, modules: tuple[Value, ...]) -> bool:
    """Whether one of ``modules`` is, or has, a parameter that the same walk makes only behind ``switch``."""
    new = {module for module in modules if any(_is_built_behind(run, switch, part) for part in _with_fields(module))}
    # What one place builds once is what the new one was put into; another object of its class may have none.
    old = (module for module in modules if module not in new)
    return bool(new) and all(_is_built_once(run, module.cls) for module in old if isinstance(module, Instance))


def _with_fields(module: Value) -> Iterator[Value]:
    yield module
    yield from own_fields(module) if isinstance(module, Instance) else ()


def _is_built_once(run: History, cls: Class) -> bool:
    return _constructions(run).get(cls, 0) == 1


@lru_cache(maxsize=1)
def _constructions(run: History) -> Mapping[Class, int]:
    """How many calls build an object of each class of the program."""
    return MappingProxyType(Counter(call.func for call in run.program.calls if isinstance(call.func, Class)))


def _is_built_behind(run: History, switch: GradientSwitch, part: Value) -> bool:
    if not isinstance(part, Result) or canonical(part.call.name) not in WEIGHT_ONLY | _WITH_BIAS | {*PARAMETER}:
        return False
    # In program order, so that all come behind the switch where the first one does; of the same object, if any.
    made, stack = run.calls_at(part.call.node), switch.place.stack
    beside = [call for call in made if call.place.stack[: len(stack)] == stack]
    first = next(iter(beside or made), part.call)
    behind = first.place.walk == switch.place.walk and first.order > switch.order
    return behind and not first.place.deeper_than(switch.place) and not is_frozen_parameter(part)


def _owner(switch: GradientSwitch) -> Value:
    """The module whose gradients, or those of a part of it, are switched."""
    match switch.module:
        case Attr(base=module, name="weight" | "bias"):
            return same_object(module)
    return switch.module


def _may_hold(frozen: Value, modules: tuple[Value, ...]) -> bool:
    if isinstance(frozen, Result):
        return any(same(part, module) for part in _with_held(frozen) for module in modules)
    tree = module_tree(frozen) if isinstance(frozen, Instance) else None
    if tree is None or not isinstance(frozen, Instance):
        return True
    built = parts_built(frozen)
    return any(_is_part(option, tree.own, built) for module in modules for option in options(module))


def _with_held(module: Value, depth: int = _DEPTH) -> Iterator[Value]:
    """``module``, and what it holds where it is a container of torch."""
    yield module
    for held in held_by(module) if depth else ():
        for option in options(held):
            yield from _with_held(option, depth - 1)


def _is_part(module: Value, classes: Collection[Class], built: Collection[ast.AST]) -> bool:
    """Whether ``module`` may be in a model of these ``classes``, whose modules the calls ``built`` make."""
    match module:
        case Instance(cls):
            return any(it in classes for it in (cls, *ancestors(cls)))
        case Result(call):
            return call.node in built
    return not isinstance(module, Function)  # What a function reads is among the modules that are asked for.


def _frozen_by_name(run: History) -> Iterator[Value]:
    """What functions get that are not shown and that freeze by their name: `BaseFinetuning.freeze(self.encoder)`."""
    for call in run.program.calls:
        if _FREEZES.match(call.called) and not isinstance(call.func, Function | Method):
            yield from _frozen_parts(call)


def _frozen_parts(call: Call) -> Iterator[Value]:
    if call.args or call.kwargs:
        yield from (given for given in (*call.args, *call.kwargs.values()) if not isinstance(given, Const))
    elif call.method:
        yield call.receiver
