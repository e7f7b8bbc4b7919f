"""Other shapes of the same classes."""

from __future__ import annotations

import ast
import copy

from .spellings import is_definition, names_in, spelling, statements


def _is_forward(part: ast.stmt) -> bool:
    return isinstance(part, ast.FunctionDef) and part.name == "forward"


def _calls_super(parts: list[ast.stmt]) -> bool:
    return "super" in names_in(parts)


def _split(tree: ast.Module, forward_below: bool) -> bool:
    """Make two classes of each with a `forward`: one has that, the other the rest; the upper one is `NameBase`."""
    body: list[ast.stmt] = []
    hit = False
    for cls in tree.body:
        if not isinstance(cls, ast.ClassDef) or cls.decorator_list or len(cls.body) < 2:
            body.append(cls)
            continue
        forward = [part for part in cls.body if _is_forward(part)]
        rest = [part for part in cls.body if not _is_forward(part)]
        if not forward or (not forward_below and _calls_super(forward)):
            body.append(cls)
            continue
        hit = True
        base, below = copy.deepcopy(cls), copy.deepcopy(cls)
        base.name = f"{cls.name}Base"
        below.bases, below.keywords = [ast.Name(base.name, ast.Load())], []
        base.body, below.body = (rest, forward) if forward_below else (forward, rest)
        body += [base, below]
    tree.body = body
    return hit


@spelling
def all_but_forward_in_a_base(tree: ast.Module) -> bool:
    """`class BlockBase(nn.Module)` with the constructor, `class Block(BlockBase)` with `forward`."""
    return _split(tree, forward_below=True)


@spelling
def forward_in_a_base(tree: ast.Module) -> bool:
    """`class BlockBase(nn.Module)` with `forward`, `class Block(BlockBase)` with the rest."""
    return _split(tree, forward_below=False)


@spelling
def forward_in_another_method(tree: ast.Module) -> bool:
    """`def forward(self, x): return self._forward_impl(x)`."""
    hit = False
    if "_forward_impl" in ast.unparse(tree):
        return False  # It is spelled so already.
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for at, forward in enumerate(cls.body):
            if not _is_forward(forward) or forward.decorator_list:
                continue
            hit = True
            new = copy.deepcopy(forward)
            given = forward.args
            stars = [] if given.vararg is None else [ast.Starred(ast.Name(given.vararg.arg, ast.Load()), ast.Load())]
            words = [ast.keyword(it.arg, ast.Name(it.arg, ast.Load())) for it in given.kwonlyargs]
            words += [] if given.kwarg is None else [ast.keyword(None, ast.Name(given.kwarg.arg, ast.Load()))]
            plain = [ast.Name(it.arg, ast.Load()) for it in (*given.posonlyargs, *given.args)[1:]]
            method = ast.Attribute(ast.Name("self", ast.Load()), "_forward_impl", ast.Load())
            new.body = [ast.Return(ast.Call(method, [*plain, *stars], words))]
            forward.name = "_forward_impl"
            cls.body.insert(at, new)
            break
    return hit


@spelling
def modules_added_by_name(tree: ast.Module) -> bool:
    """`self.add_module("linear", nn.Linear(8, 8))`."""
    hit = False

    class Added(ast.NodeTransformer):
        def visit_Assign(self, node: ast.Assign) -> ast.stmt:
            nonlocal hit
            match node:
                case ast.Assign(
                    targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)],
                    value=ast.Call(func=ast.Attribute(value=ast.Name(id="nn"), attr=kind)),
                ) if kind != "Parameter":
                    hit = True
                    method = ast.Attribute(ast.Name("self", ast.Load()), "add_module", ast.Load())
                    return ast.Expr(ast.Call(method, [ast.Constant(name), node.value], []))
            return node

    Added().visit(tree)
    return hit


@spelling
def lists_filled_in_a_loop(tree: ast.Module) -> bool:
    """`self.blocks = nn.ModuleList()` and `self.blocks.append(...)` in a loop."""
    hit = False

    class Filled(ast.NodeTransformer):
        def visit_Assign(self, node: ast.Assign) -> ast.stmt | list[ast.stmt]:
            nonlocal hit
            match node:
                case ast.Assign(
                    targets=[ast.Attribute() as target],
                    value=ast.Call(
                        func=ast.Attribute(attr="ModuleList"),
                        args=[ast.ListComp(generators=[loop]) | ast.GeneratorExp(generators=[loop]) as made],
                    ) as call,
                ):
                    hit = True
                    call.args = []
                    held = copy.deepcopy(target)
                    held.ctx = ast.Load()
                    added: ast.stmt = ast.Expr(ast.Call(ast.Attribute(held, "append", ast.Load()), [made.elt], []))
                    for test in loop.ifs:
                        added = ast.If(test, [added], [])
                    return [node, ast.For(loop.target, loop.iter, [added], [])]
            return node

    Filled().visit(tree)
    return hit


@spelling
def functions_as_methods(tree: ast.Module) -> bool:
    """`class Runner: def train(self, ...)`, and `runner = Runner()` for the statements below."""
    functions = [part for part in tree.body if isinstance(part, ast.FunctionDef) and not part.decorator_list]
    names = {function.name for function in functions}
    classes = [part for part in tree.body if isinstance(part, ast.ClassDef)]
    last = tree.body.index(functions[-1]) if functions else 0
    if (
        not functions
        or any(not is_definition(part) for part in tree.body[:last])
        or not names.isdisjoint(names_in(classes))
        or not {"self", "super"}.isdisjoint(names_in(functions))
        or any(argument.arg in {"self", *names} for function in functions for argument in function.args.args)
    ):
        return False

    class Owned(ast.NodeTransformer):
        def __init__(self, owner: str) -> None:
            self.owner = owner

        def visit_Name(self, node: ast.Name) -> ast.expr:
            own = node.id in names and isinstance(node.ctx, ast.Load)
            return ast.Attribute(ast.Name(self.owner, ast.Load()), node.id, ast.Load()) if own else node

    for function in functions:
        function.body = [Owned("self").visit(part) for part in function.body]
        function.args.args.insert(0, ast.arg("self"))
    rest = [Owned("runner").visit(part) for part in tree.body if not is_definition(part)]
    kept = [part for part in tree.body if is_definition(part) and part not in functions]
    made = statements("runner = Runner()") if rest else []
    tree.body = [*kept, ast.ClassDef("Runner", [], [], [*functions], []), *made, *rest]
    return True


@spelling
def documented(tree: ast.Module) -> bool:
    """Docstrings, which are statements too."""
    hit = False
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            hit = True
            node.body.insert(0, ast.Expr(ast.Constant("What it does.")))
    return hit
