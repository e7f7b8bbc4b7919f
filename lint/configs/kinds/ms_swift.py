"""The arguments of `swift sft`, on its command line or in its YAML or JSON: checkpointing is on unless they say no."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING

from ...facts.values import Const, Dict, Unknown, Value, truth
from ..calls import call_of, place_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...facts.walk import Program
    from ..document import Document
    from . import Config

LABEL = "ms-swift"
_COMMANDS = ("sft", "pt", "rlhf")
#: Keys that hardly any other program has, beside those of its model and data.
_OWN = ("train_type", "tuner_type", "vit_gradient_checkpointing", "freeze_vit", "freeze_aligner", "split_dataset_ratio")
_MODEL = ("model", "resume_from_checkpoint")
_DATA = ("dataset", "cached_dataset")
#: What it writes beside a checkpoint: the record of a run, which nobody starts.
_RECORD = ("global_world_size", "swift_version")
_SWITCHES = ("gradient_checkpointing", "vit_gradient_checkpointing", "ddp_find_unused_parameters", "use_swift_lora")
_KWARGS = "gradient_checkpointing_kwargs"
_VARIABLES = ("NPROC_PER_NODE", "NNODES")
_ANCHORS = (_KWARGS, "gradient_checkpointing", "vit_gradient_checkpointing", "fsdp", "deepspeed", "tuner_type")
_YES, _NO = ("yes", "true", "t", "y", "1"), ("no", "false", "f", "n", "0")


def matches(root: Dict) -> bool:
    """A model and data beside a key of its own, and none of Megatron-SWIFT."""
    named = any(name in root.items for name in _MODEL) and any(name in root.items for name in _DATA)
    other = any(name.startswith("recompute_") or name in _RECORD for name in root.items)
    return named and any(name in root.items for name in _OWN) and not other


def arguments_begin(words: Sequence[str]) -> int | None:
    """The number of the first argument in a command that starts it; None for another command."""
    return begin(words, "swift", _COMMANDS)


def begin(words: Sequence[str], program: str, commands: Sequence[str]) -> int | None:
    """The number of the word behind `swift sft`, `python -m swift.cli.main sft` or `swift/cli/sft.py`."""
    if any(word in ("echo", "printf", "pip", "grep") for word in words):
        return None
    modules = {"swift": "swift.cli", "megatron": "swift.cli._megatron"}
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        name = word.rpartition("/")[2]
        if following in commands and (name == program or word == f"{modules[program]}.main"):
            return index + 2
        folder, _, script = word.removesuffix(".py").rpartition("/" if word.endswith(".py") else ".")
        is_module = folder == modules[program] and index > 0 and words[index - 1] == "-m"
        if script in commands and (is_module or f"/{folder}".endswith(f"/{modules[program].replace('.', '/')}")):
            return index + 1
    return None


def add(config: Config, program: Program) -> None:
    """The arguments, as ms-swift reads their texts."""
    document = config.document
    given = {name: value for name, value in document.root.items.items() if name != "ENV"}
    section = document.root.items.get("ENV")
    if isinstance(section, Dict):
        given |= {name: section.items[name] for name in _VARIABLES if name in section.items and name not in given}
    given |= {name: _switch(given[name]) for name in _SWITCHES if name in given}
    if _KWARGS in given:
        given[_KWARGS] = parsed(document, given[_KWARGS])
    keys = {name: name for name in (*document.root.items, "gradient_checkpointing")}
    call = call_of(document, program, "swift.SftArguments", given, anchors=_ANCHORS, keys=keys)
    call.open_kwargs = document.root.open or truth(document.root.items.get("load_args", Const(False))) is not False
    place_at(document, call, _ANCHORS)
    program.calls.append(call)


def _switch(value: Value) -> Value:
    """The truth value of a text, as transformers' parser reads it."""
    if not isinstance(value, Const):
        return value
    text = str(value.value).lower()
    return Const(text in _YES, value.node) if text in (*_YES, *_NO) else Unknown(value.node)


def parsed(document: Document, value: Value) -> Value:
    """The dict that a text in JSON is; its items stand where the text does, and no fix writes them."""
    if not isinstance(value, Const) or not isinstance(value.value, str) or value.node is None:
        return value
    try:
        loaded = json.loads(value.value)
    except ValueError:
        return Unknown(value.node)
    if not isinstance(loaded, dict):
        return Unknown(value.node)
    items: dict[str, Value] = {}
    for name, item in loaded.items():
        if isinstance(item, str | int | float | bool | None):
            node = ast.Constant(item)
            document.place_like(node, value.node)
            items[name] = Const(item, node)
        else:
            items[name] = Unknown(value.node)
    return Dict(items, False, value.node)
