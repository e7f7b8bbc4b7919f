"""What transformers, trl and peft are asked for: models that checkpoint, Trainers and their arguments, adapters."""

from __future__ import annotations

import ast
from typing import ClassVar

from ...facts.objects.classes import ancestors
from ...facts.values import ABSENT, Absent, Class, Function, Ref, Value, equals
from ...prefilter.words import TRL, WHOLE
from ..names import canonical
from ..types import bases
from .event import CallEvent, Event, NamingEvent, Trigger, WriteEvent


class HfSetting(Event):
    """A place where arguments for torch's checkpoint are given to transformers or peft as a dict."""

    __slots__ = ()

    @property
    def kwargs(self) -> Value:
        """The dict of arguments for torch's checkpoint; ABSENT when not given."""
        raise NotImplementedError


class HfEnable(CallEvent, HfSetting):
    """``model.gradient_checkpointing_enable(...)`` or its new name, on a model of transformers."""

    __slots__ = ()
    words = ("checkpointing_enable",)

    @property
    def model(self) -> Value:
        """The model."""
        return self.call.receiver

    @property
    def kwargs(self) -> Value:
        """The dict of arguments for torch's checkpoint; ABSENT when not given."""
        names = ("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs")
        given = next((name for name in names if name in self.call.kwargs), names[0])
        return self.call.argument(0, given)

    @property
    def selection(self) -> dict[str, Value]:
        """What stands beside the dict and says which layers are checkpointed and where their inputs go."""
        given = {"every_n_layers": self.call.argument(1, "every_n_layers"), "offload": self.call.argument(2, "offload")}
        return {name: value for name, value in given.items() if not isinstance(value, Absent)}


class HfDisable(CallEvent):
    """``model.gradient_checkpointing_disable()``."""

    __slots__ = ()
    words = ("checkpointing_disable",)

    @property
    def model(self) -> Value:
        """The model."""
        return self.call.receiver


class KbitPrepare(CallEvent, HfSetting):
    """``peft.prepare_model_for_kbit_training(model, ...)``."""

    __slots__ = ()
    words = ("prepare_model_for_kbit_training",)

    @property
    def model(self) -> Value:
        """The model."""
        return self.call.argument(0, "model")

    @property
    def enables(self) -> Value:
        """``use_gradient_checkpointing``; on by default."""
        return self.call.argument(1, "use_gradient_checkpointing")

    @property
    def kwargs(self) -> Value:
        """The dict of arguments for torch's checkpoint."""
        return self.call.argument(2, "gradient_checkpointing_kwargs")

    @property
    def selection(self) -> dict[str, Value]:
        """Nothing: it checkpoints every layer."""
        return {}

    @property
    def is_on(self) -> bool:
        """Whether it certainly switches checkpointing on, where the model is quantized."""
        return isinstance(self.enables, Absent) or equals(self.enables, True) is True


class TrainerArgs(CallEvent, HfSetting):
    """A ``TrainingArguments`` object (or one of its children in trl) is built."""

    __slots__ = ()
    words: ClassVar[tuple[Trigger, ...]] = ("TrainingArguments", (TRL, "Config"), ("swift", "Arguments"))

    @property
    def enabled(self) -> Value:
        """The switch, by the new name or the old one; ABSENT when neither is given."""
        return self._either("activation_checkpointing", "gradient_checkpointing")

    @property
    def is_computed(self) -> bool:
        """Whether the switch is written as an expression, not as a constant: `gradient_checkpointing=options.save`."""
        names = ("activation_checkpointing", "gradient_checkpointing")
        written = (word.value for word in self.node.keywords if word.arg in names)
        return any(not isinstance(value, ast.Constant) for value in written)

    @property
    def kwargs(self) -> Value:
        """The dict of arguments for torch's checkpoint; ABSENT when not given."""
        return self._either("activation_checkpointing_kwargs", "gradient_checkpointing_kwargs")

    def setting(self, name: str) -> Value:
        """What the field ``name`` is given, or is by default in a class of the file; ABSENT for neither."""
        given = self.call.keyword(name)
        return self.declared(name) if isinstance(given, Absent) else given

    def declared(self, *names: str) -> Value:
        """The default that a class of the file, derived from the library's, gives the field; ABSENT for none."""
        cls = self.call.func
        if not isinstance(cls, Class):
            return ABSENT
        owners = (cls, *ancestors(cls))
        return next((owner.body[name] for owner in owners for name in names if name in owner.body), ABSENT)

    def _either(self, new: str, old: str) -> Value:
        given = self.call.keyword(new) if new in self.call.kwargs else self.call.keyword(old)
        return self.declared(new, old) if isinstance(given, Absent) else given


