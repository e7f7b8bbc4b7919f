"""Spellings that mean the same are read as one: whoever asks for assignments, or for keywords, finds them all."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from .nodes import all_nodes
from .origin import stands_for
from .plain_detach import DETACHES, detach_plainly, replaced_by_itself
from .plain_loops import CHOOSES, choose_inside

if TYPE_CHECKING:
    from collections.abc import Iterator

_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_BLOCKS = ("body", "orelse", "finalbody")
_ANNOTATION = "_ckpt_lint_annotation"
_SPREAD_DISPLAY = re.compile(r"\*\*\s*(?:\{|dict\b)")


def in_plain_syntax(tree: ast.Module, text: str) -> ast.Module:
    """``tree`` of ``text``, changed in place: `f(**{"a": 1})` as `f(a=1)`, loops over a chosen part as conditions in
    them, and assignments in one form.

    `p.requires_grad = i >= 4` becomes an `if`, `a, b = x, y` two assignments, `setattr(a, "b", x)` one, `a: T = x` one
    that remembers `T`; the annotated names of a class body stay: they are the fields of a dataclass.
    """
    spreads, chooses = _SPREAD_DISPLAY.search(text), CHOOSES.search(text)
    detaches = "checkpoint" in text and DETACHES.search(text)
    nodes = [*all_nodes(tree)] if spreads or chooses or detaches else []
    if spreads:
        _spell_keywords_out(nodes)
    if chooses:
        choose_inside(nodes)
    if detaches:
        detach_plainly(nodes)
    _assign_plainly(tree)
    return tree


def spell_keywords_out(tree: ast.AST) -> None:
    """Change the calls in ``tree`` that spread a dict that is written there: `f(**{"a": 1})` to `f(a=1)`."""
    _spell_keywords_out([*all_nodes(tree)])


def _spell_keywords_out(nodes: list[ast.AST]) -> None:
    for call in nodes:
        if isinstance(call, ast.Call):
            call.keywords = [plain for word in call.keywords for plain in _plain_keywords(word)]


def _assign_plainly(tree: ast.Module) -> None:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for name in _BLOCKS:
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                if not isinstance(node, ast.ClassDef):
                    block[:] = [plain for statement in block for plain in _plain(statement)]
                waiting += block
        waiting += getattr(node, "handlers", ())
        waiting += getattr(node, "cases", ())


def _plain_keywords(word: ast.keyword) -> list[ast.keyword]:
    """The keywords that `**{"a": 1}` or `**dict(a=1)` gives; ``word`` itself where it is none of these."""
    match word:
        case ast.keyword(arg=None, value=ast.Dict(keys=keys, values=values)):
            names = [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
            if len(names) == len(keys) == len(set(names)):
                return [_keyword(name, value) for name, value in zip(names, values, strict=True)]
        case ast.keyword(arg=None, value=ast.Call(func=ast.Name("dict"), args=[], keywords=words)):
            return [plain for inner in words for plain in _plain_keywords(inner)]
    return [word]


def _keyword(name: str, value: ast.expr) -> ast.keyword:
    plain = ast.keyword(name, value)
    stands_for(plain, value)
    return plain


def annotation_of(assignment: ast.Assign) -> ast.expr | None:
    """What the text says the value is: `T` of `a: T = x`."""
    found: ast.expr | None = getattr(assignment, _ANNOTATION, None)
    return found


def _plain(statement: ast.stmt) -> Iterator[ast.stmt]:
    chosen = _chosen_by_number(statement)
    plain = chosen if chosen is not None else replaced_by_itself(statement)
    if plain is not None:
        yield plain
        return
    match statement:
        case ast.AnnAssign(target=annotated, annotation=annotation, value=ast.expr() as value):
            plain = ast.Assign([annotated], value)
            setattr(plain, _ANNOTATION, annotation)
            stands_for(plain, statement)
            yield plain
        case ast.Assign(targets=[ast.Tuple(elts=targets) | ast.List(elts=targets)], value=ast.Tuple(elts=values)) if (
            len(targets) == len(values) and _are_apart(targets, values)
        ):
            for target, value in zip(targets, values, strict=True):
                plain = ast.Assign([target], value)
                stands_for(plain, statement)
                # The next one begins behind it, as statements do.
                plain.end_lineno, plain.end_col_offset = value.end_lineno, value.end_col_offset
                if target is not targets[0]:
                    plain.lineno, plain.col_offset = value.lineno, value.col_offset
                yield plain
        case ast.Expr(
            value=ast.Call(
                func=ast.Name("setattr"),
                args=[ast.Name() | ast.Attribute() as held, ast.Constant(value=str(name)), value],
                keywords=[],
            ) as call
        ) if name.isidentifier():
            target = ast.Attribute(held, name, ast.Store())
            stands_for(target, call)
            plain = ast.Assign([target], value)
            stands_for(plain, statement)
            yield plain
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=module, attr="apply"), args=[function], keywords=[])):
            yield statement
            if isinstance(function, ast.Lambda | ast.Name):
                yield _applied(statement, function, module)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="torch")), keywords=words) as computed) if (
            filled := next((word.value for word in words if word.arg == "out"), None)
        ) and isinstance(filled, ast.Name | ast.Attribute):
            yield _filled(statement, computed, filled)
        case ast.Expr(value=ast.ListComp(elt=ast.Call() as element, generators=generators)) if _freezes(element):
            yield _as_loop(statement, element, generators)
        case _:
            yield statement


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


def _are_apart(targets: list[ast.expr], values: list[ast.expr]) -> bool:
    """Whether no value reads what a target before it gets: `a, b = b, a` is no two assignments."""
    bound = set[str]()
    for target, value in zip(targets, values, strict=True):
        if isinstance(value, ast.Starred) or not bound.isdisjoint(_named_in(value)):
            return False
        match target:
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(), attr=name):
                bound.add(name)
            case _:
                return False
    return True


def _named_in(value: ast.expr) -> Iterator[str]:
    for node in all_nodes(value):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
