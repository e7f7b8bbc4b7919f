"""Other places for the literals that calls are given."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from .spellings import expression, put_first, spelling, statements

if TYPE_CHECKING:
    from collections.abc import Callable


def moved(tree: ast.Module, written: Callable[[str], str]) -> dict[str, object]:
    """The numbers and switches that keywords give, by new names; in their place stands what ``written`` gives."""
    found: dict[str, object] = {}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        for word in call.keywords:
            if word.arg and isinstance(word.value, ast.Constant) and isinstance(word.value.value, int | float):
                name = f"{word.arg}_{len(found)}"
                found[name] = word.value.value
                word.value = expression(written(name))
    return found


@spelling
def from_constants(tree: ast.Module) -> bool:
    """`USE_REENTRANT = False` at the top."""
    found = moved(tree, str.upper)
    put_first(tree, statements("\n".join(f"{name.upper()} = {value!r}" for name, value in found.items())))
    return bool(found)


@spelling
def from_a_dict(tree: ast.Module) -> bool:
    """`CFG["use_reentrant"]`."""
    found = moved(tree, lambda name: f"CFG[{name!r}]")
    put_first(tree, statements(f"CFG = {found!r}"))
    return bool(found)


@spelling
def from_a_namespace(tree: ast.Module) -> bool:
    """`cfg = SimpleNamespace(use_reentrant=False)`."""
    found = moved(tree, lambda name: f"cfg_of_run.{name}")
    given = ", ".join(f"{name}={value!r}" for name, value in found.items())
    put_first(tree, statements(f"from types import SimpleNamespace\ncfg_of_run = SimpleNamespace({given})"))
    return bool(found)


@spelling
def from_a_dataclass(tree: ast.Module) -> bool:
    """`@dataclass class RunConfig: use_reentrant: bool = False`."""
    found = moved(tree, lambda name: f"cfg_of_run.{name}")
    fields = "\n".join(f"    {name}: {type(value).__name__} = {value!r}" for name, value in found.items()) or "    pass"
    head = "from dataclasses import dataclass\n@dataclass\nclass RunConfig:\n"
    put_first(tree, statements(f"{head}{fields}\ncfg_of_run = RunConfig()"))
    return bool(found)


@spelling
def from_a_class(tree: ast.Module) -> bool:
    """`class RunConfig: use_reentrant = False`."""
    found = moved(tree, lambda name: f"RunConfig.{name}")
    fields = "\n".join(f"    {name} = {value!r}" for name, value in found.items()) or "    pass"
    put_first(tree, statements(f"class RunConfig:\n{fields}"))
    return bool(found)
