"""Places in the user's own files."""

from __future__ import annotations

import ast
import linecache
import os
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

#: The folder of this package, as frames name the files in it.
PACKAGE = os.path.abspath(sys.modules[__name__.partition(".")[0]].__path__[0])

_GROWING = frozenset({"append", "appendleft", "extend", "add", "update", "insert", "setdefault"})


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, counted from 1."""

    filename: str
    line: int

    def __str__(self) -> str:
        return f"{os.path.relpath(self.filename) if self._is_near else self.filename}:{self.line}"

    @property
    def _is_near(self) -> bool:
        return self.filename.startswith(os.getcwd() + os.sep)


@cache
def is_users(filename: str) -> bool:
    """Whether a file is the user's: no installed package, not Python's own, not ours."""
    if filename.startswith("<frozen") or not filename:
        return False
    path = os.path.realpath(filename)
    return not any(path.startswith(root + os.sep) for root in _foreign_roots())


@cache
def _foreign_roots() -> tuple[str, ...]:
    beside = [os.path.join(os.path.dirname(PACKAGE), wing) for wing in ("callbacks", "lint")]
    installed = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    packages = list(_package_folders())
    return tuple({os.path.realpath(path) for path in (PACKAGE, *beside, *installed, *packages)})


def _package_folders() -> Iterator[str]:
    """Every folder of installed packages on the path: a virtual environment may lend from another one."""
    yield from (path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages"))


def innermost_place(error: BaseException | None) -> Place | None:
    """The innermost line of the user's code that an error went through, or that waits above; None where none did."""
    trace, found = None if error is None else error.__traceback__, None
    while trace is not None:
        if is_users(trace.tb_frame.f_code.co_filename):
            found = Place(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return found or waiting_place(sys._getframe(1))


def waiting_place(frame: FrameType | None) -> Place | None:
    """The innermost line of the user's code from ``frame`` up."""
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return Place(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def growing_line(filename: str, name: str) -> int | None:
    """The one line of a file that adds to what is called ``name`` (its last part); None when none or several do."""
    lines = set(_growing_lines(filename, name.rpartition(".")[2]))
    return lines.pop() if len(lines) == 1 else None


def _growing_lines(filename: str, name: str) -> Iterator[int]:
    source = "".join(linecache.getlines(filename))
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    yield from (node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt | ast.expr) and _grows(node, name))


def _grows(node: ast.AST, name: str) -> bool:
    """Whether this statement or call adds to what is called ``name``."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr=method)):
            return method in _GROWING and _is_called(owner, name)
        case ast.AugAssign(target=target):
            return _is_called(target, name)
        case ast.Assign(targets=targets, value=value):
            return any(_adds(target, value, name) for target in targets)
    return False


def _is_called(node: ast.AST, name: str) -> bool:
    return getattr(node, "id", getattr(node, "attr", None)) == name


def _adds(target: ast.AST, value: ast.AST, name: str) -> bool:
    """Whether ``target = value`` sets an item of it, or makes it from itself."""
    if isinstance(target, ast.Subscript):
        return _is_called(target.value, name)
    return _is_called(target, name) and any(_is_called(part, name) for part in ast.walk(value))
