"""Files of settings that a program reads itself: `yaml.safe_load(open("train.yaml"))`."""

from __future__ import annotations

import ast
import os
from typing import TYPE_CHECKING

from ..values import Choice, Computed, Const, Dict, Element, Ref, Result, Seq, Template, options
from .plain_data import read_text

if TYPE_CHECKING:
    from ..values import Call, Value
    from ..walk import Walk

#: Functions that give what is in the file that their first argument names or is.
READERS = (
    *("json.load", "json.loads", "yaml.safe_load", "yaml.full_load", "yaml.load"),
    *("tomllib.load", "tomllib.loads", "tomli.load", "tomli.loads", "toml.load", "toml.loads"),
    "omegaconf.OmegaConf.load",
)
#: Methods of the parsers of transformers that read a file, by the name of the parameter for it.
PARSES = {"parse_json_file": "json_file", "parse_yaml_file": "yaml_file"}
#: What decorates a function that gets settings of files and of the command line; what these are goes by its name.
HYDRA = "hydra.main"
_FILES = ("builtins.open", "builtins.str", "os.fspath", "os.path.abspath", "os.path.realpath")
#: Those that put a path together: its last part names the file.
_JOINING = ("pathlib.Path", "os.path.join")
#: Methods of a file, or of its path, that give it or its text.
_TEXT_OF = frozenset(("read", "read_text", "open", "resolve", "absolute", "as_posix", "expanduser"))
#: Methods of a path whose last argument names the file.
_BESIDE = frozenset(("joinpath", "with_name"))


def file_named(value: Value) -> str | None:
    """The file that ``value`` names or is read from, by its last part: `json.load(open(here / "ds.json"))`.

    Returns:
        None for one that is not known, or no file of settings.
    """
    match value:
        case Const(str(name)) | Template(name) if name.endswith((".json", ".yaml", ".yml", ".toml")):
            return name
        case Choice():
            return _unless_told(value)
        case Computed(operands=(_, last)) if isinstance(value.node, ast.BinOp) and isinstance(value.node.op, ast.Div):
            return file_named(last)
        case Result(call) if (call.name in _JOINING or call.method in _BESIDE) and call.args and not call.open_args:
            return file_named(call.args[-1])
        case Result(call) if call.name in (*READERS, *_FILES) and call.args:
            return file_named(call.args[0])
        case Result(call) if call.method in _TEXT_OF:
            return file_named(call.receiver)
    return None


def _unless_told(path: Choice) -> str | None:
    """The file that is read where the command names none: `sys.argv[1] if len(sys.argv) > 1 else "config.yaml"`."""
    own = [option for option in options(path) if not _is_of_command(option)]
    return file_named(own[0]) if len(own) == 1 < len(list(options(path))) else None


def _is_of_command(value: Value) -> bool:
    return isinstance(value, Element) and isinstance(value.of, Ref) and value.of.name == "sys.argv"


def content_read(walk: Walk, call: Call) -> Value | None:
    """What one of ``READERS`` gives."""
    held = content_of(walk, Result(call))
    if held is None and call.args and isinstance(call.args[0], Const) and not call.kwargs:
        found = read_text(call.args[0], walk.place)
        return found if isinstance(found, Dict | Seq) else None
    return held


def content_of(walk: Walk, file: Value) -> Dict | None:
    """What the file that ``file`` names holds, where the run of the program has it."""
    name = os.path.basename(file_named(file) or "")
    held = walk.program.settings.get(name)
    if held is None:
        return None
    walk.program.settings_read.add(name)
    return Dict(dict(held.items), held.open, held.node, walk.place)
