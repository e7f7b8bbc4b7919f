"""What ms-swift is asked for. It builds the Trainer's arguments itself, so its own defaults hold."""

from __future__ import annotations

from ...facts.values import Const, Dict, Unknown, Value, equals, is_absent, truth
from ..variant import from_json
from .transformers import TrainerArgs

#: The preset of FSDP2, which checkpoints every layer; it came with ms-swift 3.12.
_PRESET = "fsdp2"
#: Names that only releases before 3.0 know, which choose the variant otherwise.
_BEFORE_3 = ("sft_type", "model_id_or_path", "vit_use_gc")
#: Arguments that choose which weights train, or train in another way.
_CHOOSES = (
    *("freeze_llm", "freeze_parameters", "freeze_parameters_ratio", "freeze_parameters_regex", "trainable_parameters"),
    *("trainable_parameters_regex", "target_regex", "target_parameters", "lisa_activated_layers"),
    *("sequence_parallel_size", "external_plugins", "custom_register_path"),
)
#: Variables of the environment that make ms-swift start its processes by torchrun.
PROCESSES = ("NPROC_PER_NODE", "NNODES")


class SwiftArgs(TrainerArgs):
    """The arguments of ``swift sft``, ``swift pt`` or ``swift rlhf``, or an object of the class that holds them."""

    __slots__ = ()
    words = (("swift", "Arguments"),)

    @property
    def enabled(self) -> Value:
        """The switch of the Trainer's checkpointing, which is off where the preset of FSDP2 checkpoints."""
        given = super().enabled
        if self.wraps_layers:
            return Const(False, self.call.keyword("fsdp").node)
        # Since 3.12 the file that `fsdp` names may switch it off.
        is_open = _may_be_given(self.call.keyword("fsdp")) and equals(given, False) is not True
        return Unknown(given.node) if is_open or self.is_by_unsloth else given

    @property
    def kwargs(self) -> Value:
        """The dict of arguments for torch's checkpoint; ABSENT when not given."""
        return from_json(super().kwargs)

    @property
    def chooses_variant(self) -> bool:
        """Whether ms-swift chooses the variant: the dict certainly does not name it."""
        kwargs = self.kwargs
        given = kwargs.get("use_reentrant") if isinstance(kwargs, Dict) else kwargs
        return is_absent(given) is True or equals(given, None) is True

    @property
    def wraps_layers(self) -> bool:
        """Whether accelerate wraps every layer in torch's checkpoint."""
        return equals(self.call.keyword("fsdp"), _PRESET) is True

    @property
    def is_sharded(self) -> bool | None:
        """Whether DeepSpeed or FSDP takes the place of DDP."""
        given = [self.call.keyword(name) for name in ("deepspeed", "fsdp")]
        if any(truth(value) for value in given):
            return True
        return None if any(map(_may_be_given, given)) else False

    @property
    def is_distributed(self) -> bool | None:
        """Whether torchrun starts the processes; None when the environment may say so elsewhere."""
        return True if any(is_absent(self.call.keyword(name)) is False for name in PROCESSES) else None

    @property
    def has_several_processes(self) -> bool:
        """Whether the environment certainly asks for more than one process."""
        return any(_above_one(self.call.keyword(name)) for name in PROCESSES)

    @property
    def is_before_3(self) -> bool:
        """Whether arguments are given that only releases before 3.0 have."""
        return any(name in self.call.kwargs for name in _BEFORE_3)

    @property
    def is_by_unsloth(self) -> bool:
        """Whether Unsloth may build the model, which checkpoints in its own way."""
        backend = self.call.keyword("tuner_backend")
        return is_absent(backend) is not True and equals(backend, "peft") is not True

    @property
    def trains_adapter(self) -> bool:
        """Whether the model certainly becomes one of peft with LoRA, which is the default."""
        tuner = [self.call.keyword(name) for name in ("tuner_type", "train_type")]
        by_peft = not self.is_before_3 and not self.is_by_unsloth and _is_no(self.call.keyword("use_swift_lora"))
        return by_peft and all(is_absent(value) is True or equals(value, "lora") is True for value in tuner)

    @property
    def trains_layers(self) -> bool:
        """Whether weights inside the language model's layers certainly train."""
        return not any(_may_be_given(self.call.keyword(name)) for name in _CHOOSES)

    @property
    def drops(self) -> bool:
        """Whether the adapter that trains certainly has dropout."""
        rate = self.call.keyword("lora_dropout")
        given = _number(rate)
        return self.trains_adapter and (is_absent(rate) is True or (given is not None and given > 0))

    @property
    def checkpoints_more(self) -> bool:
        """Whether something beside the switch of the Trainer may checkpoint: a vision tower, or layers under FSDP."""
        vision = not _is_no(self.call.keyword("vit_gradient_checkpointing"))
        return vision or _may_be_given(self.call.keyword("fsdp")) or self.is_by_unsloth


def _may_be_given(value: Value) -> bool:
    return is_absent(value) is not True and truth(value) is not False


def _is_no(value: Value) -> bool:
    return is_absent(value) is True or truth(value) is False


def _above_one(value: Value) -> bool:
    number = _number(value)
    return number is not None and number > 1


def _number(value: Value) -> float | None:
    if not isinstance(value, Const) or isinstance(value.value, bool):
        return None
    try:
        return float(str(value.value))
    except ValueError:
        return None
