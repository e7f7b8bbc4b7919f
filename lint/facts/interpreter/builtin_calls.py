"""Builtins and standard-library functions that pass their arguments on: `partial`, `dict`, `getattr`, `replace`, ..."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ..objects.attributes import get_attribute, get_item
from ..objects.children import take_children
from ..objects.classes import is_torch_module
from ..objects.containers import (
    GAP,
    another_list,
    elements,
    is_module_list,
    iterate,
    length_of,
    matching_field,
    text_of,
)
from ..objects.dataclass_fields import AS_DICT, as_dict
from ..objects.lacking import lacks
from ..objects.numbers import CALCULATIONS, calculated
from ..objects.own_dicts import entries_of
from ..objects.parsers import PARSER_METHODS, Namespace, namespace_made, parser_made, parser_method
from ..objects.pretrained import has_method
from ..objects.settings_files import READERS, content_read
from ..objects.slices import bounds_of, slice_of
from ..objects.text_methods import METHODS, text_made
from ..values import (
    UNKNOWN,
    Absent,
    Attr,
    Call,
    Choice,
    Class,
    Const,
    Dict,
    Function,
    Instance,
    Partial,
    Ref,
    Result,
    Seq,
    Super,
    Template,
    Unknown,
    Value,
    copied,
    join,
    options,
    same,
    truth,
)
from .bindings import write
from .container_methods import dict_method, grow
from .entry_points import fire_run, signature_run
from .field_calls import OF_FIELDS
from .fluent_settings import SETTERS, are_settings, set_by_method
from .grad_mode import STACK_METHODS, set_by_call, use_stack
from .hyperparameters import KEEP, keep_arguments
from .mappings import MAPPINGS
from .reduced import reduced

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..walk import Walk

#: Methods of a module that return the module itself.
_RETURN_SELF = frozenset(
    ("to", "cuda", "cpu", "half", "bfloat16", "float", "double", "train", "eval", "requires_grad_", "apply", "to_empty")
)
#: Methods by which classes that derive from one of a library build an object.
_LOADERS = frozenset(("from_pretrained", "from_config", "_from_config", "load_from_checkpoint"))
#: With one of these, a loader gives more than the object.
_GIVE_MORE = frozenset(("output_loading_info", "return_unused_kwargs"))
#: A replacement field of `str.format`.
_FIELD = re.compile(r"{[^{}]*}")


def call_known(walk: Walk, call: Call) -> Value | None:
    """What the call returns when it is one of the functions understood here, else None."""
    match call.func:
        case Ref(name):
            handler = _FUNCTIONS.get(name)
        case Attr(base=Dict() as held, name=name):
            return dict_method(walk, held, name, call)
        case Attr(base=Result(Call(func=Ref(name))) as held, name="launch") if name.rpartition(".")[2] == "Fabric":
            return _run_with(
                walk, call, call.argument(0, "function"), [held], Seq("tuple", call.args[1:], call.open_args, call.node)
            )
        case Attr(base=Result(Call(func=Ref(name))) as held, name=method) if method in SETTERS and are_settings(name):
            return set_by_method(walk, held, call)
        case Attr(base=Seq() as held, name="append" | "extend" | "insert" | "add"):
            grow(walk, held, call)
            return None
        case Choice(options=ways):
            for way in ways:
                if isinstance(way, Attr) and isinstance(way.base, Seq) and way.name in ("append", "extend"):
                    grow(walk, way.base, call)
            return None
        case Attr(base=Seq() as held, name="pop" | "remove" | "clear"):
            held.open, held.count = True, None
            return None
        case Attr(base=Attr(base=owner, name="__dict__") | (Attr(name="config") as owner), name="update"):
            return _attributes_updated(walk, owner, call)
        case Attr(base=Const(str(text)), name="format"):
            return Template(_FIELD.sub(GAP, text), call.node)
        case Attr(base=Const(str(text)), name=name) if name in METHODS and not call.open_args and not call.kwargs:
            return text_made(text, name, call.args, call.node)
        case Attr(base=Result() as held, name=name) if name in PARSER_METHODS:
            return parser_method(walk, held, name, call)
        case Attr(base=Instance() as made, name=name) if (entries := entries_of(made)) is not None:
            return dict_method(walk, entries, name, call)
        case Attr(base=Instance(cls) as held, name=name) if name in _RETURN_SELF and is_torch_module(cls):
            return held
        case Attr(base=Class() as cls, name=name) if name in _LOADERS and not call.kwargs.keys() & _GIVE_MORE:
            return Instance(cls, call)
        case Attr(base=Instance() as held, name=name) if name in AS_DICT and not call.args:
            return as_dict(held, call.node, walk.place)
        case Attr(base=held, name="get_submodule" | "get_parameter"):
            return _submodule(held, call)
        case Attr(base=Instance() as held, name=name) if name == KEEP:
            return keep_arguments(walk, held, call)
        case Attr(name=name) if name in STACK_METHODS:
            use_stack(walk, call)
            return None
        case called:
            if isinstance(called, Attr):
                take_children(walk, call)
            return None
    return handler(walk, call) if handler is not None else None


def _attributes_updated(walk: Walk, owner: Value, call: Call) -> Value:
    """``vars(obj).update(field=value)``; the same for a model's configuration: `model.config.update({...})`."""
    given = {key: value for held in call.args if isinstance(held, Dict) for key, value in held.items.items()}
    for name, value in {**given, **call.kwargs}.items():
        write(walk, owner, name, value, call.node)
    if isinstance(owner, Result) and any(not isinstance(held, Dict) or held.open for held in call.args):
        _may_hold_anything(owner)
    return Const(None, call.node)


