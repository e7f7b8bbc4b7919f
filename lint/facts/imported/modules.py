"""Modules of the project that the checked file imports, and those they import: so that their names mean something."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from ..nodes import all_nodes
from ..origin import mark, origin
from ..plain_syntax import in_plain_syntax
from ..scopes import Scope
from ..values import UNKNOWN, Const, Module, Place, Ref, Seq, join
from ..walk import Walk
from .local import MAX_HOPS, LocalModule, is_package, is_worth_reading, package_of
from .naming import from_outside, is_library

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..values import Value
    from ..walk import Program


def import_module(walk: Walk, name: str, node: ast.AST) -> Value | None:
    """The local module called ``name``, walked from its first line; None when it is not local or cannot be read."""
    program = walk.program
    if program.find_module is None or program.hops >= MAX_HOPS or is_library(name):
        return None
    return _module(walk, _from_checked_file(program, name), node)


def _from_checked_file(program: Program, name: str) -> str:
    """A name in an import statement as the checked file would say it: modules name others relative to themselves."""
    return from_outside(program.importing[-1], name) if program.importing else name


def namespace(walk: Walk, name: str, bound: Value | None, node: ast.AST) -> Value | None:
    """What ``import a.b.c`` binds to ``a`` (``bound`` is what it was): the packages down to a local module."""
    inner = import_module(walk, name, node)
    if inner is None:
        return None
    top, *path = name.split(".")
    outer = bound if isinstance(bound, Module) else Module(top, Scope(node, None), node)
    holder = outer
    for part in path[:-1]:
        within = holder.scope.names.get(part)
        if not isinstance(within, Module):
            within = holder.scope.names[part] = Module(f"{holder.name}.{part}", Scope(node, None), node)
        holder = within
    holder.scope.names[path[-1]] = inner
    return outer


def public_names(module: Value | None) -> Iterator[tuple[str, Value]]:
    """What ``from module import *`` binds."""
    if not isinstance(module, Module):
        return
    names = module.scope.names
    match names.get("__all__"):
        case Seq(items=items, open=False):
            listed = [item.value for item in items if isinstance(item, Const)]
            yield from ((name, names[name]) for name in listed if isinstance(name, str) and name in names)
        case _:
            yield from ((name, value) for name, value in names.items() if name[0] != "_")


def taken_from(walk: Walk, module: Value, name: str, node: ast.AST) -> Value | None:
    """What ``from module import name`` gives; None when ``module`` has no such name.

    A package that takes the name from one of its own modules hands it on: that module is read too.
    """
    if not isinstance(module, Module):
        return None
    found = module.scope.names.get(name)
    if isinstance(found, Ref) and _is_package(module):
        inner, _, attribute = from_outside(module.name, found.name).rpartition(".")
        holder = import_module(walk, inner, node) if inner else None
        if isinstance(holder, Module) and holder is not module:
            return holder.scope.names.get(attribute) or found
    return found


def _is_package(module: Module) -> bool:
    return (origin(module.scope.node) or "").endswith("__init__.py")


def _module(walk: Walk, name: str, node: ast.AST) -> Module | None:
    program = walk.program
    is_left_out = name in program.left_out and not program.hops
    if name not in program.modules or is_left_out:
        # A module that is imported by what it imports itself is not known yet.
        program.modules[name] = None
        program.modules[name] = _read(walk, name, node)
    return program.modules[name]


def _read(walk: Walk, name: str, node: ast.AST) -> Module | None:
    program = walk.program
    assert program.find_module is not None
    found = program.find_module(name)
    program.left_out.discard(name)
    if found is None:
        return None
    if not is_worth_reading(found, sum(map(len, program.texts.values())), program.hops):
        program.left_out.add(name)
        return None
    tree = _parsed(found)
    if tree is None:
        return None
    program.texts[found.filename] = found.text
    scope = Scope(tree, None, has_walrus=":=" in found.text)
    program.importing.append(package_of(name, found))
    # A package is where its modules are taken from, no step from one to the next.
    step = 0 if is_package(found) else 1
    program.hops += step
    try:
        walk.engine.execute(Walk(program, scope, Place(), walk.engine), tree.body)
    finally:
        program.importing.pop()
        program.hops -= step
    _open_flags(tree, scope.names)
    return Module(name, scope, node)


def _open_flags(tree: ast.Module, names: dict[str, Value]) -> None:
    """Open the flags, of a module and of objects in it, that its functions switch for those who import it."""
    declared, stored = _switched(tree)
    for name in declared:
        _open_flag(names, name)
    for holder, name in stored:
        if holder in names:
            _open_flag(names[holder].attributes or {}, name)


@lru_cache(maxsize=64)
def _switched(tree: ast.Module) -> tuple[frozenset[str], frozenset[tuple[str, str]]]:
    """The globals that functions of a module bind, and the attributes of variables that they store."""
    declared, stored = set[str](), set[tuple[str, str]]()
    for node in (part for outer in tree.body if isinstance(outer, ast.FunctionDef) for part in all_nodes(outer)):
        match node:
            case ast.Global(names=names):
                declared.update(names)
            case ast.Attribute(value=ast.Name(id=holder), attr=name, ctx=ast.Store()):
                stored.add((holder, name))
    return frozenset(declared), frozenset(stored)


def _open_flag(names: dict[str, Value], name: str) -> None:
    match names.get(name):
        case Const(None | bool()) as flag:
            names[name] = join(flag, UNKNOWN)


@lru_cache(maxsize=64)
def _parsed(module: LocalModule) -> ast.Module | None:
    """The tree of ``module``, None if it is no Python; neighbours in a project import the same modules."""
    try:
        tree = ast.parse(module.text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    mark(tree, module.filename)
    return in_plain_syntax(tree, module.text)
