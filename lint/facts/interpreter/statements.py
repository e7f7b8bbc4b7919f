"""Statements in program order. ``execute`` tells whether control leaves the block for good."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from ..objects.annotations import annotated, narrowed
from ..objects.attributes import get_attribute, get_item, set_item
from ..objects.children import add_modules
from ..objects.containers import each, elements, is_module_list, together
from ..plain_syntax import annotation_of
from ..values import UNKNOWN, Choice, Computed, Const, Dict, Ref, Result, Seq, Unknown, Value
from ..walk import Named, Returned, Walk
from .bindings import assign, store, write
from .changed_elsewhere import leave_open
from .container_methods import extend, merge_in_place
from .context_managers import with_block
from .control_flow import branch, for_loop, match_block, try_block, while_loop
from .definitions import declare_outer, define_class, define_function
from .imports import bind_import, bind_import_from

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def execute(walk: Walk, body: Sequence[ast.stmt]) -> bool:
    """Walk ``body``; True when it surely returns, raises, breaks or continues."""
    come_to = walk.program.grad.come_to
    for statement in body:
        come_to(statement)
        handler = _HANDLERS.get(type(statement))
        if handler is None:
            for child in ast.iter_child_nodes(statement):
                walk.evaluate(child)
        elif handler(walk, statement):
            return True
    return False


#: Calls that end the program.
_EXITS = frozenset(("sys.exit", "builtins.exit", "builtins.quit", "os._exit", "os.abort"))


def _expression(walk: Walk, node: ast.Expr) -> bool:
    value = walk.evaluate(node.value)
    leave_open(walk, value)
    if isinstance(node.value, ast.Attribute):
        walk.program.named.append(Named(node.value, walk.place, walk.program.next_order()))
    return isinstance(value, Result) and value.call.name in _EXITS


def _assign(walk: Walk, node: ast.Assign) -> None:
    value = walk.evaluate(node.value)
    annotation = annotation_of(node)
    if annotation is not None:
        value = narrowed(value, annotated(annotation, walk.scope))
    for target in node.targets:
        assign(walk, target, value, node)


def _field(walk: Walk, node: ast.AnnAssign) -> None:
    """A name of a class body with its annotation; others are plain assignments (`plain_syntax`)."""
    if node.value is not None:
        value = narrowed(walk.evaluate(node.value), annotated(node.annotation, walk.scope))
        assign(walk, node.target, value, node)


def _augmented(walk: Walk, node: ast.AugAssign) -> None:
    value = walk.evaluate(node.value)
    if isinstance(node.op, ast.BitOr) and isinstance(value, Dict):
        held = walk.evaluate(node.target)
        if isinstance(held, Dict | Ref):
            merge_in_place(walk, held, value, node)
            return
    match node.target:
        case ast.Name(id=name):
            walk.scope.bind(name, _added(walk, walk.scope.look_up(name), value, node))
        case ast.Attribute(value=base, attr=name):
            owner = walk.evaluate(base)
            held = get_attribute(owner, name, node.target)
            added = _added(walk, held, value, node)
            is_open = type(added) is Unknown and isinstance(node.op, ast.Add)
            # What an attribute sums up is computed from each term: `self.penalty += gate.mean()`.
            written = Computed((held, value), node) if is_open else added
            write(walk, owner, name, written, node, augmented=True)
        case ast.Subscript():
            held, key = walk.evaluate(node.target.value), walk.evaluate(node.target.slice)
            store(walk, held, key, value)
            before = get_item(held, key, node.target)
            added = _added(walk, before, value, node)
            if isinstance(held, Dict | Seq) and added is not before:
                set_item(held, key, added, walk.place)


def _added(walk: Walk, held: Value, value: Value, node: ast.AugAssign) -> Value:
    """What a name holds after `layers += [...]`; unknown for anything but sequences and containers of modules."""
    if not isinstance(node.op, ast.Add):
        return Unknown(node)
    match held:
        case Choice() if any(isinstance(option, Seq) for option in held.options):
            return each(held, lambda option: _added(walk, option, value, node))
        case Seq(kind="list"):
            extend(walk, held, value)
            return held
        case Seq():
            items, is_whole = together(held.items, elements(value))
            is_open = held.open or bool(walk.place.loops) or not isinstance(value, Seq) or value.open
            return Seq(held.kind, items, is_open or not is_whole, node, walk.place)
        case Result() if is_module_list(held):
            add_modules(walk, held, value, node)
            return held
    return Unknown(node)


def _delete(walk: Walk, node: ast.Delete) -> None:
    for target in node.targets:
        if isinstance(target, ast.Name):
            walk.scope.bind(target.id, UNKNOWN)
        elif isinstance(target, ast.Subscript):
            held = walk.evaluate(target.value)
            if isinstance(held, Dict):
                held.open = True


def _return(walk: Walk, node: ast.Return) -> bool:
    value = walk.evaluate(node.value) if node.value is not None else Const(None, node)
    walk.give_back(value)
    function = walk.place.function
    if function is not None:
        walk.program.returns.setdefault(function.node, []).append(Returned(value, node, walk.place))
    return True


def _leave(walk: Walk, node: ast.Raise | ast.Break | ast.Continue) -> bool:
    for child in ast.iter_child_nodes(node):
        walk.evaluate(child)
    if walk.broken_off and not isinstance(node, ast.Raise):
        walk.broken_off[-1].append((node, dict(walk.scope.names)))
    return True


_HANDLERS: dict[type, Callable[[Walk, Any], bool | None]] = {
    ast.Expr: _expression,
    ast.Assign: _assign,
    ast.AnnAssign: _field,
    ast.AugAssign: _augmented,
    ast.Delete: _delete,
    ast.If: branch,
    ast.For: for_loop,
    ast.AsyncFor: for_loop,
    ast.While: while_loop,
    ast.With: with_block,
    ast.AsyncWith: with_block,
    ast.Try: try_block,
    ast.TryStar: try_block,
    ast.Match: match_block,
    ast.Return: _return,
    ast.Raise: _leave,
    ast.Break: _leave,
    ast.Continue: _leave,
    ast.FunctionDef: define_function,
    ast.AsyncFunctionDef: define_function,
    ast.ClassDef: define_class,
    ast.Import: bind_import,
    ast.ImportFrom: bind_import_from,
    ast.Global: declare_outer,
    ast.Nonlocal: declare_outer,
}
