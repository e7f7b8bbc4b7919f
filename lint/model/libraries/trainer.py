"""The HuggingFace side of a run: which arguments a Trainer gets and what it will really do with them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.origin import setting_span
from ...facts.values import (
    UNKNOWN,
    Absent,
    Attr,
    Class,
    Const,
    Dict,
    Instance,
    Ref,
    Result,
    Value,
    equals,
    is_absent,
    one,
    options,
    same,
    truth,
)
from ..events import HfEnable, HfSetting, KbitPrepare, KwargsWrite, SwiftArgs, TrainerArgs, TrainerBuild
from ..events.extract import args_of, arguments_behind
from ..names import canonical
from ..types import bases, may_be_same_model, whole_model
from ..variant import TRAINER_KEYS, hf_kwargs_reentrant, torch_reentrant
from .sharding import is_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..events import Event
    from ..run import Run

SWITCHES = ("activation_checkpointing", "gradient_checkpointing")
KWARGS = ("activation_checkpointing_kwargs", "gradient_checkpointing_kwargs")
FINDS_UNUSED = "ddp_find_unused_parameters"
#: What is called after DDP and holds for sharded models too.
_OF_ANY_RUN = ("ddp_timeout", "ddp_backend")
#: Classes of trl that derive from `TrainingArguments`.
_OF_TRL = tuple(f"{task}Config" for task in ("SFT", "DPO", "GRPO", "KTO", "RLOO", "Reward", "ORPO", "CPO"))
#: Names from other libraries, and of torch's parameter, that none of these classes has.
NO_ARGUMENTS = ("use_reentrant", "use_gradient_checkpointing", "enable_gradient_checkpointing")
#: What selects layers, where nothing is given.
_UNSELECTIVE = {"every_n_layers": 1, "offload": False}
#: Methods that change a dict.
_CHANGES = ("update", "setdefault", "__setitem__", "__ior__", "pop", "clear")


def takes_no_others(args: TrainerArgs) -> bool:
    """Whether the class that ``args`` names is one of transformers or trl, and no class derived from it."""
    library, _, name = canonical(args.call.name).rpartition(".")
    known = _OF_TRL if library.startswith("trl") else ("TrainingArguments", "Seq2SeqTrainingArguments")
    return args.call.called == name in known and library.partition(".")[0] in ("transformers", "trl")


def where(value: Value, otherwise: ast.AST) -> ast.AST:
    """The entry of a configuration file that gives ``value``; ``otherwise`` when a script does."""
    return value.node if value.node is not None and setting_span(value.node) is not None else otherwise


def written_at(setting: Event) -> ast.AST:
    """Where a script gives the dict for torch's checkpoint: the argument among many, else the whole of ``setting``."""
    return _argument(setting, KWARGS)


def switched_at(setting: Event) -> ast.AST:
    """Where a script switches checkpointing on: the argument among many, else the whole of ``setting``."""
    return _argument(setting, SWITCHES)


def switched_by(setting: Event) -> str:
    """The name of the argument that switches checkpointing on, as the script spells it; else the usual one."""
    argument = switched_at(setting)
    return argument.arg if isinstance(argument, ast.keyword) and argument.arg else SWITCHES[1]


def _argument(setting: Event, names: tuple[str, ...]) -> ast.AST:
    if not isinstance(setting, TrainerArgs):
        return setting.node
    return next((word for word in setting.node.keywords if word.arg in names), setting.node)


def default_switch(args: TrainerArgs) -> bool:
    """Whether checkpointing is on when the arguments do not say: trl and ms-swift turn it on."""
    if isinstance(args, SwiftArgs):
        return True
    match args.call.func:
        case Ref(name):
            return name.startswith("trl.")
        case Class() as cls:
            return any(name.startswith("trl.") for name in bases(cls))
    return False


def object_of(args: TrainerArgs) -> Value:
    """The object that ``args`` builds."""
    made = args.call.func
    return Instance(made, args.call) if isinstance(made, Class) else Result(args.call)


