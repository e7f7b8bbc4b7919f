"""What keeps the running statistics of a normalization: eval mode, a setting of it, another layer in its place."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING

from ...facts.nodes import returned_by
from ...facts.objects.classes import ancestors
from ...facts.objects.containers import GAP
from ...facts.origin import origin
from ...facts.values import (
    Attr,
    Class,
    Const,
    Element,
    Function,
    Instance,
    Method,
    Partial,
    Result,
    Seq,
    Template,
    Value,
    equals,
    options,
    same,
)
from ..events import Backward, GradientSwitch, LightningFit, ModeSwitch, TrainerBuild, TrainSwitch
from ..names import canonical
from ..state.trained import follows_training
from ..types import PASS_THROUGH, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ...facts.values import Call, Place
    from ...facts.walk import Write
    from ..history import History

_WALKS = frozenset(("modules", "children", "named_modules", "named_children"))
#: Functions of other files that certainly mean this: `freeze_bn`, `convert_bn_to_gn`, fairscale's patch.
_FREEZES = re.compile(
    r"(fr(ee|o)ze?\w*(bn|norm|stat)|(bn|norm)\w*(fr(ee|o)z|eval))|patch_batchnorm"
    r"|(replace|convert|remove|fuse)(?!_?sync)\w*(bn|norm)"
)

#: Names of attributes that are, or hold, a normalization of a block.
_OF_NORM = re.compile(r"bn|norm|downsample|shortcut")
#: Names of functions whose models stay as they leave them.
_KEEPS = re.compile(r"fr(ee|o)z|teacher|ema|target|fixed|backbone|reference|perceptual|loss")
#: Functions of other files that freeze the module they are given, as `timm.utils.freeze` does.
_FREEZE = ("freeze", "frozen")


class KeptStatistics:
    """The normalizations of a program that something in it may keep from updating their statistics."""

    def __init__(self, run: History) -> None:
        self._run = run

    def may_keep(self, norm: Value) -> bool:
        """Whether something may keep ``norm`` from updating its statistics."""
        return (
            self._freezes_norms
            or _is_in_eval_mode(self._run, self._switches_for(norm), norm)
            or any(_is_set_up(write, norm) for write in self._settings)
            or any(_applies(self._run, call, norm) for call in self._run.method_calls("apply"))
            or _is_replaced(self._run, norm)
            or any(_holds(module, norm) for module in self._frozen)
        )

    @cached_property
    def _settings(self) -> list[Write]:
        """The writes of settings with which a normalization keeps its statistics."""
        return [write for write in self._run.writes if _sets_up(write)]

    @cached_property
    def _switches_off(self) -> tuple[ModeSwitch, ...]:
        """What puts modules in eval mode before the training is over."""
        switches = [switch for switch in self._run.of(ModeSwitch) if _switches_off(switch)]
        if not any(self._run.of(Backward, TrainerBuild, LightningFit)):
            # Who gets the model calls `train()` before training it.
            switches = [switch for switch in switches if not _hands_out(self._run, switch)]
        return tuple(switch for switch in switches if not follows_training(self._run, switch.call))

    def _switches_for(self, norm: Value) -> tuple[ModeSwitch, ...]:
        """Those that may put ``norm`` in eval mode: one of the checked file is in no object of an unused import."""
        if norm.node is None or origin(norm.node) is not None:
            return self._switches_off
        return tuple(switch for switch in self._switches_off if not self._is_never_made(switch))

    def _is_never_made(self, switch: ModeSwitch) -> bool:
        """Whether it stands in a method of an imported class of which the program neither makes nor derives one."""
        function = switch.place.function
        owner = None if function is None else function.owner
        if owner is None or origin(owner.node) is None:
            return False
        return all(owner.node is not cls.node for known in self._made for cls in (known, *ancestors(known)))

    @cached_property
    def _made(self) -> list[Class]:
        """The classes of the file itself, and those that the program makes objects of."""
        own = [cls for cls in self._run.program.classes if origin(cls.node) is None]
        called = (unwrapped(call.func) for call in self._run.program.calls)
        return list(dict.fromkeys([*own, *(cls for cls in called if isinstance(cls, Class))]))

    @cached_property
    def _freezes_norms(self) -> bool:
        """Whether a function that is not shown says in its name that it freezes normalizations."""
        return any(_FREEZES.search(call.called) for call in self._foreign)

    @cached_property
    def _frozen(self) -> list[Value]:
        """What such functions get that freeze what they are given."""
        freezing = (call for call in self._foreign if call.called.lower().startswith(_FREEZE))
        return [unwrapped(value) for call in freezing for value in (*call.args, *call.kwargs.values())]

    @cached_property
    def _foreign(self) -> list[Call]:
        return [call for call in self._run.program.calls if not isinstance(call.func, Function | Method)]


def _is_in_eval_mode(run: History, switches_off: tuple[ModeSwitch, ...], norm: Value) -> bool:
    switched_on = [switch.receiver for switch in run.of(TrainSwitch) if switch.on is True]
    for switch in switches_off:
        walked = any(_is_or_walked(option, norm) for option in options(switch.receiver))
        back = any(same(switch.receiver, other) for other in switched_on)
        holds = any(_holds(held, norm) for held in (switch.receiver, unwrapped(switch.receiver)))
        if _is_about_norms(switch.place) or ((walked or holds) and not back):
            return True
    return False


def _switches_off(switch: ModeSwitch) -> bool:
    """Whether it is `eval()`, `train(False)`, or in a method, where modules are frozen, `train(...)`."""
    function = switch.place.function
    return switch.on is False or (switch.on is None and function is not None and function.owner is not None)


def _hands_out(run: History, switch: ModeSwitch) -> bool:
    """Whether a function puts a model that it returns in eval mode, as loaders do, and freezes nothing."""
    function = switch.place.function
    body, switched = getattr(function, "node", None), switch.call.attribute
    if function is None or not isinstance(body, ast.FunctionDef) or switched is None:
        return False
    freezes = any(it.place.function is function for it in run.of(GradientSwitch))
    used = any(call.place.walk == 0 for call in run.calls_of(function))
    if freezes or used or _KEEPS.search(body.name) or switch.place.loops:
        return False
    returned = returned_by(body)
    return bool(returned) and all(_variable(value) == _variable(switched.value) != "" for value in returned)


def _variable(value: ast.expr) -> str:
    """The variable that it is, or whose method gives it as it is: `return model.eval()`."""
    match value:
        case (
            ast.Name(id=name)
            | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="eval" | "to" | "cuda" | "cpu"))
        ):
            return name
    return ""


def _is_or_walked(value: Value, norm: Value) -> bool:
    """Whether ``value`` is ``norm``, or an element of `modules()` and the like, which may be."""
    while isinstance(value, Element):
        value = value.of
        if isinstance(value, Result) and value.call.name == "builtins.filter":
            value = value.call.args[-1]
        if isinstance(value, Result) and value.call.method in _WALKS:
            return True
    return same(value, norm)


def _is_about_norms(place: Place) -> bool:
    """Whether a condition around ``place`` asks for a normalization: `if isinstance(m, nn.BatchNorm2d)`."""
    return any(guard.taken and "Norm" in ast.unparse(guard.test) for guard in place.guards)


def _holds(outer: Value, norm: Value) -> bool:
    """Whether ``norm`` is in the module ``outer``."""
    queue, seen = [outer], set[int]()
    while queue:
        value = queue.pop()
        if same(value, norm):
            return True
        if id(value) not in seen:
            seen.add(id(value))
            queue += _parts(value)
    return False


def _parts(value: Value) -> Iterable[Value]:
    match value:
        case Instance(cls):
            return [held for owner in (cls, *ancestors(cls)) for held in owner.fields.values()]
        case Element(of=container):
            return [container]
        case Seq(_, items):
            return items
        case Result(call):
            name = canonical(call.name)
            is_module = name.startswith("torch.nn.") or name in PASS_THROUGH or name == "builtins.getattr"
            return [*call.args, *call.spread, *call.kwargs.values()] if is_module else []
    held = options(value)
    return held if held != (value,) else []


def _sets_up(write: Write) -> bool:
    """Whether a normalization that ``write`` is about keeps its statistics with it."""
    match write.field, write.value:
        case (("training" | "track_running_stats"), value):
            return equals(value, True) is not True
        case "momentum", value:
            return not isinstance(value, Const) or not value.value
    return False


def _is_set_up(write: Write, norm: Value) -> bool:
    """Whether ``write`` may be about ``norm``."""
    return any(_is_or_walked(option, norm) for option in options(write.obj)) or _is_about_norms(write.place)


def _applies(run: History, call: Call, norm: Value) -> bool:
    """Whether `module.apply(function)` may switch ``norm``; of a function that is not shown, what is no `init`."""
    if len(call.node.args) != 1 or not call.args:
        return False
    function = call.args[0]
    for option in options(function):
        while isinstance(option, Partial):
            option = option.func
        if isinstance(option, Method):
            option = option.function
        if isinstance(option, Function):
            return _switches(run, option)
    return "init" not in ast.unparse(call.node.args[0]).lower() and _holds(call.receiver, norm)


def _switches(run: History, function: Function) -> bool:
    modes = any(call.method in ("eval", "train") for call in run.bodies.calls_in(function))
    return modes or any(
        write.field in ("training", "track_running_stats", "momentum")
        for write in run.writes
        if write.place.function is not None and write.place.function.node is function.node
    )


def _is_replaced(run: History, norm: Value) -> bool:
    """Whether the attribute that ``norm`` is stored in gets another module, or attributes are replaced by name."""
    kept = [write for write in run.uses.writes.of(norm) if any(same(option, norm) for option in options(write.value))]
    if any(not _holds(other.value, norm) for write in kept for other in _overwriting(run, write)):
        return True
    fields = {write.field for write in kept}
    if any(
        other.field in fields and _is_of_any_module(other) and not _holds(other.value, norm) for other in run.writes
    ):
        return True
    return any(map(_may_replace, run.calls_to("builtins.setattr")))


def _is_of_any_module(write: Write) -> bool:
    """Whether a loop over modules gave what is written to: `for m in net.modules(): m.norm = nn.Identity()`."""
    return isinstance(write.obj, Element) and not write.is_item


def _may_replace(call: Call) -> bool:
    """Whether `setattr(owner, name, module)` may put another layer in the place of a normalization.

    Where its name is not known, is that of one, or is a number in a container.
    """
    match call.args:
        case [_, _, module] if all(map(_only_wraps, options(module))):
            return False
        case [owner, name, module]:
            return not isinstance(owner, Instance) and not all(_keeps_norm(owner, it, module) for it in options(name))
    return False


def _only_wraps(module: Value) -> bool:
    """Whether it is a child that a loop came to, in a wrapper of torch: `checkpoint_wrapper(child)`."""
    if not isinstance(module, Result) or canonical(module.call.name) not in PASS_THROUGH:
        return False
    child = unwrapped(module)
    return isinstance(child, Element) and _is_or_walked(child, module)


def _keeps_norm(owner: Value, name: Value, module: Value) -> bool:
    """Whether the attribute is known and is no normalization; one of several also gets what it is, wrapped."""
    match name:
        case Const(str(text)):
            return text.isidentifier() and not _OF_NORM.search(text)
        case Template(pattern):
            is_of_norm = pattern == GAP or _OF_NORM.search(pattern) is not None
            return not is_of_norm and all(_wraps(it, Attr(owner, pattern, None)) for it in options(module))
    return False


def _wraps(outer: Value, held: Value) -> bool:
    """Whether ``outer`` is an object of the file that is built around ``held``."""
    if not isinstance(outer, Instance) or outer.call is None:
        return False
    return any(same(unwrapped(given), held) for given in outer.call.args)


def _overwriting(run: History, earlier: Write) -> Iterator[Write]:
    """The writes by other statements that store something else in the same attribute afterwards."""
    stored = run.uses.writes_to(earlier.obj.cls, earlier.field) if isinstance(earlier.obj, Instance) else ()
    for write in stored:
        is_later = write.node is not earlier.node and write.order > earlier.order
        if is_later and not write.place.excludes(earlier.place):
            yield write
