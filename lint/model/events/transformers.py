"""What transformers, trl and peft are asked for: models that checkpoint, Trainers and their arguments, adapters."""

from __future__ import annotations

import ast
from typing import ClassVar

from ...facts.objects.classes import ancestors, method_of
from ...facts.parameters import positional_names
from ...facts.values import ABSENT, Absent, Class, Value, equals
from ...prefilter.words import TRL, WHOLE
from ..names import canonical
from ..types import trainer_base
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


#: Where trl's Trainers take their arguments by position.
_ARGS_OF_TRL = {
    **dict.fromkeys(("SFTTrainer", "RewardTrainer", "ORPOTrainer", "CPOTrainer"), 1),
    **dict.fromkeys(("DPOTrainer", "KTOTrainer", "GRPOTrainer", "RLOOTrainer"), 2),
}


class TrainerBuild(CallEvent):
    """A ``Trainer`` (or one of its children in trl) is built."""

    __slots__ = ()
    words = (f"Trainer{WHOLE}",)

    @property
    def model(self) -> Value:
        """What it trains."""
        return self.call.argument(self._position("model", 0), "model")

    @property
    def args(self) -> Value:
        """Its TrainingArguments."""
        library, _, name = self._library_class().rpartition(".")
        usual = _ARGS_OF_TRL.get(name) if library == "trl" else 1
        return self.call.argument(self._position("args", usual), "args")

    @property
    def peft_config(self) -> Value:
        """The adapter that trl's trainers attach themselves."""
        return self.call.keyword("peft_config")

    def _library_class(self) -> str:
        """The class of the library that is built, or that a class of the file derives from."""
        cls = self.call.func
        return trainer_base(cls) if isinstance(cls, Class) else canonical(self.call.name)

    def _position(self, name: str, usual: int | None) -> int | None:
        """Where the argument ``name`` stands: ``usual`` for the library's classes, or as the own constructor says."""
        cls = self.call.func
        made = method_of(cls, "__init__") if isinstance(cls, Class) else None
        if made is None:
            return usual
        own = positional_names(made.node)[1:]
        if name in own:
            return own.index(name)
        passes_on = usual is not None and made.node.args.vararg is not None
        return len(own) + usual if passes_on and usual is not None else None


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
