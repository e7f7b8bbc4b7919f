"""From calls and assignments to events: which library function, method and attribute means what."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.objects.classes import ancestors
from ...facts.values import (
    UNKNOWN,
    Absent,
    Attr,
    Call,
    Class,
    Const,
    Guard,
    Instance,
    Param,
    Ref,
    Result,
    Value,
    equals,
    options,
)
from ..names import canonical
from ..texts.passing_names import is_named_in
from ..types import bases, is_hf_model, is_in_hf_model, wrapper_of
from . import checkpoints as c
from . import environment as env
from . import launchers as la
from . import library_checkpoints as lc
from . import swift as sw
from . import training as t
from . import transformers as hf
from . import wrappers as w

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Place
    from ...facts.walk import Program, Write
    from .event import CallEvent, Event, WriteEvent

_WRAPPER = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper."

_SWIFT = tuple(f"swift.{name}Arguments" for name in ("Train", "Sft", "Pretrain", "RLHF", "Training", "Seq2SeqTraining"))
#: The classes of Megatron-SWIFT that hold arguments for recomputation, up to 3.x and since 4.0.
MEGATRON_SWIFT = tuple(f"swift.Megatron{name}Arguments" for name in ("Train", "Sft", "Pretrain", "RLHF"))

_OF_LIBRARIES: tuple[type[lc.DeepSpeedCheckpoint | lc.TimmCheckpoint | lc.TimmSegments | lc.OwnCheckpoint], ...] = (
    lc.DeepSpeedCheckpoint,
    lc.TimmCheckpoint,
    lc.TimmSegments,
    lc.OwnCheckpoint,
)

#: What a call of a function, by its canonical name, means.
FUNCTIONS: dict[str, type[CallEvent]] = {
    "torch.utils.checkpoint.checkpoint": c.Checkpoint,
    "torch.utils.checkpoint.checkpoint_sequential": c.CheckpointSequential,
    **{name: kind for kind in _OF_LIBRARIES for name in kind.NAMES},
    f"{_WRAPPER}checkpoint_wrapper": c.CheckpointWrap,
    f"{_WRAPPER}apply_activation_checkpointing": c.ApplyCheckpointing,
    "peft.prepare_model_for_kbit_training": hf.KbitPrepare,
    "peft.get_peft_model": hf.AdapterAttach,
    "peft.PeftModel.from_pretrained": hf.AdapterAttach,
    "torch.distributed.fsdp.FullyShardedDataParallel": w.Fsdp1Wrap,
    "torch.distributed.fsdp.fully_shard": w.Fsdp2Shard,
    "torch.distributed._composable.fully_shard": w.Fsdp2Shard,
    "torch.nn.parallel.DistributedDataParallel": w.DdpWrap,
    "torch.compile": w.Compile,
    la.ACCELERATOR: w.AcceleratorBuild,
    "accelerate.FullyShardedDataParallelPlugin": w.FsdpPlugin,
    "torch.autograd.backward": t.Backward,
    "torch.autograd.grad": t.AutogradGrad,
    "os.environ.setdefault": env.EnvironmentCall,
    "os.putenv": env.EnvironmentCall,
    "os.environ.update": env.EnvironmentUpdate,
    # What programs that are run by a configuration alone make of it.
    "axolotl.TrainingArguments": hf.TrainerArgs,
    "llamafactory.TrainingArguments": hf.TrainerArgs,
    # ms-swift's classes, by their names up to 3.x and since 4.0; the last ones are its Trainers' own.
    **dict.fromkeys(_SWIFT, sw.SwiftArgs),
}

#: What a call of a method of a model of transformers means.
MODEL_METHODS: dict[str, type[CallEvent]] = {
    "gradient_checkpointing_enable": hf.HfEnable,
    "activation_checkpointing_enable": hf.HfEnable,
    "gradient_checkpointing_disable": hf.HfDisable,
    "activation_checkpointing_disable": hf.HfDisable,
}

#: The methods among them that switch checkpointing on.
ENABLES = frozenset(name for name, kind in MODEL_METHODS.items() if kind is hf.HfEnable)

#: What setting an attribute means.
ATTRIBUTES: dict[str, type[WriteEvent]] = {
    "forward": hf.ForwardPatch,
    "gradient_checkpointing": hf.FlagWrite,
}

#: What setting an attribute of a TrainingArguments object means.
ARGS_ATTRIBUTES: dict[str, type[WriteEvent]] = {
    "gradient_checkpointing_kwargs": hf.KwargsWrite,
    "activation_checkpointing_kwargs": hf.KwargsWrite,
}

#: What a call of a method of a launcher means.
HAND_OVERS: dict[str, type[la.HandOver]] = {
    "prepare": la.AcceleratePrepare,
    "prepare_model": la.AcceleratePrepare,
    "fit": la.LightningFit,
    "setup": la.FabricSetup,
    "setup_module": la.FabricSetup,
}

#: The attribute of a module that calls torch's checkpoint once checkpointing is enabled.
PUT_BY_TRANSFORMERS = "_gradient_checkpointing_func"

#: What a call of a method means, whatever the object.
METHODS: dict[str, type[CallEvent]] = {
    "compile": w.Compile,
    "backward": t.Backward,
    "manual_backward": t.Backward,
    "train": t.TrainSwitch,
    "eval": t.EvalSwitch,
    "evaluate": t.Evaluation,
    "predict": t.Evaluation,
    "generate": t.Generate,
    "set_grad_checkpointing": t.TimmEnable,
    PUT_BY_TRANSFORMERS: c.LayerCheckpoint,
    "requires_grad_": t.GradientSwitchCall,
    "detach": t.Detach,
    "named_parameters": t.NamedParts,
    "named_modules": t.NamedParts,
    "register_post_accumulate_grad_hook": t.GradientHook,
}


def events_in(program: Program) -> list[Event]:
    """The events of a program, in program order."""
    found: list[Event] = [event for call in program.calls for event in events_of(call)]
    found += [event for write in program.writes for event in _events_of_write(write)]
    found += [hf.UncalledEnable(named) for named in program.named if named.node.attr in ENABLES]
    return sorted(found, key=lambda event: event.order)


def events_of(call: Call) -> Iterator[CallEvent]:
    """The events of one call; most calls have none."""
    match call.func:
        case Ref(name):
            name = canonical(name)
            if name == "torch.distributed.fsdp.wrap":
                yield from w.wraps_around(call)
            kind = FUNCTIONS.get(name) or _constructor(name)
            if kind is not None:
                yield c.LayerCheckpoint(call) if _is_put_by_transformers(call) else kind(call)
            elif name == "functools.partial" and call.args and _is_checkpoint(call.args[0]):
                yield c.CheckpointPartial(call)
        case Class() as cls:
            for base in bases(cls):
                kind = FUNCTIONS[base] if base == wrapper_of(cls) and base in FUNCTIONS else _constructor(base)
                if kind is not None:
                    yield kind(call)
                    return
        case Attr(base=base, name=name):
            kind = _method(base, name)
            ways = list(_switched_by_test(call)) if kind is t.GradientSwitchCall else []
            if kind is not None:
                yield from ways or [kind(call)]
            if kind is not None and issubclass(kind, la.HandOver):
                yield from la.checkpointings(kind(call))


def _is_put_by_transformers(call: Call) -> bool:
    """Whether what is called stands where enabling checkpointing puts a function of its own: torch's is replaced.

    That is done in modules that have the flag (``PreTrainedModel._set_gradient_checkpointing``).
    """
    if call.attribute is None or call.attribute.attr != PUT_BY_TRANSFORMERS:
        return False
    owner = call.place.function.owner if call.place.function is not None else None
    return owner is None or set(bases(owner)) != {"torch.nn.Module"} or _has_the_flag(owner)


def _has_the_flag(cls: Class) -> bool:
    names = ({*owner.fields, *owner.body} for owner in (cls, *ancestors(cls)))
    return any("gradient_checkpointing" in known for known in names)


def _method(base: Value, name: str) -> type[CallEvent] | None:
    if name in HAND_OVERS:
        return HAND_OVERS[name] if HAND_OVERS[name].may_launch(base) else None
    if name in MODEL_METHODS:
        return MODEL_METHODS[name] if all(map(is_in_hf_model, options(base))) else None
    return METHODS.get(name)


def _events_of_write(write: Write) -> Iterator[Event]:
    if write.field == "requires_grad":
        given = write.node.value if isinstance(write.node, ast.Assign) else None
        ways = _ways(given, write.place)
        yield from (t.GradientSwitchWrite(write._replace(value=value, place=place)) for value, place in ways)
        if not ways:
            yield t.GradientSwitchWrite(write)
    elif write.is_item:
        if isinstance(write.obj, Ref) and write.obj.name == "os.environ":
            yield env.EnvironmentWrite(write)
    elif write.field in ENABLES:
        if isinstance(write.value, Const) and write.value.value and _is_set_on_model(write.obj):
            yield hf.OverwrittenEnable(write)
    elif write.field in ATTRIBUTES:
        yield ATTRIBUTES[write.field](write)
    elif write.field in ARGS_ATTRIBUTES and is_args(write.obj):
        yield ARGS_ATTRIBUTES[write.field](write)


def _is_set_on_model(value: Value) -> bool:
    """Whether an attribute of ``value`` is certainly one of a model of transformers: None takes no attribute."""
    models = [option for option in options(value) if equals(option, None) is not True]
    return bool(models) and all(map(is_hf_model, models))


def _switched_by_test(call: Call) -> Iterator[CallEvent]:
    """`parameter.requires_grad_("head" in name)`."""
    for value, place in _ways(call.node.args[0] if len(call.node.args) == 1 else None, call.place):
        other = Call(call.node, call.func, place, call.order)
        other.args, other.grad = [value], call.grad
        yield t.GradientSwitchCall(other)


def _ways(given: ast.expr | None, place: Place) -> list[tuple[Value, Place]]:
    """Both ways of a test of the names in a loop over parameters: off where it fails, on where it holds."""
    loop = place.loops[-1] if place.loops else None
    given, on = _test_of(given)
    tests = isinstance(given, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Call)
    if given is None or not tests or not isinstance(loop, ast.For) or not is_named_in(loop):
        return []
    return [
        (Const(holds is on, given), place._replace(guards=(*place.guards, Guard(given, UNKNOWN, holds))))
        for holds in (False, True)
    ]


def _test_of(given: ast.expr | None) -> tuple[ast.expr | None, bool]:
    """The test that decides a flag, and what the flag is where it holds: False of `False if test else True`."""
    match given:
        case ast.IfExp(test=test, body=ast.Constant(value=bool(on)), orelse=ast.Constant(value=bool(off))) if (
            on is not off
        ):
            return test, on
    return given, True


def _is_checkpoint(value: Value) -> bool:
    return isinstance(value, Ref) and canonical(value.name) == "torch.utils.checkpoint.checkpoint"


def _constructor(name: str) -> type[CallEvent] | None:
    if is_trainer_args(name):
        return hf.TrainerArgs
    if name.startswith(("transformers.", "trl.")) and name.count(".") == 1 and name.endswith("Trainer"):
        return hf.TrainerBuild
    return None


def args_of(value: Value) -> hf.TrainerArgs | None:
    """The construction of a TrainingArguments object, also one a parser filled; None for anything else."""
    match arguments_behind(value):
        case Result(call) | Instance(_, call) if call is not None:
            return next((event for event in events_of(call) if isinstance(event, hf.TrainerArgs)), None)
    return None


def arguments_behind(value: Value) -> Value:
    """What a Trainer of the program was given as its arguments for `trainer.args`; ``value`` itself for the rest."""
    match value:
        case Attr(base=Result(call) | Instance(_, call), name="args") if call is not None:
            built = next((event for event in events_of(call) if isinstance(event, hf.TrainerBuild)), None)
            return value if built is None or isinstance(built.args, Absent) else built.args
    return value


def is_args(value: Value) -> bool:
    """Whether ``value`` is certainly a TrainingArguments object."""
    return all(map(_is_args, options(arguments_behind(value))))


def _is_args(value: Value) -> bool:
    if isinstance(value, Attr) and value.name == "args" and isinstance(value.base, Instance):
        return any(_constructor(base) is hf.TrainerBuild for base in bases(value.base.cls))  # `self.args`
    if isinstance(value, Param) and isinstance(value.annotation, Ref):
        return is_trainer_args(canonical(value.annotation.name))
    if isinstance(value, Instance) and value.call is None:
        return any(is_trainer_args(base) for base in bases(value.cls))
    found = args_of(value)
    # ms-swift copies its arguments for the Trainer as soon as they are built.
    return found is not None and not isinstance(found, sw.SwiftArgs)


def is_trainer_args(name: str) -> bool:
    """Whether a canonical name is that of a TrainingArguments class."""
    library, _, kind = name.rpartition(".")
    if library == "transformers":
        return kind.endswith("TrainingArguments")
    return library == "trl" and kind.endswith("Config") and kind != "ModelConfig"
