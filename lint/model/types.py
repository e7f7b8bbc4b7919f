"""What kind of object a value is, by the classes it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.objects.classes import ancestors
from ..facts.objects.pretrained import names_model
from ..facts.own_constructors import hands_all_on
from ..facts.values import (
    Attr,
    Choice,
    Class,
    Element,
    Function,
    Instance,
    Param,
    Ref,
    Result,
    Value,
    copied,
    options,
    same,
)
from .names import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Call

_FABRICS = frozenset(("lightning.Fabric", "pytorch_lightning.Fabric"))
#: Functions that give back the model they are given, wrapped or prepared.
PASS_THROUGH = frozenset(
    (
        "peft.get_peft_model",
        "peft.PeftModel.from_pretrained",
        "peft.prepare_model_for_kbit_training",
        "torch.compile",
        "torch.nn.DataParallel",
        "torch.nn.parallel.DistributedDataParallel",
        "torch.distributed.fsdp.FullyShardedDataParallel",
        "torch.distributed.fsdp.wrap",
        "torch.distributed.fsdp.fully_shard",
        "torch.distributed._composable.fully_shard",
        "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.checkpoint_wrapper",
        "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.offload_wrapper",
        "torch.nn.SyncBatchNorm.convert_sync_batchnorm",
    )
)
#: The classes among them.
_WRAPPER_CLASSES = frozenset(name for name in PASS_THROUGH if name.startswith("torch.") and name.endswith("Parallel"))
_SAME_OBJECT = frozenset(
    ("to", "cuda", "cpu", "half", "bfloat16", "float", "train", "eval", "requires_grad_", "double")
)
#: The methods by which models of transformers, and adapters, give the model with the layers.
MODEL_PARTS = frozenset(("get_decoder", "get_encoder", "get_base_model"))
#: The attributes under which models of transformers keep all their layers, and adapters the model.
_LAYERS = ("base_model", "model", "transformer")


def bases(cls: Class) -> Iterator[str]:
    """The canonical names of the imported classes a class of the file derives from."""
    for owner in (cls, *ancestors(cls)):
        for base in owner.bases:
            for option in options(base):
                if isinstance(option, Ref):
                    yield canonical(option.name)


def wrapper_of(cls: Class) -> str:
    """The wrapper of torch around a module that a class of the file derives from and is built like; empty for none."""
    is_built_alike = all("__init__" not in owner.body for owner in (cls, *ancestors(cls)))
    found = (name for name in bases(cls) if name in _WRAPPER_CLASSES)
    return next(found, "") if is_built_alike else ""


def object_of_class(value: Value) -> Value | None:
    """The object whose class ``value`` is: `type(layer)`, `layer.__class__`; None for all else."""
    match value:
        case Result(call) if call.name == "builtins.type" and len(call.args) == 1:
            return call.args[0]
        case Attr(base=held, name="__class__"):
            return held
    return None


def class_names(value: Value) -> frozenset[str]:
    """The canonical names of the imported classes ``value`` is certainly an object of (itself or by inheritance)."""
    match value:
        case Result(call) if isinstance(call.func, Ref):
            return frozenset((canonical(call.func.name),))
        case Instance(cls):
            return frozenset(bases(cls))
        case Param() if isinstance(value.annotation, Ref):
            return frozenset((canonical(value.annotation.name),))
        case Param() if isinstance(value.annotation, Class):
            return frozenset(bases(value.annotation))
        case Choice(alternatives):
            return frozenset.intersection(*(class_names(option) for option in alternatives))
    return frozenset()


def unwrapped(value: Value) -> Value:
    """The model itself: through wrappers, preparations and methods that return their object."""
    for _ in range(20):
        match value:
            case Result(call) if canonical(call.name) in PASS_THROUGH:
                inner = next(
                    (found for found in (call.argument(0, "model"), call.argument(0, "module")) if found.node), value
                )
            case Result(call) if call.method in _SAME_OBJECT:
                inner = same_object(value)
            case Instance(cls, call) if call is not None and wrapper_of(cls):
                inner = found if (found := call.argument(0, "module")).node else value
            case Attr(base=base, name="module"):
                inner = base
            case Attr(base=Result(call), name="model") if _is_trainer(call):
                inner = found if (found := call.argument(0, "model")).node else value
            case Attr(base=Instance(cls, call), name="model") if call is not None and _is_built_as_trainer(cls):
                inner = found if (found := call.argument(0, "model")).node else value
            case Result(call) if call.method == "unwrap_model" and is_accelerator(call.receiver) and call.args:
                inner = call.args[0]
            case Element(of=Result(call), index=0) if call.name == "deepspeed.initialize":
                inner = found if (found := call.argument(1, "model")).node else value
            case Result(call) | Element(of=Result(call)) if prepares(call):
                inner = _prepared(value, call)
            case Result(call) if call.method == "prepare_model" and is_accelerator(call.receiver):
                inner = found if (found := call.argument(0, "model")).node else value
            case _:
                return value
        if inner is value:
            return value
        by = value.copied_by if isinstance(value, Result) else None
        value = inner if by is None else copied(inner, by)
    return value


def origins(value: Value) -> Iterator[Value]:
    """Each object that ``value`` may be, through wrappers and alternatives, as in `wrap(a if flag else prepare(a))`."""
    for option in options(value):
        inner = unwrapped(option)
        if inner is not option and isinstance(inner, Choice):
            yield from origins(inner)
        else:
            yield inner


def may_be_same_model(left: Value, right: Value) -> bool:
    """Whether one object is among those that either may be."""
    known = list(origins(right))
    return any(same(value, other) for value in origins(left) for other in known)


def same_object(value: Value) -> Value:
    """The object before methods that return it, as in ``get_peft_model(model, config).train().to("cuda")``."""
    while isinstance(value, Result) and value.call.method in _SAME_OBJECT:
        value = value.call.receiver
    return value


def is_loaded(value: Value) -> bool:
    """Whether `from_pretrained` gave ``value``, a model, which is in eval mode then."""
    match value:
        case Result(call):
            return canonical(call.name).endswith(".from_pretrained")
        case Instance(_, call) if call is not None:
            return call.method == "from_pretrained"
    return False


def is_accelerator(value: Value) -> bool:
    """Whether ``value`` is certainly an Accelerator of accelerate; a Trainer keeps its own under `accelerator`."""
    match value:
        case Attr(base=Instance(cls), name="accelerator") if trainer_base(cls):
            return True
        case Attr(base=Result(call), name="accelerator") if _is_trainer(call):
            return True
    return "accelerate.Accelerator" in class_names(value)


def is_fabric(value: Value) -> bool:
    """Whether ``value`` is certainly a Fabric of Lightning."""
    return not _FABRICS.isdisjoint(class_names(value))


def prepares(call: Call) -> bool:
    """Whether ``call`` gives back, in order, what it is given: by accelerate's `prepare`, or Lightning Fabric's."""
    if call.method == "prepare":
        return is_accelerator(call.receiver)
    return call.method in ("setup", "setup_module") and is_fabric(call.receiver)


def trainer_base(cls: Class) -> str:
    """The Trainer of transformers or trl that a class of the file derives from; empty for none."""
    return next(filter(_names_trainer, bases(cls)), "")


def _is_built_as_trainer(cls: Class) -> bool:
    """Whether ``cls`` is a Trainer that takes the arguments of the library's."""
    constructors = (owner.body.get("__init__") for owner in (cls, *ancestors(cls)))
    own = [made for made in constructors if made is not None]
    return bool(trainer_base(cls)) and all(isinstance(made, Function) and hands_all_on(made.node) for made in own)


