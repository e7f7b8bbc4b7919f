"""LLaMA-Factory's YAML: it checkpoints by itself unless told not to, reentrant unless told otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import ABSENT, Const, Dict, Value, equals, truth
from ..calls import SettingsDict, call_of

if TYPE_CHECKING:
    from ...facts.walk import Program
    from . import Config

LABEL = "LLaMA-Factory"
_OWN = ("finetuning_type", "stage")
_BESIDE = ("template", "dataset", "dataset_dir", "do_train", "cutoff_len")
#: Anything of this, and it does not train with DDP or does not checkpoint by torch's function.
_OTHERWISE = ("deepspeed", "fsdp", "fsdp_config", "use_unsloth", "use_unsloth_gc", "disable_gradient_checkpointing")
_ANCHORS = ("use_reentrant_gc", "ddp_find_unused_parameters")


def matches(root: Dict) -> bool:
    """`model_name_or_path` beside keys of LLaMA-Factory."""
    named = "model_name_or_path" in root.items and any(name in root.items for name in _OWN)
    return named and any(name in root.items for name in _BESIDE)


def add(config: Config, program: Program) -> None:
    """The checkpointing that it sets up under DDP."""
    document = config.document
    root = document.root
    otherwise = any(truth(root.items.get(name, Const(None))) is not False for name in _OTHERWISE)
    if root.open or otherwise or equals(root.items.get("stage", ABSENT), "ppo"):
        return
    variant = root.items.get("use_reentrant_gc", Const(True))
    written = SettingsDict(keys=[], values=[])
    written.written = {"use_reentrant": "use_reentrant_gc"}
    given: dict[str, Value] = {
        "gradient_checkpointing": Const(True),
        "gradient_checkpointing_kwargs": Dict({"use_reentrant": variant}, False, written),
    }
    if "ddp_find_unused_parameters" in root.items:
        given["ddp_find_unused_parameters"] = root.items["ddp_find_unused_parameters"]
    call = call_of(document, program, "llamafactory.TrainingArguments", given, anchors=_ANCHORS)
    document.place_like(written, call.node)
    program.calls.append(call)
