"""Questions about a value, answered True, False or None (not known)."""

from __future__ import annotations

from .alternatives import options
from .code import Call, Class, Function, Instance, Partial, Result
from .containers import Dict, Seq
from .names import Method, Module
from .plain import Absent, Computed, Const, Given, Ref, Test, Unknown, Value

#: Classes of `torch.nn` whose objects have a length, or are tensors.
_WITH_LENGTH = ("Sequential", "Module", "Parameter", "Buffer", "Uninitialized")


def truth(value: Value) -> bool | None:
    """``bool(value)`` where the source decides it."""
    answers = {_truth(option) for option in options(value)}
    return answers.pop() if len(answers) == 1 else None


def _truth(value: Value) -> bool | None:
    match value:
        case Const(constant):
            return bool(constant)
        case Dict(items, is_open):
            return _dict_truth(items, is_open)
        case Seq(_, items, False):
            return None if value.may_be_empty else bool(items)
        case Function() | Class() | Partial() | Method():
            return True
        case Ref(name) if _is_surely_called(name):
            return True
        case Result(call) if _is_module(call.name):
            return True
    # What is imported may be a flag: `torch.version.hip`, `from config import DEBUG`.
    return None


def _is_surely_called(name: str) -> bool:
    """Whether what is imported by this name is a function or a class in every version: `nn.BatchNorm2d`, `F.relu`."""
    holder, _, last = name.rpartition(".")
    is_class = last[:1].isupper() and (holder == "torch.nn" or holder.startswith("torch.nn.modules"))
    return is_class or holder in ("builtins", "torch.nn.functional")


def _is_module(name: str) -> bool:
    """Whether a call of ``name`` makes a module of torch that has no length: an empty container is false."""
    holder, _, last = name.rpartition(".")
    return holder in ("torch.nn", "torch.nn.modules") and last[:1].isupper() and not last.startswith(_WITH_LENGTH)


def _dict_truth(items: dict[str, Value], is_open: bool) -> bool | None:
    gone = {is_absent(item) for item in items.values()}
    if False in gone:
        return True
    return None if is_open or None in gone else False


def may_be_none(value: Value) -> bool | None:
    """Whether ``value`` is None (True), certainly some object (False), or may be either."""
    answers = {_is_none(option) for option in options(value)}
    return answers.pop() if len(answers) == 1 else None


def _is_none(value: Value) -> bool | None:
    match value:
        case Const(constant):
            return constant is None
        case Dict() | Seq() | Function() | Class() | Partial() | Method() | Instance() | Module():
            return False
        case Result(call) if call.name.rpartition(".")[2][:1].isupper():
            return False  # A class was called.
        case Ref(name) if _is_surely_called(name):
            return False
    return None


def equals(value: Value, *constants: object) -> bool | None:
    """Whether ``value`` is one of ``constants`` (by type and equality). Absent equals none of them."""
    answers = {_equals(option, constants) for option in options(value)}
    return answers.pop() if len(answers) == 1 else None


def _equals(value: Value, constants: tuple[object, ...]) -> bool | None:
    match value:
        case Const(found):
            return any(type(found) is type(constant) and found == constant for constant in constants)
        case Absent() | Dict() | Seq() | Function() | Class() | Partial() | Method():
            return False
        case Ref(name) if _is_surely_called(name):
            return False
    return None


def is_given(call: Call, name: str) -> bool:
    """Whether ``call`` certainly has the keyword ``name``: it is written there, whatever its value, or passed on."""
    return call.written(name) or is_absent(call.keyword(name)) is False


def is_absent(value: Value) -> bool | None:
    """Whether the argument or key is certainly missing (True), certainly there (False), or neither."""
    answers = {None if _may_be_absent(option) else isinstance(option, Absent) for option in options(value)}
    return answers.pop() if len(answers) == 1 else None


def _may_be_absent(value: Value) -> bool:
    return isinstance(value, Unknown) and not isinstance(value, Computed | Given | Test)


def is_same_call(one: Call, other: Call) -> bool:
    """Whether both calls surely give the same arguments, to the same object where that is a method."""
    if one.open_args or one.open_kwargs or len(one.args) != len(other.args) or one.kwargs.keys() != other.kwargs.keys():
        return False
    pairs = [*zip(one.args, other.args, strict=True), *((one.kwargs[name], other.kwargs[name]) for name in one.kwargs)]
    return _receiver(one) is _receiver(other) and all(_is_same(left, right) for left, right in pairs)


def _receiver(call: Call) -> Value | None:
    match call.func:
        case Method(receiver, _):
            return receiver
    return None


def _is_same(one: Value, other: Value) -> bool:
    match one, other:
        case Const(left), Const(right):
            return type(left) is type(right) and left == right
    return one is other
