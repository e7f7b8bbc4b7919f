"""FSDP in a run: which module is a unit of its own, and which model a module belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import (
    Absent,
    Attr,
    Class,
    Const,
    Element,
    Instance,
    Ref,
    Result,
    Unknown,
    Value,
    one,
    options,
    same,
)
from ..names import canonical
from ..types import MODEL_PARTS, same_object, unwrapped
from ..wrapping.check_functions import policy_classes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..events import Fsdp1Wrap

#: Methods of modules that give parts of them.
_PARTS = frozenset(
    (
        *("modules", "children", "named_children", "named_modules", "parameters", "named_parameters", "get_submodule"),
        *("get_input_embeddings", "get_output_embeddings"),
    )
)


def root(value: Value) -> Value:
    """The object that ``value`` is a part of: `model` for `model.layers[0]`, through wrappers."""
    return list(_way_up(value))[-1]


def is_in(part: Value, whole: Value) -> bool:
    """Whether ``part`` is ``whole`` or a part of it: `model.vision_tower.encoder` of `model.vision_tower`."""
    wholes = [unwrapped(option) for option in options(whole)]
    return any(same(step, it) for step in _way_up(part) for it in wholes if not isinstance(it, Unknown))


def attributes(value: Value) -> Iterator[str]:
    """The attributes that lead to ``value``, the last first: `layers`, `model` for `net.model.layers[0]`.

    `net.get_encoder()` counts as `net.encoder`.
    """
    for part in _way_up(value):
        match part:
            case Attr(name=name):
                yield name
            case Result(call) if call.method in MODEL_PARTS:
                yield call.method.removeprefix("get_")


def _way_up(value: Value) -> Iterator[Value]:
    """``value``, what it is a part of, and so on, each without wrappers."""
    for _ in range(20):
        value = unwrapped(value)
        yield value
        match value:
            case Attr(base=inner) | Element(of=inner):
                value = inner
            case Result(call) if call.method in _PARTS | MODEL_PARTS:
                value = call.receiver
            case _:
                return


def class_of(value: Value) -> Class | str | None:
    """The class of a module: one of the file, or the name of an imported one."""
    match unwrapped(value):
        case Instance(cls):
            return cls
        case Result(call) if isinstance(call.func, Ref):
            return canonical(call.func.name)
    return None


def same_class(left: Class | str | None, right: Class | str | None) -> bool:
    """Whether both are known and the same."""
    return left is not None and left == right


def may_be_same_module(left: Value, right: Value) -> bool:
    """Whether one module is among those that either may be, by the object or by the expression that built it."""
    return any(is_same_module(mine, their) for mine in options(left) for their in options(right))


def is_same_module(left: Value, right: Value) -> bool:
    """Whether both are certainly one module, by the object or by the expression that built it."""
    left, right = same_object(left), same_object(right)
    match left, right:
        case Instance(_, made), Instance(_, other) if made is not None and other is not None:
            return same(left, right) and made.is_repeated_by(other)
        case ((Instance() | Result() | Attr()), _):
            return one(left, right)
    return False


def named_class(value: Value) -> Class | str | None:
    """A class that is named in the source, as a key for ``same_class``."""
    match value:
        case Class():
            return value
        case Ref(name):
            return canonical(name)
    return None


def unit_classes(wrap: Fsdp1Wrap) -> list[Class | str] | None:
    """The classes its ``auto_wrap_policy`` makes units of; None when that is not known, [] when there is no policy."""
    policy = wrap.call.argument(4, "auto_wrap_policy")
    if isinstance(policy, Absent) or (isinstance(policy, Const) and policy.value is None):
        return []
    classes = policy_classes(policy)
    return None if classes is None else [cls for cls in map(named_class, classes) if cls is not None]


def frees_after_forward(wrap: Fsdp1Wrap) -> bool:
    """Whether the parameters of a unit are certainly freed after its forward pass, as they are by default."""
    strategy = wrap.call.argument(2, "sharding_strategy")
    if isinstance(strategy, Ref):
        return strategy.name.endswith((".FULL_SHARD", ".HYBRID_SHARD"))
    return isinstance(strategy, Absent) or (isinstance(strategy, Const) and strategy.value is None)


def is_whole_shard(wrap: Fsdp1Wrap) -> bool:
    """Whether parameters are really freed after use: not with `NO_SHARD`, unknown for a strategy that is computed."""
    strategy = wrap.call.argument(2, "sharding_strategy")
    match strategy:
        case Absent() | Const(None):
            return True
        case Ref(name):
            return name.endswith((".FULL_SHARD", ".SHARD_GRAD_OP", ".HYBRID_SHARD"))
    return False
