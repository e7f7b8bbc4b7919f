"""Methods of texts that are known: `args.variant.lower()`, `flag.strip().startswith("re")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..values import Const, Seq, Value

if TYPE_CHECKING:
    import ast
    from collections.abc import Sequence

#: Those that give a text, some texts or a truth value, and change nothing.
METHODS = frozenset(
    (
        *("lower", "upper", "casefold", "capitalize", "title", "strip", "lstrip", "rstrip"),
        *("startswith", "endswith", "removeprefix", "removesuffix", "isdigit", "isnumeric"),
        *("split", "rsplit", "splitlines", "partition", "rpartition"),
    )
)


def text_made(text: str, method: str, given: Sequence[Value], node: ast.AST) -> Value | None:
    """What ``text.method(*given)`` gives; None where not all of ``given`` is known, or the call raises.

    Args:
        text: The text.
        method: One of ``METHODS``.
        given: The arguments.
        node: The call.
    """
    known = [it.value for it in given if isinstance(it, Const)]
    if len(known) < len(given):
        return None
    try:
        found: object = getattr(text, method)(*known)
    except (TypeError, ValueError):
        return None
    if isinstance(found, list | tuple):
        return Seq(type(found).__name__, [Const(part) for part in found], False, node)
    return Const(found, node)
