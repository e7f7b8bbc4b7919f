"""Statements that do in one call what loops, conditions and methods do: they are read as those."""

from __future__ import annotations

import ast

from .origin import stands_for
from .plain_detach import replaced_by_itself

_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def spelled_out(statement: ast.stmt) -> list[ast.stmt]:
    """What ``statement`` does, in plain statements; itself where it is one."""
    plain = _chosen_by_number(statement) or replaced_by_itself(statement)
    if plain is not None:
        return [plain]
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=module, attr="apply"), args=[function], keywords=[])):
            is_named = isinstance(function, ast.Lambda | ast.Name)
            return [statement, _applied(statement, function, module)] if is_named else [statement]
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="torch")), keywords=words) as computed):
            filled = next((word.value for word in words if word.arg == "out"), None)
            if isinstance(filled, ast.Name | ast.Attribute):
                return [_filled(statement, computed, filled)]
        case ast.Expr(value=ast.ListComp(elt=ast.Call() as element, generators=generators)) if _freezes(element):
            return [_as_loop(statement, element, generators)]
    return [statement]


def _filled(statement: ast.stmt, computed: ast.Call, filled: ast.expr) -> ast.stmt:
    """`mean.copy_(torch.add(mean, x))` of `torch.add(mean, x, out=mean)`."""
    value = ast.Call(computed.func, computed.args, [word for word in computed.keywords if word.arg != "out"])
    method = ast.Attribute(filled, "copy_", ast.Load())
    call = ast.Call(method, [value], [])
    made = ast.Expr(call)
    stands_for(value, computed)
    for part in (method, call, made):
        stands_for(part, statement)
    return made


def _applied(statement: ast.stmt, function: ast.expr, module: ast.expr) -> ast.stmt:
    """`freeze(net)` of `net.apply(freeze)`, which calls it for the module itself, too."""
    call = ast.Call(function, [module], [])
    made = ast.Expr(call)
    stands_for(call, statement)
    stands_for(made, statement)
    return made


def _freezes(call: ast.Call) -> bool:
    """Whether it switches something off, or hands it to a function: `p.requires_grad_(False)`, `freeze(m)`."""
    match call:
        case ast.Call(func=ast.Attribute(attr="requires_grad_"), args=[ast.Constant(value=False)]):
            return True
        case ast.Call(func=ast.Name(), args=[ast.Name()]):
            return True
    return False


def _as_loop(statement: ast.stmt, element: ast.expr, generators: list[ast.comprehension]) -> ast.stmt:
    """`[p.requires_grad_(False) for p in net.parameters()]`, a statement, as the loop that does the same."""
    made: ast.stmt = ast.Expr(element)
    stands_for(made, statement)
    for generator in reversed(generators):
        for test in reversed(generator.ifs):
            made = ast.If(test, [made], [])
            stands_for(made, statement)
        made = ast.For(generator.target, generator.iter, [made], [])
        stands_for(made, statement)
    return made


def _chosen_by_number(statement: ast.stmt) -> ast.If | None:
    """`layer.requires_grad_(i >= 4)` as `if i >= 4: layer.requires_grad_(True)`, with an `else`; None for others."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="requires_grad_"), args=[test], keywords=[])):
            pass
        case ast.Assign(targets=[ast.Attribute(attr="requires_grad")], value=test):
            pass
        case _:
            return None
    if not isinstance(test, ast.Compare) or not all(isinstance(op, _ORDERS) for op in test.ops):
        return None
    plain = ast.If(test, [_with_flag(statement, True)], [_with_flag(statement, False)])
    stands_for(plain, statement)
    return plain


def _with_flag(statement: ast.Expr | ast.Assign, flag: bool) -> ast.stmt:
    """``statement``, a switch of gradients, with a constant."""
    value = ast.Constant(flag)
    if isinstance(statement, ast.Assign):
        made: ast.stmt = ast.Assign(statement.targets, value)
        nodes: list[ast.expr | ast.stmt] = [value, made]
    else:
        assert isinstance(statement.value, ast.Call)
        call = ast.Call(statement.value.func, [value], [])
        made = ast.Expr(call)
        nodes = [value, call, made]
    for node in nodes:
        stands_for(node, statement)
    return made
