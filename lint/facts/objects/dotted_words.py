"""Settings as words: `training.bf16=true`, as OmegaConf and Hydra take them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..values import UNKNOWN, Const, Dict, Value

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterable

    from ..values import Place

_SAID = {"true": True, "false": False, "null": None, "~": None}
#: How a value begins that is a list, a mapping, or text with marks of its own.
_OTHERS = ("[", "{", "$", "'", '"')


def dotted(words: Iterable[Value], is_open: bool, node: ast.AST, place: Place) -> Dict:
    """The settings that ``words`` say, each `name.name=value`; of a name that is said twice the last one holds."""
    made = Dict({}, is_open, node, place)
    for word in words:
        name, equal, value = str(word.value).partition("=") if isinstance(word, Const) else ("", "", "")
        if equal and all(name.split(".")):
            put(made, name.split("."), value_said(value, word))
        else:
            made.open = True
    return made


def put(held: Dict, path: list[str], value: Value) -> None:
    """Set ``held.path = value``, and make the settings on the way to it that are not there."""
    *outer, last = path
    for name in outer:
        inner = held.items.get(name)
        if not isinstance(inner, Dict):
            inner = held.items[name] = Dict({}, inner is not None or held.open, held.node, held.place)
        held = inner
    held.items[last] = value


def value_said(text: str, word: Value) -> Value:
    """The value that ``text``, a part of ``word``, says as YAML does."""
    lowered = text.lower()
    if lowered in _SAID:
        return Const(_SAID[lowered], word.node)
    if text.startswith(_OTHERS):
        return UNKNOWN
    for kind in (int, float):
        try:
            return Const(kind(text), word.node)
        except ValueError:
            continue
    return Const(text, word.node)
