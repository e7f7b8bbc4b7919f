"""Modules of one's own that make the checkpoint around another module."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .spellings import behind_imports, checkpoint_names, methods, spelling, statements

if TYPE_CHECKING:
    from collections.abc import Iterator


def _calls(cls: ast.ClassDef, names: list[str]) -> Iterator[tuple[ast.Call, str, str]]:
    """The checkpoints of a part of the object: the call, the name of the part, and the variant as it is written."""
    for method in methods(cls):
        loops = [node for node in ast.walk(method) if isinstance(node, ast.For)]
        parts = {loop.target.id: loop.iter for loop in loops if isinstance(loop.target, ast.Name) and _own(loop.iter)}
        for node in ast.walk(method):
            match node:
                case ast.Call(
                    func=ast.Name(id=name), args=[run, *_], keywords=[ast.keyword("use_reentrant", ast.Constant(value))]
                ) if name in names:
                    held = parts.get(run.id, run) if isinstance(run, ast.Name) else run
                    if _own(held):
                        yield node, _own(held), str(value)


def _own(node: ast.expr) -> str:
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name
    return ""


def _wrap(tree: ast.Module, name: str, wrapper: str) -> bool:
    """Put each module that an attribute ``name`` is made of into ``wrapper``; False where it is not made so."""
    made = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and _own(node.targets[0]) == name
    ]
    uses = sum(isinstance(node, ast.Attribute) and node.attr == name for node in ast.walk(tree))
    if len(made) != 1 or uses != 2 or not isinstance(made[0].value, ast.Call):
        return False
    match made[0].value:
        case ast.Call(func=ast.Attribute(attr="ModuleList"), args=[ast.ListComp() | ast.GeneratorExp() as each]):
            each.elt = ast.Call(ast.Name(wrapper, ast.Load()), [each.elt], [])
        case ast.Call(func=ast.Attribute(attr="ModuleList")):
            return False
        case call:
            made[0].value = ast.Call(ast.Name(wrapper, ast.Load()), [call], [])
    return True


@spelling
def wrapped_in_a_module(tree: ast.Module) -> bool:
    """`self.block = RecomputedFalse(Block())`, whose `forward` makes the checkpoint of what it holds."""
    names = [name for name in checkpoint_names(tree) if name == "checkpoint"]
    found: dict[str, str] = {}
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        for call, name, variant in [*_calls(cls, names)]:
            wrapper = f"Recomputed{variant}"
            if _wrap(tree, name, wrapper):
                found[wrapper] = variant
                call.func, call.args, call.keywords = call.args[0], call.args[1:], []
    at = behind_imports(tree) if found else 0
    for wrapper, variant in found.items():
        init = "    def __init__(self, module):\n        super().__init__()\n        self.module = module"
        run = f"return checkpoint(self.module, *args, use_reentrant={variant})"
        text = f"class {wrapper}(nn.Module):\n{init}\n    def forward(self, *args):\n        {run}"
        tree.body[at:at] = statements(text)
    return bool(found)
