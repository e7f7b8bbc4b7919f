"""Other ways to write the training around a model."""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING

from .spellings import (
    behind_imports,
    expression,
    is_definition,
    names_bound,
    names_in,
    put_first,
    spelling,
    statements,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def _backward(tree: ast.Module, written: Callable[[ast.expr], ast.expr]) -> bool:
    """Put ``written`` of the loss in the place of each `loss.backward()`."""
    hit = False
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=loss, attr="backward"), args=[], keywords=[])):
                if (
                    isinstance(loss, ast.Name)
                    and "loss" not in loss.id
                    and loss.id in ("model", "engine", "accelerator")
                ):
                    continue
                hit = True
                node.value = written(loss)
    return hit


@spelling
def scaled_losses(tree: ast.Module) -> bool:
    """`scaler.scale(loss).backward()`."""
    hit = _backward(
        tree, lambda loss: ast.Call(ast.Attribute(_call("scaler.scale", loss), "backward", ast.Load()), [], [])
    )
    put_first(tree, statements('import torch\nscaler = torch.amp.GradScaler("cuda")'))
    return hit


@spelling
def divided_losses(tree: ast.Module) -> bool:
    """`(loss / ACCUMULATION).backward()`."""
    divided = ast.Name("ACCUMULATION", ast.Load())
    hit = _backward(
        tree,
        lambda loss: ast.Call(ast.Attribute(ast.BinOp(loss, ast.Div(), divided), "backward", ast.Load()), [], []),
    )
    put_first(tree, statements("ACCUMULATION = 4"))
    return hit


@spelling
def backward_by_accelerate(tree: ast.Module) -> bool:
    """`accelerator.backward(loss)`."""
    if "accelerator" in names_in(tree.body) or "accelerate" in ast.unparse(tree):
        return False
    hit = _backward(tree, lambda loss: _call("accelerator.backward", loss))
    put_first(tree, statements("from accelerate import Accelerator\naccelerator = Accelerator()"))
    return hit


def _call(function: str, argument: ast.expr) -> ast.expr:
    return ast.Call(expression(function), [argument], [])


@spelling
def moved_to_a_device(tree: ast.Module) -> bool:
    """`model = Net().to(DEVICE)`."""
    classes = {it.name for it in tree.body if isinstance(it, ast.ClassDef) and "Module" in map(_last, it.bases)}
    hit = False
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name()], value=ast.Call(func=ast.Name(id=name)) as made) if name in classes:
                hit = True
                node.value = ast.Call(ast.Attribute(made, "to", ast.Load()), [expression("DEVICE")], [])
    if hit:
        at = behind_imports(tree)
        tree.body[at:at] = statements('DEVICE = "cuda" if torch.cuda.is_available() else "cpu"')
        put_first(tree, statements("import torch"))
    return hit


def _last(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def _training_loop(tree: ast.Module) -> tuple[int, ast.stmt, list[str]] | None:
    """The last loop of the module, what it stands at, and the variables of the module that it uses."""
    loops = [at for at, part in enumerate(tree.body) if isinstance(part, ast.For | ast.While | ast.With)]
    if not loops:
        return None
    loop = tree.body[loops[-1]]
    own, rest = names_bound([loop]), [part for part in tree.body if part is not loop]
    behind = names_in(tree.body[loops[-1] + 1 :])
    values = names_bound([part for part in rest if not is_definition(part)])
    used = sorted(values & names_in([loop]))
    if own & values or own & behind or not used or any(isinstance(it, ast.Lambda) for it in ast.walk(loop)):
        return None
    return loops[-1], loop, used


@spelling
def loop_in_a_function(tree: ast.Module) -> bool:
    """`def train(model, optimizer, loader): for ...` and `train(model, optimizer, loader)`."""
    found = _training_loop(tree)
    if found is None or "train_the_model" in names_in(tree.body):
        return False
    at, loop, used = found
    (function,) = statements(f"def train_the_model({', '.join(used)}):\n    pass")
    function.body = [loop]
    tree.body[at : at + 1] = [function, *statements(f"train_the_model({', '.join(used)})")]
    return True


@spelling
def loop_in_an_engine(tree: ast.Module) -> bool:
    """`class Engine` with `self.model = model` and `def fit(self): for ...`."""
    found = _training_loop(tree)
    if found is None:
        return False
    at, loop, used = found

    class Held(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return expression(f"self.{node.id}") if node.id in used else node

    stored = "".join(f"        self.{name} = {name}\n" for name in used)
    (engine,) = statements(
        f"class Engine:\n    def __init__(self, {', '.join(used)}):\n{stored}    def fit(self):\n        pass"
    )
    engine.body[1].body = [Held().visit(copy.deepcopy(loop))]
    tree.body[at : at + 1] = [engine, *statements(f"Engine({', '.join(used)}).fit()")]
    return True
