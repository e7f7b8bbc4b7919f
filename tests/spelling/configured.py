"""Settings that reach classes and calls by objects, and what is imported by another way round."""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING

from .settings import moved
from .spellings import (
    behind_imports,
    checkpoint_names,
    expression,
    in_files,
    methods,
    put_first,
    spelling,
    statements,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def _constructors(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, list[ast.Call]]]:
    """The plain constructors of the module's classes that are no base, with all calls of the class."""
    classes = [part for part in tree.body if isinstance(part, ast.ClassDef)]
    for cls in classes:
        made = [it for it in methods(cls) if it.name == "__init__"]
        uses = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == cls.name]
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.func in uses]
        if not made or not calls or len(calls) != len(uses):
            continue
        given = made[0].args
        stars = [it for call in calls for it in call.args if isinstance(it, ast.Starred)]
        if given.vararg or given.kwarg or given.kwonlyargs or len(given.args) < 2 or stars:
            continue
        if all(word.arg for call in calls for word in call.keywords):
            yield made[0], calls


def _by_keyword(names: list[str], call: ast.Call) -> list[ast.keyword]:
    given = [ast.keyword(name, value) for name, value in zip(names, call.args, strict=False)]
    return [*given, *call.keywords]


@spelling
def constructed_by_a_config(tree: ast.Module) -> bool:
    """`Net(SimpleNamespace(dim=8))` and `dim = config.dim` in the constructor, which keeps it as `self.config`."""
    hit = False
    for init, calls in _constructors(tree):
        hit = True
        names = [it.arg for it in init.args.args][1:]
        defaults = dict(zip(names[::-1], init.args.defaults[::-1], strict=False))
        for call in calls:
            words = _by_keyword(names, call)
            missing = defaults.keys() - {word.arg for word in words}
            words += [ast.keyword(name, copy.deepcopy(defaults[name])) for name in names if name in missing]
            call.args, call.keywords = [ast.Call(expression("SimpleNamespace"), [], words)], []
        init.args.args, init.args.defaults = [ast.arg("self"), ast.arg("config")], []
        at = 1 if "super" in ast.unparse(init.body[0]) else 0
        read = "".join(f"{name} = self.config.{name}\n" for name in names)
        init.body[at:at] = statements(f"self.config = config\n{read}")
    put_first(tree, statements("from types import SimpleNamespace"))
    return hit


@spelling
def taken_from_keywords(tree: ast.Module) -> bool:
    """`def __init__(self, **kwargs): dim = kwargs.get("dim", 8)`."""
    hit = False
    for init, calls in _constructors(tree):
        hit = True
        names = [it.arg for it in init.args.args][1:]
        defaults = dict(zip(names[::-1], init.args.defaults[::-1], strict=False))
        for call in calls:
            call.args, call.keywords = [], _by_keyword(names, call)
        init.args.args, init.args.defaults, init.args.kwarg = [ast.arg("self")], [], ast.arg("kwargs")
        at = 1 if "super" in ast.unparse(init.body[0]) else 0
        for name in reversed(names):
            default = f", {ast.unparse(defaults[name])}" if name in defaults else ""
            read = f"kwargs.get({name!r}{default})" if default else f"kwargs[{name!r}]"
            init.body[at:at] = statements(f"{name} = {read}")
    return hit


@spelling
def keywords_of_the_object(tree: ast.Module) -> bool:
    """`checkpoint(block, x, **self.checkpoint_kwargs)`."""
    names, hit = checkpoint_names(tree), False
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        init = next((it for it in methods(cls) if it.name == "__init__"), None)
        calls = [node for it in methods(cls) for node in ast.walk(it) if isinstance(node, ast.Call)]
        calls = [it for it in calls if isinstance(it.func, ast.Name) and it.func.id in names and it.keywords]
        for number, call in enumerate(calls if init is not None else ()):
            if any(not word.arg or not isinstance(word.value, ast.Constant) for word in call.keywords):
                continue
            hit = True
            given = {word.arg: word.value.value for word in call.keywords}
            init.body += statements(f"self.checkpoint_kwargs_{number} = {given!r}")
            call.keywords = [ast.keyword(None, expression(f"self.checkpoint_kwargs_{number}"))]
    return hit


