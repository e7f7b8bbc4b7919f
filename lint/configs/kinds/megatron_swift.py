"""Megatron-SWIFT's arguments, on the command line of `megatron sft` or in its YAML or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import Const, Dict, truth
from ..calls import call_of, place_at
from .ms_swift import begin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...facts.walk import Program
    from . import Config

LABEL = "Megatron-SWIFT"
_COMMANDS = ("sft", "pt", "rlhf")
_TAKEN = ("recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules")
_MODEL = ("model", "load", "mcore_model")
_DATA = ("dataset", "cached_dataset")


def matches(root: Dict) -> bool:
    """A model and data beside one of Megatron's arguments for recomputation."""
    named = any(name in root.items for name in _MODEL) and any(name in root.items for name in _DATA)
    return named and any(name in root.items for name in _TAKEN) and "trainer" not in root.items


def arguments_begin(words: Sequence[str]) -> int | None:
    """The number of the first argument in a command that starts it; None for another command."""
    return begin(words, "megatron", _COMMANDS)


def add(config: Config, program: Program) -> None:
    """What decides about recomputation."""
    document = config.document
    root = document.root
    given = {name: root.items[name] for name in _TAKEN if name in root.items}
    call = call_of(document, program, "swift.MegatronSftArguments", given, anchors=_TAKEN)
    call.open_kwargs = root.open or truth(root.items.get("load_args", Const(False))) is not False
    place_at(document, call, _TAKEN)
    program.calls.append(call)
