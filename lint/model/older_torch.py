"""Code that is kept for releases of torch whose checkpoint takes no `use_reentrant`."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..facts.places import Guard, Place

#: `torch.__version__`, `inspect.signature(checkpoint)`, `is_torch_version(...)`, `TORCH_GE_2`.
_ASKS = re.compile(
    r"^(__version__|signature|getfullargspec|co_varnames)$|torch\w*(version|_g[te]|greater)|torch_?v?\d", re.IGNORECASE
)


def is_for_older_torch(place: Place) -> bool:
    """Whether only an older torch comes to ``place``, or may be the one that does."""
    if any(_lets_older_in(guard) for guard in place.guards):
        return True
    # A function that nobody calls by name still exists only where it was defined.
    return place.function is not None and is_for_older_torch(place.function.place)


def _lets_older_in(guard: Guard) -> bool:
    if isinstance(guard.test, ast.ExceptHandler):
        return guard.test.type is not None and any(
            isinstance(node, ast.Name) and node.id == "TypeError" for node in ast.walk(guard.test.type)
        )
    # A flag stands for the comparison that it was set by.
    tests = [test for test in (guard.test, guard.value.node) if test is not None and _asks(test)]
    return bool(tests) and not any(_is_newer(test, guard.taken) for test in tests)


def _asks(test: ast.AST) -> bool:
    names = (
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(test)
        if isinstance(node, ast.Name | ast.Attribute)
    )
    return any(_ASKS.search(name) for name in names)


def _is_newer(test: ast.AST, taken: bool) -> bool:
    """Whether ``test`` coming out as ``taken`` certainly means a release from some other on."""
    match test:
        case ast.Compare(left=left, ops=[ast.Gt() | ast.GtE()]):
            return taken is _asks(left)
        case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE()]):
            return taken is not _asks(left)
        case ast.Compare(ops=[ast.In()]):
            return taken
    return False