def _submodule(held: Value, call: Call) -> Value | None:
    """``model.get_submodule("vision.encoder")``: the attributes one after the other; a number is an element.

    So does ``model.get_parameter("head.weight")``.
    """
    paths = [text_of(option) or "" for option in options(call.args[0])] if len(call.args) == 1 else []
    if not paths or not all(name.isidentifier() or name.isdecimal() for path in paths for name in path.split(".")):
        return None
    return join(*(_at_path(held, path, call) for path in paths))


def _at_path(held: Value, path: str, call: Call) -> Value:
    for name in path.split("."):
        is_number = name.isdecimal()
        held = get_item(held, Const(int(name)), call.node) if is_number else get_attribute(held, name, call.node)
    return held


def _partial(walk: Walk, call: Call) -> Value | None:
    return Partial(call.args[0], call) if call.args else None


def _list(walk: Walk, call: Call) -> Value | None:
    """``list(...)`` or ``tuple(...)``."""
    kind = call.name.rpartition(".")[2]
    if not call.args:
        return Seq(kind, [], call.open_args, call.node, walk.place)
    given = call.args[0]
    if not isinstance(given, Seq) and not is_module_list(given):
        return None
    made = Seq(kind, elements(given), not isinstance(given, Seq) or given.open, call.node, walk.place)
    made.count = length_of(given)
    made.may_be_empty = isinstance(given, Seq) and given.may_be_empty
    return made


def _len(walk: Walk, call: Call) -> Value | None:
    """``len(layers)`` of a list that is made and counted in one function: no loop makes it longer."""
    held = call.args[0] if call.args else None
    if is_module_list(held or UNKNOWN) and not walk.place.loops:
        length = length_of(held or UNKNOWN)
        return None if length is None else Const(length, call.node)
    here = isinstance(held, Seq) and held.place is not None and held.place.function is walk.place.function
    if not here or not isinstance(held, Seq) or held.open or held.place is None or walk.place.loops:
        return None
    return Const(len(held.items), call.node) if not walk.place.deeper_than(held.place) else None


def _calculated(walk: Walk, call: Call) -> Value | None:
    """``max(1, depth // 4)`` of numbers that are known here, and ``max(stacks, key=len)``, one of those it is given."""
    if "key" in call.kwargs and len(call.args) == 1 and not call.open_args:
        return iterate(call.args[0], call.node)
    if call.kwargs or call.open_args or call.open_kwargs:
        return None
    found = calculated(call.name, [given.value if isinstance(given, Const) else None for given in call.args])
    return None if found is None else Const(found, call.node)


def _str(walk: Walk, call: Call) -> Value | None:
    """``str(flag)`` of a text, a flag or a number."""
    match call.args:
        case [Const(str() | bool() | int() as known)] if not call.kwargs:
            return Const(str(known), call.node)
    return None


def _bool(walk: Walk, call: Call) -> Value | None:
    """``bool(args.number)``."""
    known = truth(call.args[0]) if len(call.args) == 1 and not call.open_args else None
    return None if known is None else Const(known, call.node)


