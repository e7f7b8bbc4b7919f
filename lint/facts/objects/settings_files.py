"""Files of settings that a program reads itself: `yaml.safe_load(open("train.yaml"))`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..values import Const, Dict, Result

if TYPE_CHECKING:
    from ..values import Call, Value
    from ..walk import Walk

#: Functions that give what is in the file that their first argument names or is.
READERS = (
    *("json.load", "json.loads", "yaml.safe_load", "yaml.full_load", "yaml.load"),
    "omegaconf.OmegaConf.load",
)
_FILES = ("builtins.open", "pathlib.Path")
#: Methods of a file, or of its path, that give it or its text.
_TEXT_OF = frozenset(("read", "read_text", "open"))


def file_named(value: Value) -> str | None:
    """The file that ``value`` names or is read from: `"ds.json"`, `json.load(open("ds.json"))`; None for another."""
    match value:
        case Const(str(name)) if name.endswith((".json", ".yaml", ".yml")):
            return name
        case Result(call) if call.name in (*READERS, *_FILES) and call.args:
            return file_named(call.args[0])
        case Result(call) if call.method in _TEXT_OF:
            return file_named(call.receiver)
    return None


def content_read(walk: Walk, call: Call) -> Value | None:
    """What one of ``READERS`` gives: what the file holds, where the run of the program has it."""
    name = os.path.basename(file_named(Result(call)) or "")
    held = walk.program.settings.get(name)
    if held is None:
        return None
    walk.program.settings_read.add(name)
    return Dict(dict(held.items), held.open, held.node, walk.place)
