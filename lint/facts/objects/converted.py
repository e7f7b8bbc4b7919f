"""What the `type` of an option makes of a word of the command line."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from ..values import UNKNOWN, Absent, Call, Const, Function, Place, Ref, Result, Seq, Value, equals
from .options import stored
from .plain_data import json_data, value_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..walk import Walk
    from .options import Option, Words

#: How a command line says yes and no.
BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
#: The same with what only functions that are called like a boolean take: `str2bool`, `strtobool`.
_SAID = {**BOOLEANS, "t": True, "y": True, "on": True, "f": False, "n": False, "off": False}
_OF_BOOLEANS = re.compile(r"bool", re.IGNORECASE)
_PLAIN: dict[str, Callable[[str], object]] = {
    "builtins.str": str,
    "builtins.int": int,
    "builtins.float": float,
    "builtins.bool": bool,  # of a text: False for "" alone
    "json.loads": json_data,
    "ast.literal_eval": ast.literal_eval,
    "builtins.eval": ast.literal_eval,
}


def converted(walk: Walk, kind: Value, word: Value) -> Value:
    """What ``kind``, the `type` of an option, makes of ``word``."""
    if not isinstance(word, Const) or not isinstance(word.value, str):
        return UNKNOWN
    match kind:
        case Absent():
            return word
        case Ref(name) if name in _PLAIN:
            return _read(_PLAIN[name], word, walk.place)
        case Function() | Ref() if _OF_BOOLEANS.search(kind.name):
            said = _SAID.get(word.value.lower())
            return UNKNOWN if said is None else Const(said, word.node)
        case Function():
            made = _call(walk, kind, word)
            found = walk.follow(kind, made, None)
            return Const(found.value, word.node) if isinstance(found, Const) else UNKNOWN
        case Ref():
            return Result(_call(walk, kind, word))
    return UNKNOWN


def _call(walk: Walk, kind: Value, word: Const) -> Call:
    node = ast.copy_location(ast.Call(ast.Name("type", ast.Load()), [], []), word.node or ast.Pass())
    made = Call(node, kind, walk.place, walk.program.next_order())
    made.args = [word]
    return made


def _read(kind: Callable[[str], object], word: Const, place: Place) -> Value:
    try:
        found = kind(str(word.value))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return UNKNOWN
    return value_of(found, word.node, place)


def held_by_option(walk: Walk, option: Option, words: Words) -> Value:
    """What ``option`` holds that a command gives with ``words``."""
    found = stored(option, words)
    if found is not None:
        return found
    values = [converted(walk, option.kind, word) for word in words.values]
    if option.action != "store" or not values:
        return UNKNOWN
    if isinstance(option.takes, Absent) or equals(option.takes, "?") is True:
        return values[0]
    return Seq("list", values, False, words.flag.node, walk.place)
