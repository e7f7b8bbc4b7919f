"""Mappings that functions make: `dict(...)`, `ChainMap(more, defaults)`, settings of libraries such as `OmegaConf`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..objects.classes import is_dataclass
from ..objects.containers import iterate, length_of, text_of
from ..objects.dataclass_fields import as_dict, attributes_as_dict
from ..objects.dicts import merge_deeply, merge_into
from ..objects.dotted_words import dotted
from ..objects.parsers import is_rest_of_argv
from ..values import Absent, Call, Class, Const, Dict, Instance, Result, Seq, Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..walk import Walk

#: Mappings whose entries are read as attributes, and what turns them into plain ones.
_SETTINGS = (
    *("omegaconf.OmegaConf.create", "omegaconf.OmegaConf.to_container", "omegaconf.DictConfig"),
    *("easydict.EasyDict", "ml_collections.ConfigDict", "ml_collections.config_dict.ConfigDict"),
    *("munch.Munch", "munch.munchify", "addict.Dict", "box.Box"),
    *("yacs.config.CfgNode", "fvcore.common.config.CfgNode", "detectron2.config.CfgNode"),
)


def _dict(walk: Walk, call: Call) -> Value | None:
    made = Dict({}, call.open_args or call.open_kwargs, call.node, walk.place)
    for argument in call.args:
        merge_into(made, _zipped(argument) or attributes_as_dict(argument, call.node, walk.place))
        made.keys += _keys_of_pairs(argument)
        made.count = length_of(argument) if len(call.args) == 1 and not call.kwargs else None
    made.items.update(call.kwargs)
    return made


def _zipped(given: Value) -> Seq | None:
    """The pairs of `zip(names, maps)`: all of them where two lists show them, else one that stands for all."""
    match given:
        case Result(Call(name="builtins.zip", args=[keys, values], open_args=False)):
            node = given.node
        case _:
            return None
    match keys, values:
        case Seq(items=names, open=False), Seq(items=held, open=False) if len(names) == len(held):
            pairs, is_open = [*zip(names, held, strict=True)], False
        case _:
            pairs, is_open = [(iterate(keys, node), iterate(values, node))], True
    return Seq("list", [Seq("tuple", [*pair], False, node) for pair in pairs], is_open, node)


def _keys_of_pairs(given: Value) -> list[Value]:
    """One that stands for all the keys of `zip(OPERATORS, answers)`."""
    match given:
        case Result(call) if call.name == "builtins.zip" and call.args:
            return [iterate(call.args[0], call.node)]
    return []


def _from_keys(walk: Walk, call: Call) -> Value | None:
    """``dict.fromkeys(OPERATORS, save)``."""
    given = call.argument(0)
    if not isinstance(given, Seq) or len(call.args) > 2:
        return None
    made = Dict({}, given.open, call.node, walk.place)
    value = call.args[1] if len(call.args) == 2 else Const(None, call.node)
    for key in given.items:
        if (text := text_of(key)) is not None:
            made.items[text] = value
        else:
            made.keys.append(key)
            made.open = True
    return made


def _settings(walk: Walk, call: Call) -> Value | None:
    """``OmegaConf.create({...})``, ``to_container``, ``EasyDict(...)``: the mapping they are given."""
    if not call.args:
        return _dict(walk, call)
    held = call.args[0]
    return Dict(dict(held.items), held.open, held.node, walk.place) if isinstance(held, Dict) else None


def _merged(walk: Walk, call: Call) -> Value | None:
    """``OmegaConf.merge(defaults, more)``."""
    made = Dict({}, call.open_args, call.node, walk.place)
    for argument in call.args:
        merge_deeply(made, argument)
    return made


def _from_dotlist(walk: Walk, call: Call) -> Value | None:
    """``OmegaConf.from_dotlist(["training.bf16=true"])``."""
    given = call.argument(0, "dotlist")
    return dotted(given.items, given.open, call.node, walk.place) if isinstance(given, Seq) else None


def _from_cli(walk: Walk, call: Call) -> Value | None:
    """``OmegaConf.from_cli()``: the words that the program is started with, or those that it is given."""
    given = call.argument(0, "args_list")
    command = walk.program.command
    if isinstance(given, Seq):
        return _from_dotlist(walk, call)
    if command is None or not (isinstance(given, Absent) or is_rest_of_argv(given)):
        return None
    walk.program.command_read = True
    return dotted(command.items, command.open, call.node, walk.place)


def _structured(walk: Walk, call: Call) -> Value | None:
    """``OmegaConf.structured(Config)``: the fields of a dataclass, of its defaults where no object is given."""
    match call.args:
        case [Instance() as held]:
            return as_dict(held, call.node, walk.place)
        case [Class() as cls] if is_dataclass(cls):
            made = Instance(cls, Call(call.node, cls, walk.place, walk.program.next_order()))
            return as_dict(made, call.node, walk.place)
    return None


def _chained(walk: Walk, call: Call) -> Value | None:
    """``ChainMap(more, defaults)``: the first that has a key gives its value."""
    made = Dict({}, call.open_args, call.node, walk.place)
    for argument in reversed(call.args):
        merge_into(made, attributes_as_dict(argument, call.node, walk.place))
    return made


MAPPINGS: dict[str, Callable[[Walk, Call], Value | None]] = {
    "builtins.dict": _dict,
    "builtins.dict.fromkeys": _from_keys,
    "collections.OrderedDict": _dict,
    "frozendict.frozendict": _dict,
    "types.MappingProxyType": lambda walk, call: call.args[0] if call.args else None,  # a view
    "collections.ChainMap": _chained,
    "omegaconf.OmegaConf.merge": _merged,
    "omegaconf.OmegaConf.unsafe_merge": _merged,
    "omegaconf.OmegaConf.from_dotlist": _from_dotlist,
    "omegaconf.OmegaConf.from_cli": _from_cli,
    "omegaconf.OmegaConf.structured": _structured,
    **dict.fromkeys(_SETTINGS, _settings),
}
