"""From calls to events: which library function means what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Attr, Class, Ref, Value
from . import events as e
from .names import canonical
from .types import bases, is_hf_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.calls import Call

_WRAPPER = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper."

#: What a call of a function, by its canonical name, means.
FUNCTIONS: dict[str, type[e.Event]] = {
    "torch.utils.checkpoint.checkpoint": e.Checkpoint,
    "torch.utils.checkpoint.checkpoint_sequential": e.CheckpointSequential,
    f"{_WRAPPER}checkpoint_wrapper": e.CheckpointWrap,
    f"{_WRAPPER}apply_activation_checkpointing": e.ApplyCheckpointing,
    "peft.prepare_model_for_kbit_training": e.KbitPrepare,
    "peft.get_peft_model": e.AdapterAttach,
    "peft.PeftModel.from_pretrained": e.AdapterAttach,
    "torch.distributed.fsdp.FullyShardedDataParallel": e.Fsdp1Wrap,
    "torch.distributed.fsdp.fully_shard": e.Fsdp2Shard,
    "torch.distributed._composable.fully_shard": e.Fsdp2Shard,
    "torch.nn.parallel.DistributedDataParallel": e.DdpWrap,
    "torch.compile": e.Compile,
    # What programs that are run by a configuration alone make of it.
    "axolotl.TrainingArguments": e.TrainerArgs,
    "llamafactory.TrainingArguments": e.TrainerArgs,
}

#: What a call of a method of a model means.
METHODS: dict[str, type[e.Event]] = {
    "gradient_checkpointing_enable": e.HfEnable,
    "activation_checkpointing_enable": e.HfEnable,
    "gradient_checkpointing_disable": e.HfDisable,
    "activation_checkpointing_disable": e.HfDisable,
    "compile": e.Compile,
}


def events_of(call: Call) -> Iterator[e.Event]:
    """The events of one call; most calls have none."""
    match call.func:
        case Ref(name):
            name = canonical(name)
            kind = FUNCTIONS.get(name) or _constructor(name)
            if kind is not None:
                yield kind(call)
            elif name == "functools.partial" and call.args and _is_checkpoint(call.args[0]):
                yield e.CheckpointPartial(call)
        case Class() as cls:
            for base in bases(cls):
                kind = _constructor(base)
                if kind is not None:
                    yield kind(call)
                    return
        case Attr(base=base, name=name) if name in METHODS:
            if name == "compile" or is_hf_model(base):
                yield METHODS[name](call)


def _is_checkpoint(value: Value) -> bool:
    return isinstance(value, Ref) and canonical(value.name) == "torch.utils.checkpoint.checkpoint"


def _constructor(name: str) -> type[e.Event] | None:
    if is_trainer_args(name):
        return e.TrainerArgs
    if name.startswith(("transformers.", "trl.")) and name.count(".") == 1 and name.endswith("Trainer"):
        return e.TrainerBuild
    return None


def is_trainer_args(name: str) -> bool:
    """Whether a canonical name is that of a TrainingArguments class."""
    library, _, kind = name.rpartition(".")
    if library == "transformers":
        return kind.endswith("TrainingArguments")
    return library == "trl" and kind.endswith("Config") and kind != "ModelConfig"
