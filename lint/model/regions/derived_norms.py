"""Normalizations of torch that the program derives its own class from: `class Norm(nn.BatchNorm2d)`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.identifiers import attributes_in
from ...facts.nodes import all_nodes
from ...facts.objects.classes import ancestors
from ...facts.straight import straight
from ...facts.values import Class, Function, Instance
from ..types import bases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .region import Region

#: What a class would change to keep statistics as they are.
_OWN = ("train", "eval", "_check_input_dim")
#: What a `forward` of its own would touch for that.
_STATISTICS = frozenset(
    (
        *("training", "eval", "train", "momentum", "track_running_stats"),
        *("running_mean", "running_var", "num_batches_tracked", "reset_running_stats"),
    )
)
#: Arguments that decide whether and how far statistics are updated.
_SETTINGS = frozenset(("momentum", "track_running_stats"))


def derived_norms(region: Region, *kinds: str) -> Iterator[Instance]:
    """The objects in ``region`` of own classes that do what the class of torch among ``kinds`` does by default."""
    for module in region.modules:
        if isinstance(module, Instance) and _is_like(module.cls, kinds) and _has_defaults(module):
            yield module


def _has_defaults(module: Instance) -> bool:
    call = module.call
    return call is not None and _SETTINGS.isdisjoint(call.kwargs) and len(call.args) <= 2


def _is_like(cls: Class, kinds: tuple[str, ...]) -> bool:
    owners = [cls, *ancestors(cls)]
    if not any(name in kinds for name in bases(cls)) or any(name in owner.body for owner in owners for name in _OWN):
        return False
    return all(map(_keeps_settings, owners)) and all(map(_normalizes_as_torch, owners))


def _normalizes_as_torch(cls: Class) -> bool:
    """Whether a `forward` that ``cls`` has surely runs that of its base, and leaves the statistics to it."""
    forward = cls.body.get("forward")
    if forward is None:
        return True
    if not isinstance(forward, Function) or not isinstance(forward.node, ast.FunctionDef) or forward.decorators:
        return False
    if not attributes_in(forward.node).isdisjoint(_STATISTICS):
        return False
    statements = [*straight(forward.node.body, ast.With)]
    if any(isinstance(node, ast.Return) and node not in statements for node in all_nodes(forward.node)):
        return False  # It may come back before.
    return any(map(_runs_base, statements))


def _runs_base(statement: ast.AST) -> bool:
    """Whether ``statement`` calls `super().forward`, or `nn.BatchNorm2d.forward` of `self`, under no condition."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr | ast.Return):
        return False
    nodes = [*all_nodes(statement)]
    if any(isinstance(node, ast.IfExp | ast.BoolOp | ast.Lambda | ast.comprehension) for node in nodes):
        return False
    return any(isinstance(node, ast.Call) and _is_forward_of_base(node) for node in nodes)


def _is_forward_of_base(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Call(func=ast.Name("super")), attr="forward"):
            return True
        case ast.Attribute(value=ast.Attribute() | ast.Name() as base, attr="forward"):
            first = call.args[0] if call.args else None
            is_of_self = isinstance(first, ast.Name) and first.id == "self"
            return is_of_self and "BatchNorm" in (base.attr if isinstance(base, ast.Attribute) else base.id)
    return False


def _keeps_settings(cls: Class) -> bool:
    """Whether the constructor of ``cls``, if it has one, leaves the settings of the class of torch alone."""
    constructor = cls.body.get("__init__")
    if constructor is None:
        return True
    nodes = [*all_nodes(constructor.node)] if isinstance(constructor, Function) else []
    calls = [node for node in nodes if _is_constructor_call(node)]
    named = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    return len(calls) == 1 and _SETTINGS.isdisjoint(named) and all(map(_is_plain, calls))


def _is_constructor_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__"


def _is_plain(node: ast.AST) -> bool:
    """Whether a call gives the number of features, and perhaps an epsilon, and nothing that is not shown."""
    if not isinstance(node, ast.Call) or any(isinstance(argument, ast.Starred) for argument in node.args):
        return False
    return len(node.args) <= 3 and all(word.arg in ("num_features", "eps", "affine") for word in node.keywords)
