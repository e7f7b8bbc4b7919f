"""The kinds of modules that a model is built of."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.objects.classes import ancestors, is_plain
from ...facts.objects.containers import container_kind, given_to, held_by, is_module_list
from ...facts.objects.own_fields import fields_of
from ...facts.values import (
    Attr,
    Call,
    Class,
    Const,
    Dict,
    Function,
    Instance,
    Partial,
    Ref,
    Result,
    Seq,
    Template,
    Unknown,
    Value,
    options,
)
from ..known_models.torch_modules import built_in, given_to_hold, holds_given
from ..names import canonical
from ..types import PASS_THROUGH, bases, same_object, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Modules of libraries that hold none themselves.
_WITHOUT_MODULES = frozenset(("lightning.LightningModule", "pytorch_lightning.LightningModule"))

#: They keep what they are given by keyword.
_SETTINGS = frozenset(("types.SimpleNamespace", "argparse.Namespace"))

#: They build models of their own classes, and tokenizers.
_LIBRARIES = ("transformers.", "diffusers.", "timm.", "torchvision.")


class ModuleTree(NamedTuple):
    """What a model holds: classes of the program, and classes of `torch.nn` by their canonical names.

    ``is_whole`` is false where libraries build parts of it, whose modules are none of the program's.
    """

    own: tuple[Class, ...]
    torch: frozenset[str]
    is_whole: bool


def module_tree(model: Value) -> ModuleTree | None:
    """The kinds of modules in ``model``; None when something in it is not shown."""
    own: dict[int, Class] = {}
    seen: set[tuple[int, int]] = set()
    torch: set[str] = set()
    is_whole = True
    waiting = [model]
    while waiting:
        held = options(same_object(waiting.pop()))
        for value in held:
            match value:
                case Instance(cls, call) if (id(cls), id(call)) not in seen:
                    seen.add((id(cls), id(call)))
                    own[id(cls)] = cls
                    waiting += _fields(value)
                case Result(call) if is_module_list(value):
                    waiting += given_to(call)
                case Result(call) if _hands_on(canonical(call.name)):
                    waiting += call.args[:1]
                case Result(call) if (kind := canonical(call.name)).startswith("torch."):
                    torch |= {kind, *built_in(kind)}
                    waiting += given_to_hold(kind, call)
                case Result(call) if call.name in _SETTINGS and not call.open_kwargs:
                    waiting += call.kwargs.values()
                case Result(call) if call.method == "manual_seed":
                    waiting.append(call.receiver)
                case Result(call) if _is_made_by_library(call):
                    is_whole = False
                case Seq(_, items):
                    waiting += items
                case Dict(items):
                    waiting += items.values()
                case Attr(base):
                    waiting.append(base)
                case Const() | Template() | Function() | Class() | Partial() | Ref() | Instance():
                    pass
                case Unknown(node=node) if _is_number(node, held):
                    pass
                case _:
                    return None
    derived = {name for cls in own.values() for name in bases(cls)} - _WITHOUT_MODULES
    torch = torch.union(*map(built_in, derived))
    known = all(name.startswith("torch.nn.") and not holds_given(name) for name in derived)
    return ModuleTree(tuple(own.values()), frozenset(torch), is_whole) if known else None


def may_hold_method(model: Value, function: Function | None) -> bool:
    """Whether the module whose method ``function`` is may be in ``model``: not in one that holds other classes."""
    owner = function.owner if function is not None else None
    tree = module_tree(unwrapped(model)) if owner is not None and not is_plain(owner) else None
    return tree is None or any(owner in (cls, *ancestors(cls)) for cls in tree.own)


def _is_made_by_library(call: Call) -> bool:
    """Whether a library makes something of constants, so that it holds no module of the program."""
    given = (*call.args, *call.kwargs.values())
    is_shown = not call.open_args and not call.open_kwargs and all(isinstance(it, Const | Template) for it in given)
    return is_shown and (canonical(call.name).startswith(_LIBRARIES) or call.name.endswith(".from_pretrained"))


def _hands_on(function: str) -> bool:
    """Whether a function of torch gives back the module that it gets, as those that parametrize one do."""
    return function in PASS_THROUGH or function.startswith("torch.nn.utils.")


def _is_number(node: ast.AST | None, held: tuple[Value, ...]) -> bool:
    """Whether what ``node`` computes is no module: containers of modules are only added and repeated."""
    match node:
        case ast.BinOp(op=op):
            return not isinstance(op, ast.Add | ast.Mult)
        case ast.AugAssign():
            return any(isinstance(other, Const) for other in held)
    return isinstance(node, ast.Compare | ast.UnaryOp)


def _fields(instance: Instance) -> Iterator[Value]:
    if container_kind(instance):
        yield from held_by(instance)
    yield from fields_of(instance)
