"""The plain call beside the checkpoint: behind flags that are on, and while the model trains."""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING

from .spellings import behind_imports, checkpoint_names, expression, methods, names_in, spelling, statements

if TYPE_CHECKING:
    from collections.abc import Callable

#: The keywords that are checkpoint's own, not the function's.
_OWN = ("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop")


def _plain(call: ast.expr | None, names: list[str]) -> ast.Call | None:
    """The call that ``call``, of torch's `checkpoint`, runs; None where it is no such call."""
    match call:
        case ast.Call(func=ast.Name(id=name), args=[function, *given], keywords=words) if name in names:
            if name == "checkpoint_sequential" or not all(word.arg for word in words):
                return None
            kept = [copy.deepcopy(word) for word in words if word.arg not in _OWN]
            return ast.Call(copy.deepcopy(function), [copy.deepcopy(it) for it in given], kept)
    return None


def _branched(body: list[ast.stmt], test: ast.expr, names: list[str]) -> bool:
    """Put each statement of ``body`` that is a checkpoint under `if test:`, with the plain call in the other branch."""
    hit = False
    for statement in [part for holder in body for part in ast.walk(holder)]:
        if isinstance(statement, ast.If):
            continue  # It is chosen already.
        for field in ("body", "orelse", "finalbody"):
            block = getattr(statement, field, None)
            if isinstance(block, list):
                hit |= _branch_block(block, test, names)
    return _branch_block(body, test, names) or hit


def _branch_block(block: list[ast.stmt], test: ast.expr, names: list[str]) -> bool:
    hit = False
    for at, statement in enumerate(block):
        if isinstance(statement, ast.Assign | ast.Return | ast.Expr):
            plain = _plain(statement.value, names)
            if plain is not None:
                other = copy.deepcopy(statement)
                other.value = plain
                block[at] = ast.If(copy.deepcopy(test), [statement], [other])
                hit = True
    return hit


def _set_in(cls: ast.ClassDef, asked: bool) -> None:
    """Set `self.use_checkpoint` in the constructor of ``cls``: by a parameter that is True if left out, if ``asked``."""
    for part in cls.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            part.body.append(*statements(f"self.use_checkpoint = {'use_checkpoint' if asked else True}"))
            if asked:
                part.args.kwonlyargs.append(ast.arg("use_checkpoint"))
                part.args.kw_defaults.append(ast.Constant(True))
            return
    cls.body[:0] = statements("use_checkpoint = True")


def _is_constructed(tree: ast.Module, cls: ast.ClassDef) -> bool:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(it, ast.Name) and it.id == cls.name for it in calls)


def _flagged(tree: ast.Module, test: str) -> bool:
    names, hit = checkpoint_names(tree), False
    if "use_checkpoint" in ast.unparse(tree):
        return False
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        touched = [_branched(it.body, expression(test), names) for it in methods(cls) if it.name != "__init__"]
        if any(touched):
            hit = True
            _set_in(cls, _is_constructed(tree, cls))
    return hit


@spelling
def behind_a_flag(tree: ast.Module) -> bool:
    """`if self.use_checkpoint: x = checkpoint(block, x)`, `else: x = block(x)`."""
    return _flagged(tree, "self.use_checkpoint")


def _asks_for_the_mode(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("eval", "train", "training", "trainable")
        for node in ast.walk(tree)
    )


@spelling
def behind_a_flag_and_the_mode(tree: ast.Module) -> bool:
    """`if self.training and self.use_checkpoint:`."""
    return not _asks_for_the_mode(tree) and _flagged(tree, "self.training and self.use_checkpoint")


def _replaced(tree: ast.Module, written: Callable[[ast.Call, ast.Call], ast.expr], names: list[str]) -> bool:
    """Put what ``written`` makes of a checkpoint and its plain call in the place of each in a method."""

    class Replaced(ast.NodeTransformer):
        hit = False

        def visit_Expr(self, node: ast.Expr) -> ast.Expr:
            return node  # A statement is no place for a choice.

        def visit_Call(self, node: ast.Call) -> ast.expr:
            plain = _plain(node, names)
            self.generic_visit(node)
            if plain is None:
                return node
            self.hit = True
            return written(node, plain)

    replaced = Replaced()
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for method in methods(cls):
            replaced.visit(method)
    return replaced.hit


@spelling
def chosen_in_the_expression(tree: ast.Module) -> bool:
    """`x = checkpoint(block, x) if self.training else block(x)`."""
    if _asks_for_the_mode(tree):
        return False
    names = checkpoint_names(tree)
    return _replaced(tree, lambda call, plain: ast.IfExp(expression("self.training"), call, plain), names)


@spelling
def chosen_function(tree: ast.Module) -> bool:
    """`run_checkpoint = checkpoint if USE_CHECKPOINT else (lambda function, *args, **_: function(*args))`."""
    names = [name for name in checkpoint_names(tree) if name != "checkpoint_sequential"]
    hit = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            hit, node.func.id = True, f"run_{node.func.id}"
    if hit:
        plain = "(lambda function, *args, **_: function(*args))"
        chosen = "".join(f"run_{name} = {name} if USE_CHECKPOINT else {plain}\n" for name in names)
        at = behind_imports(tree)
        tree.body[at:at] = statements(f"USE_CHECKPOINT = True\n{chosen}")
    return hit


@spelling
def helper_in_a_mixin(tree: ast.Module) -> bool:
    """`class Checkpointed: def _run_checkpoint(self, function, *args, **kwargs)`, a base of the classes that call it."""
    names = checkpoint_names(tree)
    users = []
    for cls in tree.body:
        if isinstance(cls, ast.ClassDef) and cls.bases and names_in([*cls.body]) & {*names}:
            for method in methods(cls):
                for node in ast.walk(method):
                    match node:
                        case ast.Call(func=ast.Name(id=name)) if name in names:
                            node.func = expression(f"self._run_{name}")
                            users.append(cls)
    for cls in {id(cls): cls for cls in users}.values():
        cls.bases.insert(0, ast.Name("Checkpointed", ast.Load()))
    helper = "    def _run_{0}(self, function, *args, **kwargs):\n        return {0}(function, *args, **kwargs)\n"
    mixin = "class Checkpointed:\n" + "".join(map(helper.format, names))
    at = behind_imports(tree) if users else 0
    tree.body[at:at] = statements(mixin) if users else []
    return bool(users)


@spelling
def closures_around_modules(tree: ast.Module) -> bool:
    """`create_custom_forward(block)`, with `def custom_forward(*inputs): return module(*inputs)` in it."""
    names = checkpoint_names(tree)
    hit = False
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Name("checkpoint"), args=[ast.Name() | ast.Attribute() | ast.Subscript() as run, *_]
            ):
                if "checkpoint" in names:
                    hit = True
                    node.args[0] = ast.Call(ast.Name("create_custom_forward", ast.Load()), [run], [])
    inner = "    def custom_forward(*inputs, **kwargs):\n        return module(*inputs, **kwargs)\n    return custom_forward"
    at = behind_imports(tree) if hit else 0
    tree.body[at:at] = statements(f"def create_custom_forward(module):\n{inner}") if hit else []
    return hit
