"""What a call may come to: a class that a parameter has by default, what a configuration makes mmcv build."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ..objects.containers import text_of
from ..objects.registered import classes_named, norm_of
from ..objects.settled import settled
from ..values import (
    Arguments,
    Attr,
    Class,
    Const,
    Dict,
    Guard,
    Param,
    Partial,
    Ref,
    Result,
    Seq,
    Template,
    Value,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..walk import Walk

_SHORT = {"Batch": "bn", "SyncB": "bn", "Group": "gn", "Layer": "ln", "Insta": "in"}
#: torch 2.13 `torch/nn/utils/init.py`: a module whose parameters are not initialized.
_SKIP_INIT = frozenset(("torch.nn.utils.skip_init", "torch.nn.utils.init.skip_init"))
_OPEN_MMLAB = ("mmcv.", "mmengine.", "mmdet.", "mmseg.", "mmcls.", "mmpretrain.", "mmpose.", "mmaction.", "mmagic.")


class Way(NamedTuple):
    """One thing that a call may come to, with what it is given, under conditions."""

    target: Value
    given: Arguments
    under: tuple[Guard, ...] = ()
    #: The name that is returned beside what is built; None for what is returned by itself.
    named: Value | None = None

    def returned(self, value: Value, node: ast.Call) -> Value:
        """What the call gives, of which ``value`` is what was built."""
        if self.named is None:
            return value
        # Each way has a node of its own: one expression gives one value otherwise.
        return Seq("tuple", [self.named, value], False, ast.copy_location(ast.Tuple([], ast.Load()), node))


def ways_to_call(walk: Walk, target: Value, given: Arguments) -> Iterator[Way]:
    """What a call of ``target`` may come to; itself for most."""
    match target:
        case Ref(name) if name in _SKIP_INIT and given.args:
            yield Way(given.args[0], _of_class(given))
        case Param() if _is_imported_class(target.default):
            for option, under in settled(target):
                yield Way(option, given, under)
        case Ref(name) if name.startswith(_OPEN_MMLAB) and name.endswith(".build_norm_layer"):
            yield from _norms(target, given)
        case Ref() | Attr(name="build") if _is_registry(target):
            yield from _registered(walk, target, given)
        case _:
            yield Way(target, given)


def _of_class(given: Arguments) -> Arguments:
    """What `skip_init(nn.Linear, 8, 32)` passes on to the class."""
    more = Arguments(given)
    more.args = given.args[1:]
    return more


def _is_imported_class(value: Value | None) -> bool:
    held = value.func if isinstance(value, Partial) else value
    return isinstance(held, Ref) and "." in held.name and held.name.rpartition(".")[2][:1].isupper()


def _norms(target: Ref, given: Arguments) -> Iterator[Way]:
    """`build_norm_layer(norm_cfg, channels, postfix)` gives the name of the layer and the layer."""
    channels, postfix = given.argument(1, "num_features"), given.argument(2, "postfix")
    for configuration, under in settled(given.argument(0, "cfg")):
        kind = norm_of(configuration)
        if not kind or not isinstance(configuration, Dict):
            yield Way(target, given, under)
            continue
        more = Arguments()
        more.args = [channels]
        more.kwargs = {key: held for key, held in configuration.items.items() if key not in ("type", "requires_grad")}
        more.open_kwargs = configuration.open
        yield Way(Ref(kind, target.node), more, under, _name(kind, postfix))


def _name(kind: str, postfix: Value) -> Value:
    """The name of a layer, as `build_norm_layer` makes it: `bn1`."""
    short = _SHORT[kind.rpartition(".")[2][:5]]
    match postfix:
        case Const(int() | str() as number):
            return Const(f"{short}{number}")
    return Template(short + (text_of(postfix) or "{}"), None) if postfix.node is not None else Const(short)


def _is_registry(target: Value) -> bool:
    """Whether ``target`` builds what a configuration names: `MODELS.build`, mmengine's `build_from_cfg`."""
    match target:
        case Ref(name) if name.startswith(_OPEN_MMLAB):
            *_, holder, last = name.split(".")
            return (last == "build" and holder.isupper()) or last == "build_from_cfg"
        case Attr(base=Result(call), name="build"):
            return call.name.startswith(_OPEN_MMLAB) and call.name.endswith(".Registry")
    return False


def _registered(walk: Walk, target: Value, given: Arguments) -> Iterator[Way]:
    """`MODELS.build(dict(type="Net", depth=50))` for a class of the program."""
    for configuration, under in settled(given.argument(0, "cfg")):
        named = configuration.get("type") if isinstance(configuration, Dict) else None
        made = [named] if isinstance(named, Class) else classes_named(walk.program.classes, named)
        if not isinstance(configuration, Dict) or len(made) != 1:
            yield Way(target, given, under)
            continue
        more = Arguments()
        more.kwargs = {key: held for key, held in configuration.items.items() if key != "type"}
        # What `default_args` gives is not looked at.
        is_function = isinstance(target, Ref) and target.name.endswith(".build_from_cfg")
        is_more = len(given.args) > 1 + is_function or bool(given.kwargs.keys() - {"cfg", "registry"})
        more.open_kwargs = configuration.open or is_more
        yield Way(made[0], more, under)