def _is_trainer(call: Call) -> bool:
    return _names_trainer(canonical(call.name))


def _names_trainer(name: str) -> bool:
    return name.startswith(("transformers.", "trl.")) and name.endswith("Trainer") and name.count(".") == 1


def _prepared(value: Value, call: Call) -> Value:
    """What a launcher was given for this one of its results; ``value`` itself when that is not known."""
    position = value.index if isinstance(value, Element) else 0
    known = isinstance(position, int) and 0 <= position < len(call.args) and not call.open_args
    return call.args[position] if known and isinstance(position, int) else value


def is_hf_model(value: Value) -> bool:
    """Whether ``value`` is certainly a model of transformers, plain or with a PEFT adapter."""
    return all(map(_is_hf_model, origins(value)))


def _is_hf_model(value: Value) -> bool:
    match value:
        case Result(call) if isinstance(call.func, Ref):
            return names_model(canonical(call.func.name))
        case Instance(cls):
            return any(names_model(base) for base in bases(cls))
        case Param():
            return any(names_model(name) for name in class_names(value))
        case Attr(base=base, name="model" | "base_model" | "transformer" | "language_model"):
            return is_hf_model(base)
        case Result(call) if call.method in MODEL_PARTS:
            return is_hf_model(call.receiver)
    return False


def is_in_hf_model(value: Value) -> bool:
    """Whether ``value`` is certainly a model of transformers or a part of one: `model.vision_tower`."""
    while isinstance(value, Attr) and not is_hf_model(value):
        value = unwrapped(value.base)
    return is_hf_model(value)


def whole_model(value: Value) -> Value:
    """The model of transformers that ``value`` is the layers of, as `model.base_model` is; else ``value`` itself."""
    value = same_object(value)
    while isinstance(value, Attr) and value.name in _LAYERS and is_hf_model(value.base):
        value = same_object(value.base)
    return value
