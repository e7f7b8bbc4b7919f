"""Whether transformers' `generate` keeps its key/value cache, which is its default."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes
from ...facts.values import equals

if TYPE_CHECKING:
    from ...facts.values import Call
    from ..run import Run

#: Calls that take `use_cache` for a later `generate`.
_SETTING = ("from_pretrained", "from_config", "dict", "update", "partial")


def uses_cache(run: Run, generate: Call) -> bool:
    """Whether ``generate`` certainly uses the cache: it says so, or nothing in the program sets another value."""
    if any(word.arg == "use_cache" for word in generate.node.keywords):
        return equals(generate.keyword("use_cache"), True) is True
    return not any(_may_set(node) for node in all_nodes(run.program.tree))


def _may_set(node: ast.AST) -> bool:
    """Whether ``node`` names `use_cache` where `generate` may find it; `model.config` is no such place."""
    match node:
        case ast.Attribute(attr="use_cache", value=ast.Attribute(attr="config", value=owner), ctx=ast.Store()):
            return isinstance(owner, ast.Name) and owner.id == "self"
        case ast.Attribute(attr="use_cache") | ast.Constant(value="use_cache"):
            return True
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), keywords=words):
            takes = name in _SETTING or name.endswith("Config")
            return takes and any(word.arg == "use_cache" and not _is_true(word.value) for word in words)
    return False


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True
