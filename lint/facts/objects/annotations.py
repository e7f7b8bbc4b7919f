"""What annotations say of a value: `block: Block`, `blocks: list[Block]`, `-> Block | None`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..values import Attr, Choice, Class, Const, Dict, Element, Module, Param, Ref, Result, Seq, Unknown, Value, join
from .classes import ancestors

if TYPE_CHECKING:
    from ..scopes import Scope

#: Containers whose elements the (last) argument tells, by the last part of their name.
_SEQUENCES = frozenset(
    (
        *("list", "List", "tuple", "Tuple", "set", "Set", "frozenset", "Sequence", "MutableSequence"),
        *("Iterable", "Iterator", "Collection", "Generator", "deque"),
    )
)
_MAPPINGS = frozenset(("dict", "Dict", "Mapping", "MutableMapping", "OrderedDict", "defaultdict"))
#: Forms that stand for their first argument.
_TRANSPARENT = frozenset(("Optional", "Annotated", "Final", "ClassVar", "Required", "NotRequired"))


def annotated(node: ast.AST | None, scope: Scope) -> Value | None:
    """What a value annotated with ``node`` is, where that is a module of the file or a container of such; else None."""
    match node:
        case ast.Constant(value=str(text)):
            return annotated(_parsed(text), scope)
        case ast.Name() | ast.Attribute():
            return _object_of(_named(node, scope))
        case ast.BinOp(left=left, right=right, op=ast.BitOr()):
            return _either([left, right], scope)
        case ast.Subscript(value=form, slice=inner):
            return _subscripted(form, inner, scope)
    return None


def _parsed(text: str) -> ast.AST | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _named(node: ast.AST, scope: Scope) -> Value | None:
    match node:
        case ast.Name(id=name):
            return scope.look_up(name)
        case ast.Attribute(value=base, attr=name):
            holder = _named(base, scope)
            return holder.scope.names.get(name) if isinstance(holder, Module) else None
    return None


def _object_of(named: Value | None) -> Value | None:
    """The object of a class of the file that computes something; settings are often of a class derived from theirs."""
    return named.instance if isinstance(named, Class) and _computes(named) else None


def _computes(cls: Class) -> bool:
    return any(
        isinstance(base, Ref) and "." in base.name for owner in (cls, *ancestors(cls)) for base in owner.bases
    ) and any(name in owner.body for owner in (cls, *ancestors(cls)) for name in ("forward", "__call__"))


def _either(parts: list[ast.expr], scope: Scope) -> Value | None:
    """A union: known only when every part but None is."""
    found = [annotated(part, scope) for part in parts if not _is_none(part)]
    known = [value for value in found if value is not None]
    return join(*known) if known and len(known) == len(found) else None


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _subscripted(form: ast.expr, inner: ast.expr, scope: Scope) -> Value | None:
    name = form.attr if isinstance(form, ast.Attribute) else form.id if isinstance(form, ast.Name) else ""
    arguments = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if name == "Union":
        return _either(arguments, scope)
    if name in _TRANSPARENT:
        return annotated(arguments[0], scope)
    if name in _SEQUENCES:
        kinds = [annotated(part, scope) for part in arguments if not _is_ellipsis(part)]
        held = [kind for kind in kinds if kind is not None]
        return Seq("list", held, True, form) if held and len(held) == len(kinds) else None
    if name in _MAPPINGS and len(arguments) == 2:
        kind = annotated(arguments[1], scope)
        return Dict({"{}": kind}, True, form) if kind is not None else None
    return None


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


def narrowed(value: Value, declared: Value | None) -> Value:
    """``value``, or what an annotation declares when nothing else is known of it."""
    return declared if declared is not None and _is_opaque(value) else value


def _is_opaque(value: Value) -> bool:
    match value:
        case Unknown() | Attr() | Element() | Param():
            return True
        case Result(call):
            return not isinstance(call.func, Ref)
        case Choice(options):
            return all(_is_opaque(option) or (isinstance(option, Const) and option.value is None) for option in options)
    return False


def annotated_field(cls: Class, name: str) -> Value | None:
    """What ``name: Block`` in the body of the class says of the field."""
    for owner in (cls, *ancestors(cls)):
        for statement in owner.node.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=field), annotation=annotation) if field == name:
                    return annotated(annotation, owner.scope)
    return None
