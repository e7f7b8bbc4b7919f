"""DeepSpeed's JSON: means something to the training arguments, or the accelerate configuration, that name it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..arguments import give_content
from ..calls import call_of

if TYPE_CHECKING:
    from ...facts.values import Dict
    from ...facts.walk import Program
    from . import Config

LABEL = "DeepSpeed"
#: What it says about checkpointing, as the call of a function that nobody has.
SETTINGS = "deepspeed.configuration"
_SECTION = "activation_checkpointing"
_KEYS = ("zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size")


def matches(root: Dict) -> bool:
    """A top-level key that only DeepSpeed has."""
    return any(name in root.items for name in _KEYS)


def add(config: Config, program: Program) -> None:
    """Its section on checkpointing, which only DeepSpeed's own function reads."""
    document = config.document
    if _SECTION in document.root.items:
        given, keys = {_SECTION: document.root.items[_SECTION]}, {_SECTION: _SECTION}
        program.calls.append(call_of(document, program, SETTINGS, given, anchors=(_SECTION,), keys=keys))


def apply(config: Config, program: Program) -> None:
    """Give its content to the training arguments that name the file; by itself it checkpoints nothing."""
    give_content(program, "deepspeed", config.document)
