"""Other ways to make a call."""

from __future__ import annotations

import ast

from .spellings import (
    behind_imports,
    checkpoint_names,
    expression,
    forwards,
    inner_scopes,
    put_first,
    spelling,
    statements,
)


def _through(tree: ast.Module, helper: str) -> bool:
    """Call `run_checkpoint`, defined as ``helper``, in place of each `checkpoint`."""
    names = checkpoint_names(tree)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    hit = [call for call in calls if call.func.id in names]
    for call in hit:
        call.func = ast.Name(f"run_{call.func.id}", ast.Load())
    at = behind_imports(tree) if names else 0
    tree.body[at:at] = [part for name in names for part in statements(helper.replace("NAME", name))]
    return bool(hit)


@spelling
def through_a_helper(tree: ast.Module) -> bool:
    """`def run_checkpoint(*args, **kwargs): return checkpoint(*args, **kwargs)`."""
    return _through(tree, "def run_NAME(*args, **kwargs):\n    return NAME(*args, **kwargs)")


@spelling
def through_a_helper_of_functions(tree: ast.Module) -> bool:
    """The same with the function as a parameter, and the result in a variable."""
    inner = "    out = NAME(function, *args, **kwargs)\n    return out"
    return _through(tree, f"def run_NAME(function, *args, **kwargs):\n{inner}")


@spelling
def through_a_helper_for_each_variant(tree: ast.Module) -> bool:
    """`def run_checkpoint_false(function, *args): return checkpoint(function, *args, use_reentrant=False)`."""
    names, found = checkpoint_names(tree), {}
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Name(id=name) as called, keywords=[ast.keyword("use_reentrant", ast.Constant(value))]
            ):
                if name in names and node.args:
                    node.keywords, called.id = [], f"run_{name}_{value}".lower()
                    found[called.id] = f"{name}(function, *args, use_reentrant={value!r})"
    at = behind_imports(tree) if found else 0
    helpers = (f"def {name}(function, *args):\n    return {call}" for name, call in found.items())
    tree.body[at:at] = [part for helper in helpers for part in statements(helper)]
    return bool(found)


@spelling
def partial_of_checkpoint(tree: ast.Module) -> bool:
    """`functools.partial(checkpoint, use_reentrant=False)(block, x)`."""
    names, hit = checkpoint_names(tree), False
    for node in [*ast.walk(tree)]:
        match node:
            case ast.Call(func=ast.Name(id=name) as called, keywords=keywords) if name in names:
                variant = [it for it in keywords if it.arg == "use_reentrant" and isinstance(it.value, ast.Constant)]
                if variant:
                    hit = True
                    node.keywords = [it for it in keywords if it not in variant]
                    node.func = ast.Call(expression("functools.partial"), [called], variant)
    put_first(tree, statements("import functools"))
    return hit


@spelling
def keywords_from_a_dict(tree: ast.Module) -> bool:
    """`f(**{"k": v})`."""
    hit = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.keywords and all(word.arg for word in node.keywords):
            hit = True
            keys: list[ast.expr | None] = [ast.Constant(word.arg) for word in node.keywords]
            node.keywords = [ast.keyword(None, ast.Dict(keys, [word.value for word in node.keywords]))]
    return hit


@spelling
def classes_by_a_factory(tree: ast.Module) -> bool:
    """`def build_Block(*args, **kwargs): return Block(*args, **kwargs)`."""
    names = {statement.name for statement in tree.body if isinstance(statement, ast.ClassDef)}
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            used.add(node.func.id)
            node.func.id = f"build_{node.func.id}"
    body: list[ast.stmt] = []
    for statement in tree.body:
        body.append(statement)
        if isinstance(statement, ast.ClassDef) and statement.name in used:
            name = statement.name
            body += statements(f"def build_{name}(*args, **kwargs):\n    return {name}(*args, **kwargs)")
    tree.body = body
    return bool(used)


