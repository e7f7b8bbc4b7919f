"""Other ways to hold modules and to go through them."""

from __future__ import annotations

import ast
import copy

from .spellings import behind_imports, expression, names_bound, spelling, statements


def _loops(tree: ast.Module) -> list[tuple[ast.For, str, ast.expr]]:
    """The loops over an attribute, with their variable, and the attribute."""
    found = []
    for loop in ast.walk(tree):
        match loop:
            case ast.For(target=ast.Name(id=name), iter=ast.Attribute() as held):
                found.append((loop, name, held))
    return found


def _named(tree: ast.Module, held: ast.expr) -> int:
    """How often the attribute is named, of whatever object."""
    name = getattr(held, "attr", "")
    return sum(isinstance(node, ast.Attribute) and node.attr == name for node in ast.walk(tree))


@spelling
def called_by_number(tree: ast.Module) -> bool:
    """`for i in range(len(self.blocks)): x = self.blocks[i](x)`."""
    found = [(loop, name, held) for loop, name, held in _loops(tree) if not _is_bound_late(loop.body, name)]
    for loop, name, held in found:

        class ByNumber(ast.NodeTransformer):
            wanted, at = name, held

            def visit_Name(self, node: ast.Name) -> ast.expr:
                if node.id != self.wanted:
                    return node
                return ast.Subscript(copy.deepcopy(self.at), ast.Name("_i", ast.Load()), ast.Load())

        loop.body = [ByNumber().visit(part) for part in loop.body]
        loop.target = ast.Name("_i", ast.Store())
        count = ast.Call(ast.Name("len", ast.Load()), [held], [])
        loop.iter = ast.Call(ast.Name("range", ast.Load()), [count], [])
    return bool(found)


def _is_bound_late(body: list[ast.stmt], name: str) -> bool:
    """Whether ``body`` binds ``name`` itself, or has functions, which would see another number later."""
    nodes = [node for part in body for node in ast.walk(part)]
    return name in names_bound(body) or any(isinstance(node, ast.Lambda | ast.FunctionDef) for node in nodes)


@spelling
def zipped(tree: ast.Module) -> bool:
    """`for block, _rate in zip(self.blocks, RATES)`."""
    found = _loops(tree)
    for loop, _, held in found:
        loop.iter = ast.Call(ast.Name("zip", ast.Load()), [held, ast.Name("RATES", ast.Load())], [])
        loop.target = ast.Tuple([loop.target, ast.Name("_rate", ast.Store())], ast.Store())
    if found:
        at = behind_imports(tree)
        tree.body[at:at] = statements("RATES = [0.1] * 64")
    return bool(found)


@spelling
def sliced(tree: ast.Module) -> bool:
    """`for block in self.blocks[:]`."""
    found = _loops(tree)
    for loop, _, held in found:
        loop.iter = ast.Subscript(held, ast.Slice(), ast.Load())
    return bool(found)


@spelling
def got_by_name(tree: ast.Module) -> bool:
    """`for block in getattr(self, "blocks")`."""
    found = _loops(tree)
    for loop, _, held in found:
        loop.iter = ast.Call(ast.Name("getattr", ast.Load()), [held.value, ast.Constant(held.attr)], [])
    return bool(found)


@spelling
def in_stages(tree: ast.Module) -> bool:
    """`nn.ModuleList([nn.ModuleList([...])])` and a loop in a loop."""
    looped = {(ast.unparse(held)): loop for loop, _, held in _loops(tree)}
    lists = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Attribute() as target], value=ast.Call(func=ast.Attribute(attr="ModuleList"))):
                lists[ast.unparse(target)] = node
    wanted = [name for name in lists if name in looped and _named(tree, looped[name].iter) == 2]
    for name in wanted:
        made, loop = lists[name], looped[name]
        made.value = ast.Call(copy.deepcopy(made.value.func), [ast.List([made.value], ast.Load())], [])
        inner = ast.For(loop.target, ast.Name("_stage", ast.Load()), loop.body, [])
        loop.target, loop.body = ast.Name("_stage", ast.Store()), [inner]
    breaks = any(isinstance(node, ast.Break | ast.Continue) for node in ast.walk(tree))
    return bool(wanted) and not breaks


@spelling
def lists_in_variables(tree: ast.Module) -> bool:
    """`layers = [...]` and `nn.Sequential(*layers)`, `nn.ModuleList(layers)`."""
    hit, count = False, 0
    for holder in [*ast.walk(tree)]:
        block = getattr(holder, "body", None)
        if not isinstance(block, list) or isinstance(holder, ast.ClassDef):
            continue
        found: list[ast.stmt] = []
        for statement in block:
            match statement:
                case ast.Assign(value=ast.Call(func=ast.Attribute(attr="Sequential" | "ModuleList" as kind)) as call):
                    if call.args and not call.keywords and not any(isinstance(it, ast.Starred) for it in call.args):
                        hit, count = True, count + 1
                        name = f"layers_{count}"
                        made = ast.List(call.args, ast.Load()) if kind == "Sequential" else call.args[0]
                        found.append(ast.Assign([ast.Name(name, ast.Store())], made))
                        call.args = [expression(name)]
                        if kind == "Sequential":
                            call.args = [ast.Starred(expression(name), ast.Load())]
            found.append(statement)
        block[:] = found
    return hit


@spelling
def dicts_of_modules(tree: ast.Module) -> bool:
    """`nn.ModuleDict({str(i): ... for i in ...})` and `.values()`, for a list that is only gone through."""
    looped = {ast.unparse(held): loop for loop, _, held in _loops(tree)}
    hit = False
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Attribute() as target],
                value=ast.Call(
                    func=ast.Attribute(attr="ModuleList") as kind,
                    args=[ast.ListComp(elt=made, generators=[loop]) | ast.GeneratorExp(elt=made, generators=[loop])],
                ) as call,
            ):
                name = ast.unparse(target)
                if name not in looped or _named(tree, target) != 2 or not isinstance(loop.target, ast.Name) or loop.ifs:
                    continue
                hit, kind.attr = True, "ModuleDict"
                loop.target.id = "_key" if loop.target.id == "_" else loop.target.id
                key = ast.Call(ast.Name("str", ast.Load()), [ast.Name(loop.target.id, ast.Load())], [])
                call.args = [ast.DictComp(key, made, [loop])]
                looped[name].iter = ast.Call(ast.Attribute(looped[name].iter, "values", ast.Load()), [], [])
    return hit
