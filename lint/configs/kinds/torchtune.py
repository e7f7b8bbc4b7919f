"""torchtune's recipes: a YAML file of components and switches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import Const, Dict
from ..calls import call_of

if TYPE_CHECKING:
    from ...facts.walk import Program
    from . import Config

LABEL = "torchtune"
_SWITCHES = ("enable_activation_checkpointing", "enable_activation_offloading")
_MODE = ("ac_mode", "ac_option")


def matches(root: Dict) -> bool:
    """A model or tokenizer that is a component of torchtune."""
    parts = [root.items.get(name) for name in ("model", "tokenizer", "checkpointer")]
    names = [part.get("_component_") for part in parts if isinstance(part, Dict)]
    return any(isinstance(name, Const) and str(name.value).startswith("torchtune.") for name in names)


def add(config: Config, program: Program) -> None:
    """The switches. Recipes that train something else than one `model` (distillation, PPO) read others."""
    document = config.document
    if "model" in document.root.items and "teacher_model" not in document.root.items:
        keys = {name: name for name in (*_SWITCHES, *_MODE)}
        given = {name: value for name, value in document.root.items.items() if name in keys}
        call = call_of(document, program, "torchtune.recipe", given, anchors=_SWITCHES[::-1], keys=keys)
        call.open_kwargs = document.root.open
        program.calls.append(call)
