"""The typed events of a program: what its calls mean for activation checkpointing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.objects.classes import ancestors
from ..facts.values import ABSENT, Absent, Class, Partial, Ref, Value, options
from .variant import torch_reentrant

if TYPE_CHECKING:
    import ast

    from ..facts.calls import Call
    from ..facts.places import Place


class Event:
    """Something a call does. ``call`` has the arguments; ``place`` and ``order`` say where and when."""

    __slots__ = ("call",)
    __match_args__: tuple[str, ...] = ("call",)

    def __init__(self, call: Call) -> None:
        self.call = call

    def __repr__(self) -> str:
        return f"{type(self).__name__}(line {self.node.lineno})"

    @property
    def node(self) -> ast.Call:
        """The call expression."""
        return self.call.node

    @property
    def place(self) -> Place:
        """What is around it."""
        return self.call.place

    @property
    def order(self) -> int:
        """Its position in program order."""
        return self.call.order


class Checkpointing(Event):
    """Something becomes a region whose activations are recomputed."""

    __slots__ = ()

    @property
    def reentrant(self) -> bool | None:
        """Whether the reentrant variant runs."""
        raise NotImplementedError


class TorchCheckpoint(Checkpointing):
    """A call of torch's own checkpoint functions."""

    __slots__ = ()

    @property
    def use_reentrant(self) -> Value:
        """The argument; ABSENT when it is certainly not given."""
        return self.call.keyword("use_reentrant")

    @property
    def reentrant(self) -> bool | None:
        """Whether the reentrant variant runs."""
        return torch_reentrant(self.use_reentrant)


class Checkpoint(TorchCheckpoint):
    """``torch.utils.checkpoint.checkpoint(fn, *args)``, directly, through a partial or a rebound name."""

    __slots__ = ()
    #: Keywords that belong to `checkpoint` itself (the last one from torch 2.14 on); others go to the function.
    OWN = (
        "function",
        "use_reentrant",
        "context_fn",
        "determinism_check",
        "debug",
        "early_stop",
        "preserve_rng_state",
        "respect_saved_tensors_hooks",
    )

    @property
    def function(self) -> Value:
        """What is checkpointed."""
        return self.call.argument(0, "function")

    @property
    def inputs(self) -> list[Value]:
        """The positional inputs of the function."""
        return self.call.args[1:]

    @property
    def function_kwargs(self) -> dict[str, Value]:
        """The keyword arguments meant for the function."""
        return {name: value for name, value in self.call.kwargs.items() if name not in self.OWN}


class CheckpointSequential(TorchCheckpoint):
    """``torch.utils.checkpoint.checkpoint_sequential(functions, segments, input)``."""

    __slots__ = ()

    @property
    def functions(self) -> Value:
        """The modules run one after the other."""
        return self.call.argument(0, "functions")

    @property
    def segments(self) -> Value:
        """How many parts they are cut into."""
        return self.call.argument(1, "segments")

    @property
    def input(self) -> Value:
        """What the first of them gets."""
        return self.call.argument(2, "input")


class CheckpointPartial(Event):
    """``functools.partial(checkpoint, ...)``."""

    __slots__ = ()


class WrapperCheckpointing(Checkpointing):
    """Torch's ``CheckpointWrapper`` modules are put into a model."""

    __slots__ = ()

    @property
    def module(self) -> Value:
        """The module that is wrapped, or whose submodules are."""
        raise NotImplementedError


class CheckpointWrap(WrapperCheckpointing):
    """``checkpoint_wrapper(module, ...)`` of ``torch.distributed.algorithms``; non-reentrant unless told otherwise."""

    __slots__ = ()

    @property
    def module(self) -> Value:
        """The module that is wrapped."""
        return self.call.argument(0, "module")

    @property
    def reentrant(self) -> bool | None:
        """Whether the reentrant variant runs."""
        return wrapper_reentrant(self.call.argument(1, "checkpoint_impl"))


class ApplyCheckpointing(WrapperCheckpointing):
    """``apply_activation_checkpointing(model, checkpoint_wrapper_fn, check_fn)``."""

    __slots__ = ()

    @property
    def model(self) -> Value:
        """The model whose submodules are wrapped in place."""
        return self.call.argument(0, "model")

    @property
    def module(self) -> Value:
        """The model."""
        return self.model

    @property
    def wrapper(self) -> Value:
        """What wraps each of them; ABSENT for the default, `checkpoint_wrapper`."""
        return self.call.argument(1, "checkpoint_wrapper_fn")

    @property
    def check(self) -> Value:
        """Which submodules are wrapped; ABSENT for the default, all of them."""
        return self.call.argument(2, "check_fn")

    @property
    def reentrant(self) -> bool | None:
        """Whether the wrappers are reentrant."""
        answers = set()
        for wrapper in options(self.wrapper):
            if isinstance(wrapper, Partial) and not wrapper.open_kwargs:
                answers.add(wrapper_reentrant(wrapper.kwargs.get("checkpoint_impl", ABSENT)))
            else:
                answers.add(False if isinstance(wrapper, Absent) or names_wrapper(wrapper) else None)
        return answers.pop() if len(answers) == 1 else None


