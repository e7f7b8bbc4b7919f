"""Other statements that do the same."""

from __future__ import annotations

import ast
import copy

from .spellings import expression, inner_scopes, put_first, spelling
from .spellings import statements as parsed


class _InFunctions(ast.NodeTransformer):
    """Assignments of functions and of the module; those of a class body are its fields."""

    def __init__(self) -> None:
        self.hit = False

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        node.body = [self.visit(part) if isinstance(part, ast.FunctionDef) else part for part in node.body]
        return node


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """The functions but constructors, generators, and those that begin with a docstring."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and node.name != "__init__"
        and not _is_docstring(node.body[0])
        and not any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(node))
    ]


@spelling
def results_in_a_variable(tree: ast.Module) -> bool:
    """`result_ = f(x)` and `return result_`."""

    class Kept(_InFunctions):
        def visit_Return(self, node: ast.Return) -> ast.stmt | list[ast.stmt]:
            if node.value is None or isinstance(node.value, ast.Name | ast.Constant):
                return node
            self.hit = True
            return [ast.Assign([ast.Name("result_", ast.Store())], node.value), *parsed_return("result_")]

    kept = Kept()
    kept.visit(tree)
    return kept.hit


def parsed_return(name: str) -> list[ast.stmt]:
    """`return name`."""
    return [ast.Return(ast.Name(name, ast.Load()))]


@spelling
def two_assignments_in_one(tree: ast.Module) -> bool:
    """`x, _ = f(x), None`."""

    class Paired(_InFunctions):
        def visit_Assign(self, node: ast.Assign) -> ast.stmt:
            match node.targets:
                case [ast.Name() as target]:
                    self.hit = True
                    pair = ast.Tuple([target, ast.Name("_", ast.Store())], ast.Store())
                    return ast.Assign([pair], ast.Tuple([node.value, ast.Constant(None)], ast.Load()))
            return node

    paired = Paired()
    paired.visit(tree)
    return paired.hit


@spelling
def annotated_variables(tree: ast.Module) -> bool:
    """`x: object = f(x)`."""
    if any(isinstance(node, ast.Global | ast.Nonlocal) for node in ast.walk(tree)):
        return False

    class Annotated(_InFunctions):
        def visit_Assign(self, node: ast.Assign) -> ast.stmt:
            match node.targets:
                case [ast.Name() as target]:
                    self.hit = True
                    return ast.AnnAssign(target, ast.Name("object", ast.Load()), node.value, 1)
            return node

    annotated = Annotated()
    annotated.visit(tree)
    return annotated.hit


@spelling
def named_in_the_expression(tree: ast.Module) -> bool:
    """`f((named_ := g(x)))`."""
    skipped, hit = inner_scopes(tree), False
    for node in [*ast.walk(tree)]:
        if isinstance(node, ast.Call) and node not in skipped and node.args and isinstance(node.args[0], ast.Call):
            hit = True
            node.args[0] = ast.NamedExpr(ast.Name("named_", ast.Store()), node.args[0])
    return hit


@spelling
def under_a_context(tree: ast.Module) -> bool:
    """`with contextlib.nullcontext():` around the body of each function."""
    found = _functions(tree)
    for function in found:
        function.body = [ast.With([ast.withitem(expression("contextlib.nullcontext()"))], function.body)]
    put_first(tree, parsed("import contextlib"))
    return bool(found)


@spelling
def with_a_finally(tree: ast.Module) -> bool:
    """`try: ... finally: print("done")` around the body of each function."""
    found = _functions(tree)
    for function in found:
        function.body = [ast.Try(function.body, [], [], parsed("print('done')"))]
    return bool(found)


@spelling
def numbered_by_enumerate(tree: ast.Module) -> bool:
    """`for _index, block in enumerate(blocks)`."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.For) and isinstance(node.target, ast.Name)]
    for loop in found:
        loop.iter = ast.Call(ast.Name("enumerate", ast.Load()), [loop.iter], [])
        loop.target = ast.Tuple([ast.Name("_index", ast.Store()), loop.target], ast.Store())
    return bool(found)


@spelling
def taken_by_number(tree: ast.Module) -> bool:
    """`for _i in range(len(self.blocks)): block = self.blocks[_i]`."""
    hit = False
    for loop in [*ast.walk(tree)]:
        match loop:
            case ast.For(target=ast.Name() as target, iter=ast.Attribute() as held):
                hit = True
                element = ast.Subscript(copy.deepcopy(held), ast.Name("_i", ast.Load()), ast.Load())
                loop.body.insert(0, ast.Assign([target], element))
                loop.target = ast.Name("_i", ast.Store())
                loop.iter = ast.Call(
                    ast.Name("range", ast.Load()), [ast.Call(ast.Name("len", ast.Load()), [held], [])], []
                )
    return hit


@spelling
def loops_for_comprehensions(tree: ast.Module) -> bool:
    """`items_1 = []`, `items_1.append(...)` in a loop, for a list in an assignment."""

    class Looped(_InFunctions):
        count = 0

        def visit_Assign(self, node: ast.Assign) -> ast.stmt | list[ast.stmt]:
            parts = [*ast.walk(node.value)]
            lists = [part for part in parts if isinstance(part, ast.ListComp) and len(part.generators) == 1]
            if len(lists) != 1 or any(isinstance(part, ast.Lambda | ast.IfExp | ast.GeneratorExp) for part in parts):
                return node
            made, (loop,) = lists[0], lists[0].generators
            self.hit = True
            self.count += 1
            name = f"items_{self.count}"
            added: ast.stmt = ast.Expr(ast.Call(expression(f"{name}.append"), [made.elt], []))
            for test in loop.ifs:
                added = ast.If(test, [added], [])

            class Replaced(ast.NodeTransformer):
                def visit(self, inner: ast.AST) -> ast.AST:
                    return ast.Name(name, ast.Load()) if inner is made else self.generic_visit(inner)

            node.value = Replaced().visit(node.value)
            return [*parsed(f"{name} = []"), ast.For(loop.target, loop.iter, [added], []), node]

    looped = Looped()
    looped.visit(tree)
    return looped.hit