def is_enabled(run: Run, args: TrainerArgs, value: Value) -> bool | None:
    """Whether the Trainer that gets ``args`` turns checkpointing on. Later writes to the new name count."""
    answer = _switch(args)
    names = SWITCHES if isinstance(args, SwiftArgs) else _effective(run, SWITCHES)
    for write in run.writes:
        if write.field in names and any(same(option, value) for option in options(arguments_behind(write.obj))):
            if isinstance(args, SwiftArgs):
                return None  # The Trainer's arguments are copied from these when they are built.
            answer = truth(write.value) if not write.place.deeper_than(args.place) else None
    return answer


def _switch(args: TrainerArgs) -> bool | None:
    enabled = args.enabled
    if isinstance(enabled, Absent) or equals(enabled, None):
        return default_switch(args)
    return truth(enabled)


def _effective(run: Run, names: tuple[str, str]) -> tuple[str, ...]:
    """The names a write to which reaches the Trainer: since transformers 5.23 only the new one."""
    return names if run.versions.may_be("transformers", "<5.23") else names[:1]


def settings_of(run: Run) -> Iterator[HfSetting | KwargsWrite]:
    """Every dict of arguments for torch's checkpoint that transformers or peft gets, also one that is written later."""
    yield from run.of(HfSetting)
    yield from written_kwargs(run)


def written_kwargs(run: Run) -> Iterator[KwargsWrite]:
    """The dicts that are written to a Trainer's arguments and that it gets."""
    return (setting for setting in run.of(KwargsWrite) if _reaches_trainer(run, setting))


def _reaches_trainer(run: Run, setting: KwargsWrite) -> bool:
    """Whether a Trainer gets the dict of ``setting``: nothing replaces it later or switches checkpointing off."""
    return setting.write.field in _effective(run, KWARGS) and stays_written(run, setting)


def stays_written(run: Run, setting: KwargsWrite) -> bool:
    """Whether nothing replaces the dict of ``setting`` later, changes it, or switches checkpointing off."""
    for write in run.writes:
        if any(same(obj, setting.target) for obj in options(write.obj)):
            later = write.order > setting.order and not write.place.excludes(setting.place)
            replaces = write.field in KWARGS and later
            if replaces or (write.field in SWITCHES and truth(write.value) is not True):
                return False
    return not any(_is_kwargs_of(setting.target, call.receiver) for call in run.method_calls(*_CHANGES))


def kwargs_may_change(run: Run, args: TrainerArgs) -> bool:
    """Whether the dict of arguments is replaced or written to after ``args`` are built; both names share the dict."""
    made = object_of(args)
    for write in run.writes:
        objects = options(arguments_behind(write.obj))
        replaced = write.field in _effective(run, KWARGS) and any(same(obj, made) for obj in objects)
        if replaced or _is_kwargs_of(made, write.obj):
            return True
    return any(_is_kwargs_of(made, call.receiver) for call in run.method_calls(*_CHANGES))


def _is_kwargs_of(made: Value, value: Value) -> bool:
    return any(
        isinstance(option, Attr) and option.name in KWARGS and same(option.base, made) for option in options(value)
    )


def trainer_kwargs(kwargs: Value) -> Value:
    """The dict torch gets when the Trainer enables checkpointing: its own keys taken out, an empty one is none."""
    if not isinstance(kwargs, Dict) or kwargs.open:
        return kwargs
    rest = {key: value for key, value in kwargs.items.items() if key not in TRAINER_KEYS}
    return Dict(rest, False, kwargs.node) if rest else Const(None, kwargs.node)


def trainer_reentrant(run: Run, args: TrainerArgs) -> bool | None:
    """The variant a Trainer with ``args`` selects."""
    if kwargs_may_change(run, args):
        return None
    if isinstance(args, SwiftArgs):
        return _swift_reentrant(run, args)
    return hf_kwargs_reentrant(trainer_kwargs(args.kwargs), run.versions.hf_default_reentrant)


def speaks_of_ddp(args: TrainerArgs) -> bool:
    """Whether the arguments set something of DDP alone, and ask for nothing that shards the model instead."""
    sharded = any(is_absent(args.setting(name)) is not True for name in ("fsdp", "deepspeed"))
    return not sharded and any(name.startswith("ddp_") and name not in _OF_ANY_RUN for name in args.call.kwargs)