def _any_or_all(walk: Walk, call: Call) -> Value | None:
    """``any(part in name for part in ())``: of what is wholly known."""
    match call.args:
        case [Seq(_, items, False) as held] if not held.optional and not held.may_be_empty:
            answers = [truth(item) for item in items]
        case _:
            return None
    if not answers and not isinstance(held.node, ast.GeneratorExp | ast.ListComp):
        return None  # Other code may fill a list.
    decides = call.name == "builtins.any"
    if decides in answers:
        return Const(decides, call.node)
    return None if None in answers else Const(not decides, call.node)


def _islice(walk: Walk, call: Call) -> Value | None:
    """``itertools.islice(layers, 3)`` and ``islice(layers, 1, None, 2)``."""
    none = Const(None)
    match call.args:
        case [held, stop]:
            return slice_of(held, bounds_of((none, stop, none)), call.node)
        case [held, start, stop]:
            return slice_of(held, bounds_of((start, stop, none)), call.node)
        case [held, start, stop, step]:
            return slice_of(held, bounds_of((start, stop, step)), call.node)
    return None


def _chained(walk: Walk, call: Call) -> Value | None:
    """``chain.from_iterable([layers, blocks])`` of what is listed one by one: ``chain(layers, blocks)``."""
    match call.args:
        case [Seq(items=items, open=False)]:
            made = Call(call.node, Ref("itertools.chain", call.node), call.place, call.order)
            made.args = [*items]
            return Result(made)
    return None


def _getattr(walk: Walk, call: Call) -> Value | None:
    match call.args:
        case [base, Const(str(name))]:
            return get_attribute(base, name, call.node)
        case [base, Attr(base=owner, name="base_model_prefix"), *_] if same(base, owner):
            return get_attribute(base, "base_model", call.node)  # A property of transformers, of every model.
        case [Instance() as base, Template(name)]:
            return matching_field(base.cls.fields, name)
        case [Result() | Attr() as base, Template(name)]:
            return get_attribute(base, name, call.node)
        case [base, Choice(options=names), *otherwise] if all(isinstance(text_of(option), str) for option in names):
            held = [get_attribute(base, text_of(option) or "", call.node) for option in names]
            return join(*held, *(otherwise if any(isinstance(found, Ref | Attr) for found in held) else ()))
        case [base, Const(str(name)), default]:
            if lacks(walk.program, base, name):
                return default
            found = get_attribute(base, name, call.node)
            return join(found, default) if isinstance(found, Ref | Attr) else found
    return None


def _hasattr(walk: Walk, call: Call) -> Value | None:
    """``hasattr(args, "seed")`` of an option that the parser declares, or of a method that an object surely has."""
    match call.args:
        case [Namespace(attributes=dict() as known), Const(name)] if name in known:
            return Const(True, call.node)
        case [held, Const(str(name))] if has_method(held, name):
            return Const(True, call.node)
        case [held, Const(str(name))] if lacks(walk.program, held, name):
            return Const(False, call.node)
    return None


def _setattr(walk: Walk, call: Call) -> Value | None:
    match call.args:
        case [base, name, value]:
            for text in map(text_of, options(name)):
                if text is not None and (GAP not in text or isinstance(base, Instance)):
                    write(walk, base, text, value, call.node)
                elif isinstance(base, Result):
                    _may_hold_anything(base)
    return None


def _may_hold_anything(namespace: Result) -> None:
    """What is set under a name that is not known may be any of the attributes: `setattr(args, key, value)`."""
    for name, value in (namespace.attributes or {}).items():
        if isinstance(value, Const):
            (namespace.attributes or {})[name] = join(value, UNKNOWN)


def _super(walk: Walk, call: Call) -> Value | None:
    if walk.instance is None:
        return None
    function = walk.place.function
    owner = function.owner if function is not None else None
    return Super(walk.instance, owner or walk.instance.cls, call.node)


def _copied(walk: Walk, call: Call) -> Value | None:
    """``copy.copy(layers)``."""
    return another_list(call.args[0]) if call.args else None


def _deep_copied(walk: Walk, call: Call) -> Value | None:
    """``copy.deepcopy(model)``: another object, of the same class and content."""
    return copied(another_list(call.args[0]), call) if call.args else None


def _next(walk: Walk, call: Call) -> Value | None:
    return iterate(call.args[0], call.node) if call.args else None


def _type(walk: Walk, call: Call) -> Value | None:
    """``type(block)`` of an object that the program builds; `self` may be one of a derived class."""
    match call.args:
        case [Instance(cls, made)] if made is not None:
            return cls
    return None


