"""Which functions are generators: calling one runs nothing of its body."""

from __future__ import annotations

import ast
from bisect import bisect_left
from typing import TYPE_CHECKING

from ..nodes import inner_nodes
from ..origin import origin

if TYPE_CHECKING:
    from ..walk import Program


def yields(program: Program, node: ast.FunctionDef) -> bool:
    """Whether a call of the function gives a generator; found out once."""
    if node not in program.generators:
        program.generators[node] = _may_yield(program, node) and _is_generator(node)
    return program.generators[node]


def _may_yield(program: Program, node: ast.FunctionDef) -> bool:
    """Whether a line of the function has the word in it: the walk through all others is saved."""
    filename = origin(node)
    if filename not in program.yields:
        program.yields[filename] = _lines_with("yield", program.text_with(node))
    lines = program.yields[filename]
    index = bisect_left(lines, node.lineno)
    return index < len(lines) and lines[index] <= (node.end_lineno or lines[index])


def _lines_with(word: str, text: str) -> list[int]:
    lines: list[int] = []
    # A lone carriage return ends a line too.
    text = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
    line, before, position = 1, 0, text.find(word)
    while position >= 0:
        line += text.count("\n", before, position)
        lines.append(line)
        before, position = position, text.find(word, position + 1)
    return lines


def _is_generator(node: ast.FunctionDef) -> bool:
    stack: list[ast.AST] = [*node.body]
    while stack:
        inner = stack.pop()
        if isinstance(inner, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            stack += inner_nodes(inner)
    return False
