"""Code that is kept for some releases of a library only: which, by the conditions around it.

A branch that the project's versions never come to is not looked at. Where they may come to both, the one for older
releases is a fallback, and what is wrong with it for new ones is no mistake.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ...facts.exclusion import parts_that_hold
from ...facts.nodes import all_nodes
from ...facts.objects.containers import is_none
from ...facts.values import Choice, Test, conditional_options, may_be_none, truth
from ..flow.handlers import catches
from .asked_versions import ARGUMENTS, asked_by, mentions_version, newer_name
from .releases import Releases, compared, last_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Guard, Place, Value
    from .versions import Versions

#: `torch.__version__`, `inspect.signature(checkpoint)`, `is_torch_version(...)`, `TORCH_GE_2`.
_ASKS = re.compile(
    r"^(__version__|signature|getfullargspec|co_varnames)$|torch\w*(version|_g[te]|greater)|torch_?v?\d", re.IGNORECASE
)
#: What holds the parameters of a function, in a condition about `use_reentrant`.
_PARAMETERS = re.compile(rf"{_ASKS.pattern}|param|spec$|signature|^sig|kwonly", re.IGNORECASE)
_EVERYTHING = ("Exception", "BaseException")


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
    if any(not _is_newer(guard) and _asks(guard) and not any(_releases(guard)) for guard in place.guards):
        return True
    return place.function is not None and may_be_for_older_torch(place.function.place, versions)


def _is_for_others(guard: Guard, versions: Versions) -> bool:
    if isinstance(guard.test, ast.ExceptHandler):
        return _is_fallback(guard.test, guard.value.node)
    if any(_are_others(found, versions) for found in _releases(guard)):
        return True
    if _is_older(guard) and _asks(guard):
        return True
    ways = list(_ways(guard.value, guard.taken))
    return bool(ways) and all(any(_is_for_others(other, versions) for other in way) for way in ways)


def _are_others(found: Releases, versions: Versions) -> bool:
    if not found.release:
        return found.are_older
    spec = f"{found.sign}{found.release}"
    if versions.require(found.library, spec):
        return False
    return found.are_older or not versions.may_be(found.library, spec)


def _releases(guard: Guard) -> Iterator[Releases]:
    """What ``guard`` lets in, part by part; nothing when it compares no version."""
    if isinstance(guard.test, ast.BoolOp):
        tests = list(parts_that_hold(guard.test, guard.taken))
    else:
        # A flag stands for the comparison that it was set by.
        tests = [(test, guard.taken) for test in (guard.test, guard.value.node) if test is not None]
    said = [found.where(holds) for test, holds in tests if (found := compared(test)) is not None]
    asked = None if said else asked_by(guard.value, guard.taken)
    yield from said if asked is None else [asked]


def _ways(value: Value, taken: bool) -> Iterator[tuple[Guard, ...]]:
    """The conditions under which a variable was set to what makes ``value`` come out as ``taken``, way by way."""
    match value:
        case Test(operands=(inner,), node=ast.UnaryOp()):
            yield from _ways(inner, not taken)
        case Test(operands=(held, constant), node=ast.Compare(ops=[ast.Is() | ast.IsNot() as op])) if is_none(constant):
            wanted = isinstance(op, ast.Is) is taken
            # What is asked for None is None only where the program says so.
            yield from (under for option, under in conditional_options(held) if may_be_none(option) is wanted)
        case Choice():
            ways = conditional_options(value)
            yield from (under for option, under in ways if truth(option) in (None, taken))


def _is_fallback(handler: ast.ExceptHandler, tried: ast.AST | None) -> bool:
    """Whether ``handler`` runs where the installed release lacks what was ``tried``: an argument or a name."""
    if handler.type is not None and "TypeError" in map(last_name, all_nodes(handler.type)):
        return True
    if not isinstance(tried, ast.Try):
        return False
    catches_all = catches(handler, *_EVERYTHING)
    if catches_all and any(map(_passes_newer_argument, all_nodes(tried))):
        return True
    names = [name for statement in tried.body for name in _asked_names(statement)]
    is_only_asked = not any(isinstance(node, ast.Call) for statement in tried.body for node in all_nodes(statement))
    asks = catches(handler, "ImportError", "ModuleNotFoundError") or (
        is_only_asked and (catches_all or catches(handler, "AttributeError"))
    )
    return asks and any(newer_name(name) is not None for name in names)


def _passes_newer_argument(node: ast.AST) -> bool:
    """`checkpoint(block, x, use_reentrant=False)`; what a model is given to enable it has other arguments."""
    if not isinstance(node, ast.Call) or last_name(node.func).endswith("checkpointing_enable"):
        return False
    return any(keyword.arg in ARGUMENTS for keyword in node.keywords)


def _asked_names(statement: ast.stmt) -> Iterator[str]:
    """What a statement imports by its full name: `from torch.utils.checkpoint import noop_context_fn`."""
    for node in all_nodes(statement):
        match node:
            case ast.ImportFrom(module=str(module), names=aliases, level=0):
                yield from (f"{module}.{alias.name}" for alias in aliases)
            case ast.Attribute():
                yield ast.unparse(node)


def _asks(guard: Guard) -> bool:
    """Whether a condition, or the one that a flag was set by, speaks of what the installed torch can do."""
    tests = (test for test in (guard.test, guard.value.node) if test is not None)
    return any(map(asks_for_version, tests)) or mentions_version(guard.value)


def asks_for_version(test: ast.AST) -> bool:
    """Whether a condition speaks of what the installed torch can do."""
    asked = _PARAMETERS if _is_about_variant(test) else _ASKS
    return any(asked.search(last_name(part)) for part in all_nodes(test))


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