@spelling
def classes_by_a_registry(tree: ast.Module) -> bool:
    """`REGISTRY["block"](...)`."""
    classes = [at for at, statement in enumerate(tree.body) if isinstance(statement, ast.ClassDef)]
    names = [tree.body[at].name for at in classes]
    at = max(classes, default=-1) + 1
    if any(isinstance(statement, ast.Expr | ast.Assign) for statement in tree.body[:at]):
        return False
    hit = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            hit = True
            key = ast.Constant(node.func.id.lower())
            node.func = ast.Subscript(ast.Name("REGISTRY", ast.Load()), key, ast.Load())
    entries = ", ".join(f"{name.lower()!r}: {name}" for name in names)
    tree.body[at:at] = statements(f"REGISTRY = {{{entries}}}")
    return hit


@spelling
def decorated_forward(tree: ast.Module) -> bool:
    """`forward` under a decorator that does nothing."""
    found = [*forwards(tree)]
    for forward in found:
        forward.decorator_list.append(ast.Name("logged", ast.Load()))
    wrapper = "        return function(*args, **kwargs)"
    inner = f"    @functools.wraps(function)\n    def wrapper(*args, **kwargs):\n{wrapper}\n    return wrapper"
    put_first(tree, statements(f"import functools\ndef logged(function):\n{inner}"))
    return bool(found)


@spelling
def forward_under_autocast(tree: ast.Module) -> bool:
    """`@torch.amp.autocast("cuda", enabled=False)`."""
    found = [*forwards(tree)]
    for forward in found:
        forward.decorator_list.append(expression('torch.amp.autocast("cuda", enabled=False)'))
    put_first(tree, statements("import torch"))
    return bool(found)


@spelling
def lambdas_with_a_name(tree: ast.Module) -> bool:
    """`def fn_1(h): return ...` before the statement with the lambda."""
    count = 0

    class Named(ast.NodeTransformer):
        def __init__(self) -> None:
            self.made: list[ast.stmt] = []

        def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
            nonlocal count
            count += 1
            self.made.append(ast.FunctionDef(f"fn_{count}", node.args, [ast.Return(node.body)], [], None))
            return ast.Name(f"fn_{count}", ast.Load())

        def visit_ListComp(self, node: ast.expr) -> ast.expr:
            return node

        visit_GeneratorExp = visit_DictComp = visit_SetComp = visit_ListComp

    for holder in [*ast.walk(tree)]:
        for field in ("body", "orelse", "finalbody"):
            block = getattr(holder, field, None)
            if not isinstance(block, list):
                continue
            found: list[ast.stmt] = []
            for statement in block:
                named = Named()
                if isinstance(statement, ast.Assign | ast.Expr | ast.Return):
                    named.visit(statement)
                found += [*named.made, statement]
            block[:] = found
    return count > 0


@spelling
def arguments_in_variables(tree: ast.Module) -> bool:
    """`arg_1 = g(x)` before `f(arg_1)`."""
    count, skipped = 0, inner_scopes(tree)
    for holder in [*ast.walk(tree)]:
        for field in ("body", "orelse", "finalbody"):
            block = getattr(holder, field, None)
            if not isinstance(block, list):
                continue
            found: list[ast.stmt] = []
            for statement in block:
                value = getattr(statement, "value", None)
                if isinstance(value, ast.Call) and value not in skipped and isinstance(statement, ast.stmt):
                    for at, argument in enumerate(value.args):
                        if not isinstance(argument, ast.Call | ast.Name | ast.Constant | ast.Attribute | ast.Lambda):
                            break
                        if isinstance(argument, ast.Call):
                            count += 1
                            found.append(ast.Assign([ast.Name(f"arg_{count}", ast.Store())], argument))
                            value.args[at] = ast.Name(f"arg_{count}", ast.Load())
                found.append(statement)
            block[:] = found
    return count > 0
