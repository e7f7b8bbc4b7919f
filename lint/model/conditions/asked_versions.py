"""What the value of a condition asks of a library: its version, or something that only newer releases have."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.values import (
    Attr,
    Call,
    Choice,
    Computed,
    Const,
    Dict,
    Element,
    Ref,
    Result,
    Seq,
    Test,
    Value,
    options,
)
from .releases import MIRRORED, SIGNS, Releases, release_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LIBRARIES = ("torch", "transformers", "peft", "accelerate", "trl")
#: Backends of other vendors put themselves into torch: whether they are there says nothing about its version.
_PLUGGED_IN = frozenset(("npu", "hpu", "mlu", "musa", "gcu", "sdaa", "privateuseone"))
#: What the checkpoints of the first releases had already.
_ALWAYS_THERE = frozenset(("checkpoint", "checkpoint_sequential", "CheckpointFunction", "detach_variable"))
#: torch 2.13 and older, `torch/utils/checkpoint.py` and `torch/__init__.py`: since when it has what is asked for most.
_SINCE = {
    "torch.utils.checkpoint.noop_context_fn": "2.1",
    "torch.utils.checkpoint.set_checkpoint_early_stop": "2.1",
    "torch.utils.checkpoint.set_checkpoint_debug_enabled": "2.1",
    "torch.utils.checkpoint.create_selective_checkpoint_contexts": "2.4",
    "torch.utils.checkpoint.CheckpointPolicy": "2.4",
    "torch.utils.checkpoint.SelectiveCheckpointContext": "2.4",
    "torch.compile": "2.0",
    "torch.nn.functional.scaled_dot_product_attention": "2.0",
}
#: Since when `torch.utils.checkpoint.checkpoint` has each parameter.
ARGUMENTS = {"use_reentrant": "1.11", "context_fn": "2.1", "determinism_check": "2.1", "debug": "2.1"}
#: Values are searched this deep for what they were computed from.
_DEPTH = 12


def asked_by(value: Value, taken: bool) -> Releases | None:
    """The releases that come to where ``value`` came out as ``taken``; None when that is not said."""
    match value:
        case Test(operands=(inner,), node=ast.UnaryOp()):
            return asked_by(inner, not taken)
        case Test(operands=(left, right), node=ast.Compare(ops=[op])):
            found = _compared(left, op, right)
            return found and found.where(taken)
        case Test(operands=parts, node=ast.BoolOp()):
            return _all_one_way(parts, taken)
        case Result(Call(func=Ref("builtins.hasattr"), args=[Ref(name), Const(str(asked))])):
            found = newer_name(f"{name}.{asked}")
            return found and found.where(taken)
        case Choice(options=(Ref(name, node=ast.Call()), Const(None))):  # `getattr(torch, "compile", None)`
            found = newer_name(name)
            return found and found.where(taken)
    return None


def mentions_version(value: Value) -> bool:
    """Whether some part of ``value`` is computed from the version of a library."""
    return any(isinstance(part, Test) and any(map(_library, part.operands)) for part in _parts(value))


def newer_name(name: str) -> Releases | None:
    """The releases that have ``name``, a public one of a library; None where that is no question of the version."""
    library, *_, last = name.split(".")
    if library not in _LIBRARIES or name.count(".") == 0:
        return None
    if name in _SINCE:
        return Releases(library, ">=", _SINCE[name])
    is_asked = not last.startswith("_") and last not in _PLUGGED_IN | _ALWAYS_THERE
    return Releases(library, ">=") if is_asked else None


def _parts(value: Value, depth: int = 0) -> Iterator[Value]:
    yield value
    inner = value.operands if isinstance(value, Test) else options(value) if isinstance(value, Choice) else ()
    for part in inner if depth < _DEPTH else ():
        yield from _parts(part, depth + 1)


def _all_one_way(parts: tuple[Value, ...], taken: bool) -> Releases | None:
    """`major > 1 or (major == 1 and minor >= 11)`: what all comparisons of parts of a version have in common."""
    found = [asked_by(part, taken) for part in parts if not _asks_for_one(part)]
    first = next(filter(None, found), None)
    if first is None or any(other is None or other.are_older != first.are_older for other in found):
        return None
    return first._replace(release="")


def _asks_for_one(test: Value) -> bool:
    """`major == 1`: it tells no direction."""
    match test:
        case Test(operands=operands, node=ast.Compare(ops=[ast.Eq() | ast.NotEq()])):
            return any(map(_library, operands))
    return False


def _compared(left: Value, op: ast.cmpop, right: Value) -> Releases | None:
    if isinstance(op, ast.In | ast.NotIn):
        found = _takes_argument(left, right)
        return found and found.where(isinstance(op, ast.In))
    if isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq) and isinstance(right, Const):
        return _equal(left, right.value, isinstance(op, ast.Is | ast.Eq))
    sign = SIGNS.get(type(op))
    for asked, other, direction in ((left, right, sign), (right, left, MIRRORED.get(sign or ""))):
        library = _library(asked)
        if library is not None and direction is not None and _library(other) is None:
            return Releases(library, direction, _release(other))
    return None


def _equal(asked: Value, constant: object, is_equal: bool) -> Releases | None:
    """`getattr(torch, "compile", None) is not None`, `HAS_COMPILE is True`, `int(torch.__version__[0]) == 1`."""
    if constant is None or isinstance(constant, bool):
        return asked_by(asked, is_equal is bool(constant))
    library = _library(asked)
    if library is None or not _is_major(asked) or str(constant) not in ("0", "1"):
        return None
    return Releases(library, "<", str(int(str(constant)) + 1)).where(is_equal)


def _is_major(value: Value) -> bool:
    """Whether it is the first part of what it is computed from."""
    return (isinstance(value, Element) and value.index == 0) or any(map(_is_major, _computed_from(value)))


def _takes_argument(name: Value, signature: Value) -> Releases | None:
    """`"use_reentrant" in inspect.signature(checkpoint).parameters`."""
    if not isinstance(name, Const) or name.value not in ARGUMENTS:
        return None
    return Releases("torch", ">=", ARGUMENTS[str(name.value)]) if _origin(signature, _signature) is not None else None


def _library(value: Value) -> str | None:
    """The library of whose version ``value`` is a part: `int(torch.__version__.split(".")[0])`."""
    return _origin(value, _versioned)


def _versioned(value: Value) -> str | None:
    match value:
        case Ref(name) | Result(Call(func=Ref(name))) if ".__version__" in name:  # its methods too
            return name.split(".")[0]
        case Result(Call(args=[Const(str(library))]) as call) if call.name.endswith((".version", ".get_distribution")):
            return library
    return None


def _signature(value: Value) -> str | None:
    match value:
        case Result(call) if call.name in ("inspect.signature", "inspect.getfullargspec", "inspect.getargspec"):
            return "torch"
        case Ref(name) if ".__code__." in name or name.endswith((".__kwdefaults__", ".__code__")):
            return "torch"
    return None


def _origin(value: Value, says: Callable[[Value], str | None], depth: int = 0) -> str | None:
    """What ``says`` tells of the first value that ``value`` is computed from and it knows."""
    found = says(value)
    if found is not None or depth > _DEPTH:
        return found
    return next(filter(None, (_origin(part, says, depth + 1) for part in _computed_from(value))), None)


def _computed_from(value: Value) -> Iterator[Value]:
    match value:
        case Result(call):
            yield from (part for part in (call.receiver, *call.args) if not isinstance(part, Dict))
        case Attr(base=base):
            yield base
        case Element(of=of):
            yield of
        case Seq(_, items):
            yield from items
        case Choice():
            yield from value.options
        case Computed():
            yield from value.operands


def _release(value: Value) -> str:
    """The release that ``value`` says: `(1, 11)`, `version.parse("1.11")`, what a function was given as one."""
    match value:
        case Const(str() | float() as said):
            return release_in(ast.Constant(said))
        case Const(int()):
            return ""  # of the parts of a version, which one is open
        case Seq(_, items, False) if items and all(isinstance(item, Const) for item in items):
            return ".".join(str(item.value) for item in items if isinstance(item, Const))
        case Result(Call(args=[first, *_])):
            return _release(first)
    return ""
