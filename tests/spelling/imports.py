"""Other ways to name what is imported."""

from __future__ import annotations

import ast

from .spellings import behind_imports, checkpoint_names, expression, names_bound, spelling, statements


@spelling
def imported_under_another_name(tree: ast.Module) -> bool:
    """`from m import n as _n_fn`."""
    renamed = {}
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module != "__future__":
            for alias in statement.names:
                if alias.asname is None and alias.name != "*":
                    alias.asname = renamed[alias.name] = f"_{alias.name}_fn"
    if not renamed or not names_bound(tree.body).isdisjoint(renamed):
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in renamed:
            node.id = renamed[node.id]
    return True


@spelling
def by_the_module(tree: ast.Module) -> bool:
    """`import m` and `m.n`."""
    moved: dict[str, str] = {}
    body: list[ast.stmt] = []
    for statement in tree.body:
        match statement:
            case ast.ImportFrom(module=str(module), names=names) if module != "__future__":
                if any(alias.name == "*" for alias in names):
                    return False
                moved |= {alias.asname or alias.name: f"{module}.{alias.name}" for alias in names}
                body.append(ast.Import([ast.alias(module)]))
            case _:
                body.append(statement)
    if not moved or not names_bound(tree.body).isdisjoint(moved):
        return False

    class Moved(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return expression(moved[node.id]) if node.id in moved else node

    tree.body = body
    Moved().visit(tree)
    return True


@spelling
def kept_in_a_variable(tree: ast.Module) -> bool:
    """`ckpt_checkpoint = checkpoint`."""
    names = checkpoint_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in names:
            node.id = f"ckpt_{node.id}"
    at = behind_imports(tree) if names else 0
    tree.body[at:at] = [part for name in names for part in statements(f"ckpt_{name} = {name}")]
    return bool(names)