class KwargsWrite(WriteEvent):
    """``args.gradient_checkpointing_kwargs = {...}``, or by the new name, on a ``TrainingArguments`` object.

    No ``HfSetting``: what happens to the object later decides whether a Trainer gets the dict (``written_kwargs``).
    """

    __slots__ = ()
    words = TrainerArgs.words

    @property
    def target(self) -> Value:
        """What the dict is written to."""
        return self.write.obj

    @property
    def kwargs(self) -> Value:
        """The dict of arguments for torch's checkpoint."""
        return self.write.value


#: Where trainers of trl take their arguments: some behind a reference model, or reward functions.
_IN_TRL = {
    **dict.fromkeys((f"{task}Trainer" for task in ("SFT", "Reward", "ORPO", "CPO")), 1),
    **dict.fromkeys((f"{task}Trainer" for task in ("DPO", "KTO", "GRPO", "RLOO")), 2),
}


class TrainerBuild(CallEvent):
    """A ``Trainer`` (or one of its children in trl) is built."""

    __slots__ = ()
    words = (f"Trainer{WHOLE}",)

    @property
    def model(self) -> Value:
        """What it trains."""
        position = _own_position(self.call.func, "model")
        return self.call.argument(0 if position is None else position, "model")

    @property
    def args(self) -> Value:
        """Its TrainingArguments."""
        position = _position_of_args(self.call.func)
        return self.call.keyword("args") if position is None else self.call.argument(position, "args")

    @property
    def peft_config(self) -> Value:
        """The adapter that trl's trainers attach themselves."""
        return self.call.keyword("peft_config")


def _position_of_args(trainer: Value) -> int | None:
    """Where a Trainer, of the libraries or of the file, takes its arguments by position; None where that is open."""
    if not isinstance(trainer, Class):
        return _position_in(canonical(trainer.name)) if isinstance(trainer, Ref) else None
    if _own_parameters(trainer):
        return _own_position(trainer, "args")
    positions = {_position_in(base) for base in bases(trainer)} - {None}
    return positions.pop() if len(positions) == 1 else None


def _own_position(trainer: Value, name: str) -> int | None:
    """Where the constructor of a class of the file takes ``name``; None where it has no such parameter of its own."""
    parameters = _own_parameters(trainer) if isinstance(trainer, Class) else []
    return parameters.index(name) if name in parameters else None


def _own_parameters(trainer: Class) -> list[str]:
    """What the constructor of a class of the file names; nothing where it hands on what it gets, or has none."""
    constructors = (owner.body.get("__init__") for owner in (trainer, *ancestors(trainer)))
    found = [[argument.arg for argument in it.node.args.args] for it in constructors if isinstance(it, Function)]
    return next((names[1:] for names in found if names[1:]), [])


def _position_in(name: str) -> int | None:
    library, _, trainer = name.partition(".")
    if library == "transformers" and trainer.endswith("Trainer"):
        return 1
    return _IN_TRL.get(trainer) if library == "trl" else None


class ForwardPatch(WriteEvent):
    """``layer.forward = function``: what the layer runs is replaced."""

    __slots__ = ()
    words = (".forward =", ".forward=", ("setattr", '"forward"'), ("setattr", "'forward'"))

    @property
    def target(self) -> Value:
        """The layer, or its class."""
        return self.write.obj

    @property
    def function(self) -> Value:
        """What runs from now on."""
        return self.write.value


class FlagWrite(WriteEvent):
    """``model.gradient_checkpointing = True``: the flag itself is set, not by a method of the model."""

    __slots__ = ()
    words = (
        ".gradient_checkpointing =",
        ".gradient_checkpointing=",
        ".gradient_checkpointing,",  # `self.gradient_checkpointing, self.layers = True, layers`
        ".gradient_checkpointing: bool",
        ("setattr", "gradient_checkpointing"),
        ("config.update(", "gradient_checkpointing"),
    )

    @property
    def target(self) -> Value:
        """What the flag belongs to: the model, its configuration, or arguments of a Trainer."""
        return self.write.obj

    @property
    def value(self) -> Value:
        """What it is set to."""
        return self.write.value


class OverwrittenEnable(WriteEvent):
    """``model.gradient_checkpointing_enable = True``: the method of a model is replaced, not called."""

    __slots__ = ()
    words = HfEnable.words


class UncalledEnable(NamingEvent):
    """``model.gradient_checkpointing_enable`` as a statement: the method is named, not called."""

    __slots__ = ()
    words = HfEnable.words


class AdapterAttach(CallEvent):
    """``get_peft_model(model, config)`` or ``PeftModel.from_pretrained(model, ...)``."""

    __slots__ = ()
    words = ("get_peft_model",)

    @property
    def model(self) -> Value:
        """The base model."""
        return self.call.argument(0, "model")

    @property
    def config(self) -> Value:
        """The adapter's configuration."""
        return self.call.argument(1, "peft_config")