def _static(walk: Walk, call: Call) -> Value | None:
    """``ck = staticmethod(checkpoint)`` in a class body; a function of the file would be taken for a method."""
    return call.args[0] if call.args and isinstance(call.args[0], Ref | Partial) else None


def _vars_changed(walk: Walk, call: Call) -> Value | None:
    """``exec`` may overwrite every constant of the module (the configurator idiom)."""
    scope = walk.scope
    for name, value in scope.names.items():
        if isinstance(value, Const):
            scope.names[name] = join(value, UNKNOWN)
    return None


def _imported(walk: Walk, call: Call) -> Value | None:
    """``importlib.import_module("torch.utils.checkpoint")``."""
    match call.args:
        case [Const(str(name))]:
            return Ref(name, call.node)
    return None


def _unbound_update(walk: Walk, call: Call) -> Value | None:
    """``dict.update(held, ...)``."""
    match call.args:
        case [Dict() as held, *rest]:
            method = Call(call.node, Attr(held, "update", call.node), call.place, call.order)
            method.args, method.kwargs, method.open_kwargs = rest, call.kwargs, call.open_kwargs
            return dict_method(walk, held, "update", method)
    return None


def _spawned(walk: Walk, call: Call) -> Value | None:
    """`mp.spawn(worker, args=(model,))`: the worker gets the number of its process first."""
    return _run_with(walk, call, call.argument(0, "fn"), [Unknown(call.node)], call.argument(1, "args"))


def _launched(walk: Walk, call: Call) -> Value | None:
    """`notebook_launcher(train, args=(model,))`."""
    return _run_with(walk, call, call.argument(0, "function"), [], call.argument(1, "args"))


def _run_with(walk: Walk, call: Call, function: Value, first: list[Value], more: Value) -> Value | None:
    """Follow ``function``, which somebody else calls with ``first`` and the elements of ``more``."""
    if isinstance(function, Function):
        run = Call(call.node, function, walk.place, call.order)
        run.args = [*first, *(more.items if isinstance(more, Seq) else [])]
        run.open_args = more.open if isinstance(more, Seq) else not isinstance(more, Absent)
        walk.follow(function, run, None)
    return None


def _grad_mode_set(walk: Walk, call: Call) -> Value | None:
    """``torch.set_grad_enabled(False)``."""
    set_by_call(walk, call)
    return None


_FUNCTIONS: dict[str, Callable[[Walk, Call], Value | None]] = {
    **dict.fromkeys(CALCULATIONS, _calculated),
    "builtins.str": _str,
    "builtins.bool": _bool,
    "builtins.any": _any_or_all,
    "builtins.all": _any_or_all,
    "functools.partial": _partial,
    "functools.reduce": reduced,
    "builtins.dict.update": _unbound_update,
    "builtins.list": _list,
    "builtins.tuple": _list,
    "builtins.len": _len,
    "itertools.islice": _islice,
    "itertools.chain.from_iterable": _chained,
    "builtins.getattr": _getattr,
    "builtins.hasattr": _hasattr,
    "builtins.setattr": _setattr,
    "builtins.super": _super,
    "builtins.next": _next,
    "builtins.staticmethod": _static,
    "builtins.type": _type,
    "builtins.exec": _vars_changed,
    "importlib.import_module": _imported,
    "builtins.__import__": _imported,
    "builtins.vars": lambda walk, call: get_attribute(call.args[0], "__dict__", call.node) if call.args else None,
    "functools.partialmethod": _partial,
    "torch.multiprocessing.spawn": _spawned,
    "torch.multiprocessing.start_processes": _spawned,
    "accelerate.notebook_launcher": _launched,
    "accelerate.debug_launcher": _launched,
    "typing.cast": lambda walk, call: call.args[1] if len(call.args) == 2 else None,
    "copy.copy": _copied,
    "copy.deepcopy": _deep_copied,
    "torch.set_grad_enabled": _grad_mode_set,
    "torch.autograd.set_grad_enabled": _grad_mode_set,
    "torch.autograd.grad_mode.set_grad_enabled": _grad_mode_set,
    "torch._C._set_grad_enabled": _grad_mode_set,
    "fire.Fire": fire_run,
    "tyro.cli": signature_run,
    "typer.run": signature_run,
    "argparse.ArgumentParser": parser_made,
    "argparse.Namespace": namespace_made,
    "types.SimpleNamespace": namespace_made,
    **MAPPINGS,
    **OF_FIELDS,
    **dict.fromkeys(READERS, content_read),
}