def finds_unused(run: Run, args: TrainerArgs) -> Value:
    """What `ddp_find_unused_parameters` is when the arguments are built, or written to later; ABSENT for nothing."""
    made = object_of(args)
    fields = [write for write in run.writes if write.field == FINDS_UNUSED]
    writes = [write for write in fields if any(same(option, made) for option in options(write.obj))]
    if not writes:
        return args.setting(FINDS_UNUSED)
    return UNKNOWN if writes[-1].place.deeper_than(args.place) else writes[-1].value


def _swift_reentrant(run: Run, args: SwiftArgs) -> bool | None:
    """The variant that ms-swift makes of every call of torch's checkpoint, whoever calls it."""
    if not args.chooses_variant:
        return torch_reentrant(args.kwargs.get("use_reentrant")) if isinstance(args.kwargs, Dict) else None
    if args.is_before_3 or not run.versions.may_be("ms-swift", ">=3"):
        return None
    if not run.versions.may_be("ms-swift", ">=3.6"):
        return True
    if args.is_sharded or run.versions.may_be("ms-swift", "<3.6"):
        return True if args.is_sharded else None
    return False if args.is_distributed and args.is_sharded is False else None


def default_versions(setting: Event) -> str | None:
    """The versions that run the reentrant variant because ``setting`` does not say which; None when it does."""
    match setting:
        case HfEnable():
            kwargs = setting.kwargs
        case SwiftArgs():
            return None if not setting.chooses_variant else "ms-swift<3.6"
        case TrainerArgs():
            kwargs = trainer_kwargs(setting.kwargs)
        case _:
            return None
    is_left_open = any(isinstance(option, Absent) or equals(option, None) for option in options(kwargs))
    return "transformers<5.0" if is_left_open else None


def enable_reentrant(run: Run, enable: HfEnable) -> bool | None:
    """The variant that a model enabled by ``enable`` runs."""
    return hf_kwargs_reentrant(enable.kwargs, run.versions.hf_default_reentrant)


def settings_lost(enable: HfEnable | KbitPrepare, args: TrainerArgs) -> dict[str, Value]:
    """What ``enable`` asks for beside the variant, and a Trainer with ``args`` does not, by its name."""
    asked = dict(enable.kwargs.items) if isinstance(enable.kwargs, Dict) else {}
    asked |= {name: value for name, value in enable.selection.items() if equals(value, _UNSELECTIVE[name]) is False}
    kept = args.kwargs
    if isinstance(kept, Dict):
        asked = {name: value for name, value in asked.items() if not kept.open and _is_other(value, kept.get(name))}
    return {name: value for name, value in asked.items() if name != "use_reentrant"}


def _is_other(asked: Value, kept: Value) -> bool:
    """Whether ``kept`` is certainly not what is ``asked`` for."""
    if isinstance(asked, Const) and isinstance(kept, Const):
        return asked.value != kept.value
    return isinstance(kept, Absent)


def trainers_of(run: Run, model: Value) -> Iterator[tuple[TrainerBuild, TrainerArgs, Value]]:
    """The Trainers built for ``model``, or for what it is a part of, with known arguments.

    Each with its construction, its arguments, and their object.
    """
    for trainer in run.of(TrainerBuild):
        is_whole = may_be_same_model(whole_model(trainer.model), whole_model(model))
        if not is_whole and not is_in(model, whole_model(trainer.model)):
            continue
        for value in options(trainer.args):
            args = args_of(value)
            if args is not None:
                yield trainer, args, value


def overriding_trainer(run: Run, enable: HfEnable | KbitPrepare) -> tuple[TrainerBuild, TrainerArgs] | None:
    """The Trainer that enables checkpointing on the same model again and so replaces what ``enable`` asked for."""
    for trainer, args, value in trainers_of(run, enable.model):
        apart = any(event.place.excludes(enable.place) for event in (trainer, args))
        if is_enabled(run, args, value) and not apart and _may_train_after(run, trainer, enable):
            return trainer, args
    return None


def _may_train_after(run: Run, trainer: TrainerBuild, enable: HfEnable | KbitPrepare) -> bool:
    """Whether ``trainer`` may train behind ``enable``: it does, or the program shows no use of it at all."""
    made = Result(trainer.call)
    uses = [call for call in run.method_calls("train", "evaluate", "predict") if one(call.receiver, made)]
    return not uses or any(call.method == "train" and call.order > enable.order for call in uses)
