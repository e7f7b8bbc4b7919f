"""The `forward` that a class gives a container of torch, which runs its modules otherwise than torch does."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.objects.classes import ancestors
from ...facts.straight import is_docstring, only_value, straight
from ...facts.values import Function, Instance
from ..types import bases

if TYPE_CHECKING:
    from ...facts.values import Value


def own_forward(module: Value) -> Function | None:
    """The `forward` of a subclass of `nn.Sequential` that does more than run one module after the other."""
    if not isinstance(module, Instance) or "torch.nn.Sequential" not in bases(module.cls):
        return None
    for owner in (module.cls, *ancestors(module.cls)):
        forward = owner.body.get("forward")
        if isinstance(forward, Function):
            return None if _only_runs_children(forward) else forward
    return None


def _only_runs_children(forward: Function) -> bool:
    body = forward.node.body if isinstance(forward.node, ast.FunctionDef) else []
    match [statement for statement in straight(body, ast.With) if not is_docstring(statement)]:
        case [ast.For(body=[ast.Assign(value=ast.Call())]), ast.Return(value=ast.Name())]:
            return True
    value = only_value(forward.node)
    match value:
        case ast.Call(func=ast.Attribute(attr="forward"), args=[ast.Name()]):
            return True
    return False
