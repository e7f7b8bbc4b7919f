"""The spellings: functions that rewrite a program and leave what it means. A file beside this one adds some by name.

Each gets a tree that is its own, changes it and tells whether there was anything to change; a change that it cannot
finish without another meaning is none.
"""

from __future__ import annotations

import ast
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: The files of :mod:`tests.spelling` that define spellings.
_FILES = (
    "imports",
    "calls",
    "settings",
    "classes",
    "statements",
    "modules",
    "guards",
    "containers",
    "training",
    "configured",
    "habits",
    "wrappers",
)

_found: dict[str, Callable[[ast.Module], dict[str, ast.Module] | None]] = {}


class Spelled(NamedTuple):
    """A program in another spelling."""

    name: str
    #: The text of each file by its name; `example.py` is the one that is checked.
    files: dict[str, str]


def spelling(rewrite: Callable[[ast.Module], bool]) -> Callable[[ast.Module], bool]:
    """A spelling in one file: ``rewrite`` changes the tree and tells whether it did."""
    _found[rewrite.__name__] = lambda tree: {"example.py": tree} if rewrite(tree) else None
    return rewrite


def in_files(rewrite: Callable[[ast.Module], dict[str, ast.Module] | None]) -> Callable[..., object]:
    """A spelling in several files: ``rewrite`` gives them by name, None where it does not fit."""
    _found[rewrite.__name__] = rewrite
    return rewrite


def names() -> list[str]:
    """The names of all spellings."""
    for file in _FILES:
        import_module(f"{__package__}.{file}")
    return [*_found]


def spelled(code: str, wanted: str) -> Spelled | None:
    """``code`` in the spelling ``wanted``; None where that does not fit."""
    files = _found[wanted](ast.parse(code))
    if files is None:
        return None
    texts = {name: ast.unparse(ast.fix_missing_locations(tree)) for name, tree in files.items()}
    for name, text in texts.items():
        compile(text, name, "exec")
    return Spelled(wanted, texts)


def statements(source: str) -> list[ast.stmt]:
    """The statements of ``source``."""
    return ast.parse(source).body


def expression(source: str) -> ast.expr:
    """The expression ``source``."""
    return ast.parse(source, mode="eval").body


def is_definition(statement: ast.stmt) -> bool:
    """Whether it is an import, a function or a class."""
    return isinstance(statement, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def put_first(tree: ast.Module, added: list[ast.stmt]) -> None:
    """Put ``added`` at the top, behind `from __future__`."""
    at = sum(isinstance(statement, ast.ImportFrom) and statement.module == "__future__" for statement in tree.body)
    tree.body[at:at] = added


def behind_imports(tree: ast.Module) -> int:
    """Where the statements behind the last import of the module begin."""
    return max(at for at, it in enumerate(tree.body) if isinstance(it, ast.Import | ast.ImportFrom)) + 1


def names_in(nodes: list[ast.stmt]) -> set[str]:
    """The variables that ``nodes`` speak of."""
    return {node.id for part in nodes for node in ast.walk(part) if isinstance(node, ast.Name)}


def names_bound(nodes: list[ast.stmt]) -> set[str]:
    """The variables that ``nodes`` bind, and their parameters."""
    found = set()
    for node in (node for part in nodes for node in ast.walk(part)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
    return found


def checkpoint_names(tree: ast.Module) -> list[str]:
    """What torch's `checkpoint` and `checkpoint_sequential` are called where they are imported by name."""
    return [
        alias.asname or alias.name
        for statement in tree.body
        if isinstance(statement, ast.ImportFrom) and "checkpoint" in (statement.module or "")
        for alias in statement.names
        if alias.name in ("checkpoint", "checkpoint_sequential")
    ]


def forwards(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Every `forward` of a class."""
    for cls in ast.walk(tree):
        if isinstance(cls, ast.ClassDef):
            yield from (part for part in cls.body if isinstance(part, ast.FunctionDef) and part.name == "forward")


def methods(cls: ast.ClassDef) -> list[ast.FunctionDef]:
    """The methods of ``cls`` that have an object."""
    found = [part for part in cls.body if isinstance(part, ast.FunctionDef) and part.args.args]
    return [part for part in found if part.args.args[0].arg == "self"]


def inner_scopes(tree: ast.Module) -> set[ast.AST]:
    """The nodes in lambdas and comprehensions, which are no place for a statement."""
    kinds = ast.Lambda | ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp
    return {inner for node in ast.walk(tree) if isinstance(node, kinds) for inner in ast.walk(node)}
