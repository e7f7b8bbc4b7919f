"""axolotl's YAML: it makes the training arguments itself, so nothing is left open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import ABSENT, Const, Dict, Unknown, Value, equals, is_absent, truth
from ..calls import call_of

if TYPE_CHECKING:
    from ...facts.walk import Program
    from . import Config

LABEL = "axolotl"
_BESIDE = ("micro_batch_size", "sequence_len", "datasets", "pretraining_dataset", "dataset_prepared_path")
_SWITCH, _KWARGS = "gradient_checkpointing", "gradient_checkpointing_kwargs"
_ANCHORS = (_KWARGS, _SWITCH, "activation_offloading", "deepspeed")


def matches(root: Dict) -> bool:
    """`base_model` beside another key of axolotl."""
    return "base_model" in root.items and any(name in root.items for name in _BESIDE)


def add(config: Config, program: Program) -> None:
    """The training arguments that axolotl builds."""
    document = config.document
    root = document.root
    given = {name: root.items[name] for name in (_SWITCH, "activation_offloading") if name in root.items}
    if not truth(root.items.get("activation_offloading", ABSENT)):
        given |= _checkpointing(root)
    given |= _sharding(root)
    call = call_of(document, program, "axolotl.TrainingArguments", given, anchors=_ANCHORS, keys={_SWITCH: _SWITCH})
    # trl's arguments, which it builds for `rl`, have other defaults.
    call.open_kwargs = root.open or truth(root.items.get("rl", Const(None))) is not False
    program.calls.append(call)


def _checkpointing(root: Dict) -> dict[str, Value]:
    """What checkpoints, where axolotl does not put something else in its place."""
    given: dict[str, Value] = {}
    sharded = any(truth(root.items.get(name, Const(None))) is not False for name in ("fsdp", "fsdp_config"))
    kwargs = root.items.get(_KWARGS)
    if kwargs is not None and not sharded:
        given[_KWARGS] = _effective(kwargs, root)
    elif equals(root.items.get(_SWITCH, ABSENT), True) and "rl" not in root.items and not sharded:
        given[_KWARGS] = _effective(Dict({}, False, root.items[_SWITCH].node), root)
    if not sharded:
        given |= {name: root.items[name] for name in ("deepspeed", "ddp_find_unused_parameters") if name in root.items}
    if truth(given.get("deepspeed", Const(None))) is not False:
        given.pop("ddp_find_unused_parameters", None)
    return given


def _sharding(root: Dict) -> dict[str, Value]:
    """FSDP as the Trainer gets it; with `activation_offloading` axolotl checkpoints without the Trainer."""
    config = root.items.get("fsdp_config")
    if not isinstance(config, Dict) or equals(root.items.get(_SWITCH, ABSENT), True) is not True:
        return {}
    offloads = truth(root.items.get("activation_offloading", Const(None))) is not False
    return {} if offloads else {"fsdp": Const(True, config.node), "fsdp_config": config}


def _effective(kwargs: Value, root: Dict) -> Value:
    """The dict with the variant that runs when it names none: axolotl's default is the reentrant one."""
    if not isinstance(kwargs, Dict) or is_absent(kwargs.get("use_reentrant")) is not True:
        return kwargs
    model = root.items.get("base_model")
    fixed = isinstance(model, Const) and "gemma" not in str(model.value).lower()
    # For some models, and for parts of one, it takes the other.
    is_known = fixed and "unfrozen_parameters" not in root.items
    variant: Value = Const(True, kwargs.node) if is_known else Unknown(kwargs.node)
    return Dict({**kwargs.items, "use_reentrant": variant}, kwargs.open, kwargs.node)
