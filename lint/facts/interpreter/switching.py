"""Loops that do nothing but switch something of what they go through: `for part in parts: freeze(part)`."""

from __future__ import annotations

import ast

#: What such a loop asks an element for: its parameters, or modules in it.
_PARTS = frozenset(("parameters", "named_parameters", "modules", "named_modules", "children", "named_children"))
#: Methods that keep what they get.
_PUTTING = frozenset(("append", "add", "insert", "extend", "update", "appendleft", "put", "add_param_group"))


def switches_only(loop: ast.For | ast.AsyncFor) -> bool:
    """Whether the body makes nothing that outlives an iteration: it calls methods of the element, and sets flags."""
    return _is_switching(loop.body, frozenset(_names(loop.target)))


def _is_switching(body: list[ast.stmt], names: frozenset[str]) -> bool:
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=part) if _is_part(part, names):
                names |= {name}  # `cls = getattr(module, name)`
            case _ if not _switches(statement, names):
                return False
    return True


def _switches(statement: ast.stmt, names: frozenset[str]) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute() as method)) if _is_part(method, names):
            return True  # `part.eval()`, `part.weight.requires_grad_(False)`
        case ast.Expr(value=ast.Call(func=ast.Name("setattr"), args=[ast.Name(), ast.Name(id=name), _])):
            return name in names  # `setattr(model, name, wrap(child))`
        case ast.Expr(value=ast.Call(func=func, args=[part, *rest])):
            # `freeze(part)`, `self.freeze(part)`, `nn.init.zeros_(part.bias)`
            return _keeps_nothing(func) and _is_part(part, names) and all(_is_flag(it, names) for it in rest)
        case ast.Assign(targets=[ast.Attribute() as flag], value=value):
            # `parameter.requires_grad = False`, `part.weight.requires_grad = False`, `part.layers = wrap(part.layers)`
            return _is_part(flag, names) and (_is_flag(value, names) or isinstance(flag.value, ast.Name))
        case ast.Assign(targets=[ast.Subscript(value=ast.Attribute() | ast.Name() as part)]):
            return _is_part(part, names)  # `part.layers[i] = wrap(layer)`
        case ast.For(target=target, iter=ast.Call(func=ast.Attribute(value=part, attr=method)), body=body):
            return _is_part(part, names) and method in _PARTS and _is_switching(body, names | _names(target))
        case ast.If(body=body, orelse=other):
            return _is_switching(body, names) and _is_switching(other, names)
        case ast.For(target=target, iter=ast.Attribute() as part, body=body):
            return _is_part(part, names) and _is_switching(body, names | _names(target))
        case ast.For(target=target, iter=ast.Call(func=ast.Name("enumerate"), args=[part]), body=body):
            return _is_part(part, names) and _is_switching(body, names | _names(target))
    return False


def _is_part(node: ast.expr, names: frozenset[str]) -> bool:
    """Whether ``node`` is one of ``names``, what has such a name, or an attribute of these at any depth."""
    while isinstance(node, ast.Attribute):
        node = node.value
    match node:
        case ast.Name(id=name):
            return name in names
        case ast.Call(func=ast.Name("getattr"), args=[held, ast.Name(id=name)]):
            return name in names or (isinstance(held, ast.Name) and held.id in names)  # `getattr(model, name)`
        case ast.Call(func=ast.Attribute(attr="get_submodule" | "get_parameter"), args=[ast.Name(id=name)]):
            return name in names
        case ast.Subscript(slice=ast.Name(id=name)):
            return name in names  # `parts[name]`
    return False


def _is_flag(node: ast.expr, names: frozenset[str]) -> bool:
    """Whether ``node`` is a constant, or what the loop gives for one: `for part, flag in (...)`."""
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id in names)


def _keeps_nothing(called: ast.expr) -> bool:
    """Whether ``called`` is no method that puts what it gets into a list or a dict."""
    return isinstance(called, ast.Name) or (isinstance(called, ast.Attribute) and called.attr not in _PUTTING)


def _names(target: ast.expr) -> frozenset[str]:
    """The names that a loop binds."""
    return frozenset(part.id for part in ast.walk(target) if isinstance(part, ast.Name))