@spelling
def from_merged_dicts(tree: ast.Module) -> bool:
    """`CFG = {**DEFAULTS, **{"use_reentrant": False}}`, deeply copied."""
    found = moved(tree, lambda name: f"CFG[{name!r}]")
    defaults = dict.fromkeys(found)
    text = f"import copy\nDEFAULTS = {defaults!r}\nCFG = copy.deepcopy({{**DEFAULTS, **{found!r}}})"
    put_first(tree, statements(text))
    return bool(found)


@spelling
def from_an_easydict(tree: ast.Module) -> bool:
    """`cfg = EasyDict(train={"use_reentrant": False})` and `cfg.train.use_reentrant`."""
    found = moved(tree, lambda name: f"cfg_of_run.train.{name}")
    put_first(tree, statements(f"from easydict import EasyDict\ncfg_of_run = EasyDict({{'train': {found!r}}})"))
    return bool(found)


@spelling
def by_an_alias_of_the_module(tree: ast.Module) -> bool:
    """`import torch.utils.checkpoint as ckpt_module` and `ckpt_module.checkpoint`."""
    names = checkpoint_names(tree)
    body: list[ast.stmt] = []
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module == "torch.utils.checkpoint":
            taken = [alias for alias in statement.names if alias.name in names]
            statement.names = [alias for alias in statement.names if alias not in taken]
            body += statements("from torch.utils import checkpoint as ckpt_module") if taken else []
        if not isinstance(statement, ast.ImportFrom) or statement.names:
            body.append(statement)
    tree.body = body

    class Moved(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return expression(f"ckpt_module.{node.id}") if node.id in names else node

    Moved().visit(tree)
    return bool(names)


@spelling
def imported_in_a_try(tree: ast.Module) -> bool:
    """`try: from torch.utils.checkpoint import checkpoint`, `except ImportError: checkpoint = None`."""
    hit = False
    for at, statement in enumerate(tree.body):
        if isinstance(statement, ast.ImportFrom) and "checkpoint" in (statement.module or ""):
            hit = True
            other = statements("\n".join(f"{alias.asname or alias.name} = None" for alias in statement.names))
            handler = ast.ExceptHandler(ast.Name("ImportError", ast.Load()), None, other)
            tree.body[at] = ast.Try([statement], [handler], [], [])
    return hit


@in_files
def handed_on_by_a_package(tree: ast.Module) -> dict[str, ast.Module] | None:
    """`from common import checkpoint`, which `common/__init__.py` takes from `common/memory.py`."""
    moved_imports = []
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module == "torch.utils.checkpoint":
            moved_imports.append(copy.deepcopy(statement))
            statement.module = "common"
    if not moved_imports:
        return None
    return {
        "common/__init__.py": ast.Module(statements("from .memory import *"), []),
        "common/memory.py": ast.Module(moved_imports, []),
        "example.py": tree,
    }


@spelling
def helper_in_the_constructor(tree: ast.Module) -> bool:
    """`self.checkpoint_fn = functools.partial(checkpoint, use_reentrant=False)`."""
    names, hit = checkpoint_names(tree), False
    for cls in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
        init = next((it for it in methods(cls) if it.name == "__init__"), None)
        calls = [node for it in methods(cls) for node in ast.walk(it) if isinstance(node, ast.Call)]
        calls = [it for it in calls if isinstance(it.func, ast.Name) and it.func.id in names]
        for number, call in enumerate(calls if init is not None else ()):
            variant = [it for it in call.keywords if it.arg == "use_reentrant" and isinstance(it.value, ast.Constant)]
            if not variant:
                continue
            hit = True
            made = f"functools.partial({call.func.id}, use_reentrant={variant[0].value.value!r})"
            init.body += statements(f"self.checkpoint_fn_{number} = {made}")
            call.func = expression(f"self.checkpoint_fn_{number}")
            call.keywords = [it for it in call.keywords if it not in variant]
    if hit:
        at = behind_imports(tree)
        tree.body[at:at] = statements("import functools")
    return hit
