"""The releases of a library that a condition lets in, as far as its text says so."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

_LIBRARY = re.compile(r"(?:^|_)(torch|transformers|peft|accelerate|trl)(?:_|$)", re.IGNORECASE)
_NEWER = re.compile(r"(_g[te]|greater|at_least|_min|newer|since)", re.IGNORECASE)
_OLDER = re.compile(r"(_l[te]_|_l[te]$|less|below|before|older)", re.IGNORECASE)
#: `SUPPORTS_USE_REENTRANT`, `has_non_reentrant`: whether the checkpoint of the installed torch takes the argument.
_TAKES_VARIANT = re.compile(r"(^|_)(has|have|supports?|accepts?|takes)_\w*reentrant", re.IGNORECASE)
_RELEASE = re.compile(r"^v?([0-9]+(?:\.[0-9]+)*)")
SIGNS: dict[type[ast.cmpop], str] = {ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<="}
_OPPOSITE = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}
MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}


class Releases(NamedTuple):
    """The releases that a condition lets in: ``library`` compared by ``sign`` with ``release``."""

    library: str
    sign: str
    #: Empty when the condition does not say it in a way that is understood.
    release: str = ""

    def opposite(self) -> Releases:
        """Those that the condition keeps out."""
        return self._replace(sign=_OPPOSITE[self.sign])

    def where(self, taken: bool) -> Releases:
        """Those that come to where the condition came out as ``taken``."""
        return self if taken else self.opposite()

    @property
    def are_older(self) -> bool:
        """Whether they are those before a release."""
        return self.sign[0] == "<"


def compared(test: ast.AST) -> Releases | None:
    """What ``test`` lets in where it holds; None when its text compares no version."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            found = compared(operand)
            return found.opposite() if found is not None else None
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in SIGNS:
            return _sides(left, SIGNS[type(op)], right)
        case ast.Call(func=ast.Attribute(value=asked, attr="startswith"), args=[ast.Constant(value=str(start))]):
            return _below_major(asked, start)
        case ast.Call(func=function, args=arguments):
            return _by_function(function, arguments)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _by_name(name, "")
    return None


def _sides(left: ast.expr, sign: str, right: ast.expr) -> Releases | None:
    for asked, other, direction in ((left, right, sign), (right, left, MIRRORED[sign])):
        library = _library(asked) or _compared_to_release(asked, other)
        if library is not None:
            return Releases(library, direction, release_in(other))
    return None


def _compared_to_release(asked: ast.expr, other: ast.expr) -> str | None:
    """`TORCH >= (1, 11)`: only a version is compared with a tuple of numbers."""
    match asked, other:
        case ((ast.Name(id=name) | ast.Attribute(attr=name)), ast.Tuple()) if release_in(other):
            found = _LIBRARY.search(name)
            return found[1].lower() if found else None
    return None


def _below_major(asked: ast.expr, start: str) -> Releases | None:
    """``torch.__version__.startswith("1.")``: anything before the next major release."""
    library, major = _library(asked), start.split(".")[0]
    return Releases(library, "<", str(int(major) + 1)) if library is not None and major.isdigit() else None


def _by_function(function: ast.expr, arguments: list[ast.expr]) -> Releases | None:
    """``is_torch_version(">=", "1.11")``, ``is_torch_greater_or_equal("2.1")``."""
    name = last_name(function)
    library = _LIBRARY.search(name)
    match arguments:
        case [ast.Constant(value=str(sign)), ast.Constant(value=str(release)), *_] if library and sign in _OPPOSITE:
            return Releases(library[1].lower(), sign, release)
        case [ast.Constant(value=str(release)), *_]:
            return _by_name(name, release)
        case []:
            return _by_name(name, "")
    return None


def _by_name(name: str, release: str) -> Releases | None:
    """``TORCH_GE_2_0``, ``is_torch_greater_or_equal``: the direction is said by the name."""
    if _TAKES_VARIANT.search(name):
        return Releases("torch", ">=", "1.11")
    library = _LIBRARY.search(name)
    if library is None or not (_NEWER.search(name) or _OLDER.search(name)):
        return None
    return Releases(library[1].lower(), ">=" if _NEWER.search(name) else "<", release)


def _library(node: ast.AST) -> str | None:
    """The library whose version ``node`` asks for: `version.parse(torch.__version__)`, `TORCH_VERSION`."""
    for part in ast.walk(node):
        match part:
            case ast.Attribute(value=ast.Name(id=name), attr="__version__"):
                return name.lower()
            case ast.Call(func=ast.Name(id="version") | ast.Attribute(attr="version"), args=[ast.Constant(str(name))]):
                return name.lower()
            case ast.Name(id=name) | ast.Attribute(attr=name) if "version" in name.lower():
                found = _LIBRARY.search(name)
                if found:
                    return found[1].lower()
    return None


def release_in(node: ast.AST | None) -> str:
    """The release that ``node`` says, `version.parse("1.11")` or `(1, 11)`; empty when it says none."""
    match node:
        case ast.Constant(value=str(text)):
            found = _RELEASE.match(text)
            return found[1] if found else ""
        case ast.Constant(value=int() | float() as number):
            return str(number)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            numbers = [part.value for part in parts if isinstance(part, ast.Constant)]
            return ".".join(map(str, numbers)) if len(numbers) == len(parts) else ""
        case ast.Call(args=[argument]):
            return release_in(argument)
    return ""


def last_name(node: ast.AST) -> str:
    """``b`` for ``b`` and for ``a.b``; empty for anything else."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""