class HfSetting(Event):
    """A place where arguments for torch's checkpoint are given to transformers or peft as a dict."""

    __slots__ = ()

    @property
    def kwargs(self) -> Value:
        """The dict of arguments for torch's checkpoint; ABSENT when not given."""
        raise NotImplementedError


class HfEnable(HfSetting):
    """``model.gradient_checkpointing_enable(...)`` or its new name, on a model of transformers."""

    __slots__ = ()

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


class HfDisable(Event):
    """``model.gradient_checkpointing_disable()``."""

    __slots__ = ()

    @property
    def model(self) -> Value:
        """The model."""
        return self.call.receiver


class KbitPrepare(HfSetting):
    """``peft.prepare_model_for_kbit_training(model, ...)``."""

    __slots__ = ()

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


class TrainerArgs(HfSetting):
    """A ``TrainingArguments`` object (or one of its children in trl) is built."""

    __slots__ = ()

    @property
    def enabled(self) -> Value:
        """The switch, by the new name or the old one; ABSENT when neither is given."""
        return self._either("activation_checkpointing", "gradient_checkpointing")

    @property
    def kwargs(self) -> Value:
        """The dict of arguments for torch's checkpoint; ABSENT when not given."""
        return self._either("activation_checkpointing_kwargs", "gradient_checkpointing_kwargs")

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


class TrainerBuild(Event):
    """A ``Trainer`` (or one of its children in trl) is built."""

    __slots__ = ()

    @property
    def model(self) -> Value:
        """What it trains."""
        return self.call.argument(0, "model")

    @property
    def args(self) -> Value:
        """Its TrainingArguments."""
        return (
            self.call.argument(1, "args") if self.call.name.startswith("transformers.") else self.call.keyword("args")
        )

    @property
    def peft_config(self) -> Value:
        """The adapter that trl's trainers attach themselves."""
        return self.call.keyword("peft_config")


class AdapterAttach(Event):
    """``get_peft_model(model, config)`` or ``PeftModel.from_pretrained(model, ...)``."""

    __slots__ = ()

    @property
    def model(self) -> Value:
        """The base model."""
        return self.call.argument(0, "model")

    @property
    def config(self) -> Value:
        """The adapter's configuration."""
        return self.call.argument(1, "peft_config")


class Fsdp1Wrap(Event):
    """``FullyShardedDataParallel(module, ...)``."""

    __slots__ = ()

    @property
    def module(self) -> Value:
        """The module that is wrapped."""
        return self.call.argument(0, "module")


class Fsdp2Shard(Event):
    """``fully_shard(module, ...)``: shards in place."""

    __slots__ = ()

    @property
    def module(self) -> Value:
        """The module that is sharded."""
        return self.call.argument(0, "module")


class DdpWrap(Event):
    """``DistributedDataParallel(module, ...)``."""

    __slots__ = ()

    @property
    def module(self) -> Value:
        """The module that is wrapped."""
        return self.call.argument(0, "module")


class Compile(Event):
    """``torch.compile(module)`` or ``module.compile()``."""

    __slots__ = ()

    @property
    def module(self) -> Value:
        """What is compiled."""
        return self.call.receiver if self.call.method else self.call.argument(0, "model")


def wrapper_reentrant(implementation: Value) -> bool | None:
    """Whether a ``checkpoint_impl`` is the reentrant one; the default is not."""
    answers: set[bool | None] = set()
    for option in options(implementation):
        match option:
            case Absent():
                answers.add(False)
            case Ref(name) if name.endswith(("CheckpointImpl.REENTRANT", "CheckpointImpl.NO_REENTRANT")):
                answers.add(name.endswith(".REENTRANT"))
            case _:
                answers.add(None)
    return answers.pop() if len(answers) == 1 else None


def names_wrapper(value: Value) -> bool:
    """Whether ``value`` is torch's ``checkpoint_wrapper`` itself."""
    return isinstance(value, Ref) and value.name.endswith("checkpoint_wrapper.checkpoint_wrapper")
