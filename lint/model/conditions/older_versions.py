"""Code that is kept for some releases of a library only: which, by the conditions around it.

A branch that the project's versions never come to is not looked at. Where they may come to both, the one for older
releases is a fallback, and what is wrong with it for new ones is no mistake.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import all_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Guard, Place
    from .versions import Versions

#: `torch.__version__`, `inspect.signature(checkpoint)`, `is_torch_version(...)`, `TORCH_GE_2`.
_ASKS = re.compile(
    r"^(__version__|signature|getfullargspec|co_varnames)$|torch\w*(version|_g[te]|greater)|torch_?v?\d", re.IGNORECASE
)
#: What holds the parameters of a function, in a condition about `use_reentrant`.
_PARAMETERS = re.compile(rf"{_ASKS.pattern}|param|spec$|signature|^sig|kwonly", re.IGNORECASE)
_LIBRARY = re.compile(r"(?:^|_)(torch|transformers|peft|accelerate|trl)(?:_|$)", re.IGNORECASE)
_NEWER = re.compile(r"(_g[te]|greater|at_least|_min|newer|since)", re.IGNORECASE)
_OLDER = re.compile(r"(_l[te]_|_l[te]$|less|below|before|older)", re.IGNORECASE)
_RELEASE = re.compile(r"^v?([0-9]+(?:\.[0-9]+)*)")
_SIGNS: dict[type[ast.cmpop], str] = {ast.Gt: ">", ast.GtE: ">=", ast.Lt: "<", ast.LtE: "<="}
_OPPOSITE = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}
_MIRRORED = {">": "<", ">=": "<=", "<": ">", "<=": ">="}


class Releases(NamedTuple):
    """The releases that a condition lets in: ``library`` compared by ``sign`` with ``release``."""

    library: str
    sign: str
    #: Empty when the condition does not say it in a way that is understood.
    release: str = ""

    def opposite(self) -> Releases:
        """Those that the condition keeps out."""
        return self._replace(sign=_OPPOSITE[self.sign])


def is_for_other_versions(place: Place, versions: Versions) -> bool:
    """Whether ``place`` is kept for releases that the project does not use, or as a fallback for older ones."""
    if any(_is_for_others(guard, versions) for guard in place.guards):
        return True
    # A function that nobody calls by name still exists only where it was defined.
    return place.function is not None and is_for_other_versions(place.function.place, versions)


def may_be_for_older_torch(place: Place, versions: Versions) -> bool:
    """Whether an older torch may be the one that comes to ``place``, as far as the conditions can be understood."""
    if is_for_other_versions(place, versions):
        return True
    if any(not _is_newer(guard) and _asks(guard) and _releases(guard) is None for guard in place.guards):
        return True
    return place.function is not None and may_be_for_older_torch(place.function.place, versions)


def _is_for_others(guard: Guard, versions: Versions) -> bool:
    if isinstance(guard.test, ast.ExceptHandler):
        return guard.test.type is not None and "TypeError" in _names(guard.test.type)
    found = _releases(guard)
    if found is None:
        return _is_older(guard) and _asks(guard)
    if not found.release:
        return found.sign[0] == "<"
    spec = f"{found.sign}{found.release}"
    if versions.require(found.library, spec):
        return False
    return found.sign[0] == "<" or not versions.may_be(found.library, spec)


def _releases(guard: Guard) -> Releases | None:
    """What ``guard`` lets in; None when it compares no version."""
    # A flag stands for the comparison that it was set by.
    for test in (guard.test, guard.value.node):
        found = _compared(test) if test is not None else None
        if found is not None:
            return found if guard.taken else found.opposite()
    return None


def _compared(test: ast.AST) -> Releases | None:
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            found = _compared(operand)
            return found.opposite() if found is not None else None
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _SIGNS:
            return _sides(left, _SIGNS[type(op)], right)
        case ast.Call(func=ast.Attribute(value=asked, attr="startswith"), args=[ast.Constant(value=str(start))]):
            return _below_major(asked, start)
        case ast.Call(func=function, args=arguments):
            return _by_function(function, arguments)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _by_name(name, "")
    return None


def _sides(left: ast.expr, sign: str, right: ast.expr) -> Releases | None:
    for asked, other, direction in ((left, right, sign), (right, left, _MIRRORED[sign])):
        library = _library(asked) or _compared_to_release(asked, other)
        if library is not None:
            return Releases(library, direction, _release(other))
    return None


def _compared_to_release(asked: ast.expr, other: ast.expr) -> str | None:
    """`TORCH >= (1, 11)`: only a version is compared with a tuple of numbers."""
    match asked, other:
        case ((ast.Name(id=name) | ast.Attribute(attr=name)), ast.Tuple()) if _release(other):
            found = _LIBRARY.search(name)
            return found[1].lower() if found else None
    return None


def _below_major(asked: ast.expr, start: str) -> Releases | None:
    """``torch.__version__.startswith("1.")``: anything before the next major release."""
    library, major = _library(asked), start.split(".")[0]
    return Releases(library, "<", str(int(major) + 1)) if library is not None and major.isdigit() else None


def _by_function(function: ast.expr, arguments: list[ast.expr]) -> Releases | None:
    """``is_torch_version(">=", "1.11")``, ``is_torch_greater_or_equal("2.1")``."""
    name = next(iter(_last_name(function)), "")
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


def _release(node: ast.expr) -> str:
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
            return _release(argument)
    return ""


def _asks(guard: Guard) -> bool:
    """Whether a condition, or the one that a flag was set by, speaks of what the installed torch can do."""
    return any(asks_for_version(test) for test in (guard.test, guard.value.node) if test is not None)


def asks_for_version(test: ast.AST) -> bool:
    """Whether a condition speaks of what the installed torch can do."""
    asked = _PARAMETERS if _is_about_variant(test) else _ASKS
    return any(asked.search(name) for name in _names(test))


def _is_about_variant(test: ast.AST) -> bool:
    """Whether it looks for the argument by its name: `"use_reentrant" in params`."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _is_about_variant(operand)
        case ast.Compare(left=ast.Constant("use_reentrant"), ops=[ast.In() | ast.NotIn()]):
            return True
    return False


def _is_newer(guard: Guard) -> bool:
    """Whether the newer torch comes here: `"use_reentrant" in inspect.signature(checkpoint).parameters`."""
    return any(_is_membership(test) is guard.taken for test in (guard.test, guard.value.node))


def _is_older(guard: Guard) -> bool:
    return any(_is_membership(test) is (not guard.taken) for test in (guard.test, guard.value.node))


def _is_membership(test: ast.AST | None) -> bool | None:
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            found = _is_membership(operand)
            return None if found is None else not found
        case ast.Compare(ops=[ast.In()]):
            return True
        case ast.Compare(ops=[ast.NotIn()]):
            return False
    return None


def _names(node: ast.AST) -> Iterator[str]:
    for part in all_nodes(node):
        yield from _last_name(part)


def _last_name(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
