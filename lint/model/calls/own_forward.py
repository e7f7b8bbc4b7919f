"""The `forward` that a class gives a container of torch, which runs its modules otherwise than torch does."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.objects.classes import ancestors, method_of
from ...facts.parameters import positional_names
from ...facts.straight import only_call, only_value, straight
from ...facts.values import Function, Instance
from ..types import bases

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...facts.values import Class, Value

#: Methods that leave their work to others.
_MAX_STEPS = 4
_KEEP_NOTHING = ast.Expr | ast.Assert | ast.Pass


def own_forward(module: Value) -> Function | None:
    """The `forward` of a subclass of `nn.Sequential` that does more than run one module after the other."""
    if not isinstance(module, Instance) or "torch.nn.Sequential" not in bases(module.cls):
        return None
    for owner in (module.cls, *ancestors(module.cls)):
        forward = owner.body.get("forward")
        if isinstance(forward, Function):
            return None if _only_runs_children(written_out(forward, module.cls)) else forward
    return None


def written_out(method: Function, cls: Class | None) -> Function:
    """What ``method`` of an object of ``cls`` leaves its work to: `return self._forward_impl(x)`; else itself."""
    for _ in range(_MAX_STEPS):
        left = _left_to(method, cls)
        if left is None:
            break
        method = left[1]
    return method


def reading(method: Function) -> Function:
    """What reads the parameters of ``method``, under the same names: what it leaves its work to, or itself."""
    for _ in range(_MAX_STEPS):
        call, inner = _left_to(method, method.owner) or (None, method)
        names = positional_names(method.node)[1:]
        given = [part.id if isinstance(part, ast.Name) else "" for part in call.args] if call is not None else []
        if call is None or call.keywords or not names == given == positional_names(inner.node)[1:]:
            break
        method = inner
    return method


def _left_to(method: Function, cls: Class | None) -> tuple[ast.Call, Function] | None:
    """The call that is all that ``method`` does, of another method of its object."""
    names = positional_names(method.node)
    match only_call(method.node):
        case ast.Call(func=ast.Attribute(value=ast.Name(id=own), attr=name)) as call if names[:1] == [own]:
            inner = method_of(cls, name) if cls is not None else None
            return None if inner is None or inner is method else (call, inner)
    return None


def _only_runs_children(forward: Function) -> bool:
    body = forward.node.body if isinstance(forward.node, ast.FunctionDef) else []
    match _that_compute(straight(body, ast.With)):
        case [ast.For(body=inner), ast.Return(value=ast.Name())]:
            steps = _that_compute(straight(inner, ast.With))
            return len(steps) == 1 and isinstance(_assigned(steps[0]), ast.Call)
    value = only_value(forward.node)
    match value:
        case ast.Call(func=ast.Attribute(attr="forward"), args=[ast.Name()]):
            return True
    return False


def _that_compute(statements: Iterable[ast.AST]) -> list[ast.AST]:
    """``statements`` without those that keep nothing of what they compute: a log, a text, a constant."""
    return [it for it in statements if not (isinstance(it, _KEEP_NOTHING) or isinstance(_assigned(it), ast.Constant))]


def _assigned(statement: ast.AST) -> ast.AST | None:
    return statement.value if isinstance(statement, ast.Assign) else None
