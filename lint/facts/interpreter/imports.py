"""Import statements to bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..imported.modules import import_module, namespace, public_names, taken_from
from ..values import Ref

if TYPE_CHECKING:
    import ast

    from ..walk import Walk


def bind_import(walk: Walk, node: ast.Import) -> None:
    """``import a.b`` binds ``a``; ``import a.b as c`` binds the inner module."""
    for alias in node.names:
        if alias.asname or "." not in alias.name:
            value = import_module(walk, alias.name, node) or Ref(alias.name, node)
            walk.scope.bind(alias.asname or alias.name, value)
        else:
            top = alias.name.partition(".")[0]
            walk.scope.bind(top, namespace(walk, alias.name, walk.scope.names.get(top), node) or Ref(top, node))


def bind_import_from(walk: Walk, node: ast.ImportFrom) -> None:
    """``from a import b``; relative modules keep their dots, so they never look like an installed library."""
    name = "." * node.level + (node.module or "")
    separator = "" if name.endswith(".") else "."
    module = import_module(walk, name, node) if node.module else None
    for alias in node.names:
        full = f"{name}{separator}{alias.name}"
        if alias.name == "*":
            for public, value in public_names(module):
                walk.scope.bind(public, value)
            if module is None and not node.level:
                walk.scope.stars.append(name)
            continue
        found = taken_from(walk, module, alias.name, node) if module is not None else None
        # `from . import model` and `from package import module` name a module.
        walk.scope.bind(alias.asname or alias.name, found or import_module(walk, full, node) or Ref(full, node))
