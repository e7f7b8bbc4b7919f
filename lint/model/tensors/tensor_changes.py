"""What a program does to a tensor after it was made, so that it may need a gradient which it did not need before."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ...facts.values import (
    Attr,
    Class,
    Const,
    Dict,
    Function,
    Instance,
    Method,
    Param,
    Partial,
    Ref,
    Result,
    Seq,
    options,
)
from ..events import GradientSwitch
from ..flow.unused import is_unused
from ..types import bases
from .tensor_parts import Part, part_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Value
    from ..history import History

#: Libraries that leave the tensors that they are given as they are.
LIBRARIES = frozenset(
    (
        *("torch", "torchvision", "torchaudio", "torchmetrics", "timm", "transformers", "peft", "accelerate", "trl"),
        *("lightning", "pytorch_lightning", "builtins", "copy", "logging", "math", "numpy", "einops", "tqdm", "wandb"),
    )
)
_FILLS_DICT = frozenset(("update", "setdefault"))


class Change(NamedTuple):
    """Something done to ``part``: ``given`` is written into it; None when it may do anything."""

    part: Part
    given: tuple[Value, ...] | None
    #: It is done to what the part holds, and leaves the part itself alone.
    inside: bool = False

    def touches(self, part: Part) -> bool:
        """Whether ``part`` may be what is changed."""
        return self.part.may_overlap(part) and not (self.inside and len(part.keys) <= len(self.part.keys))


def changes_of(run: History, value: Value) -> Iterator[Change]:
    """What may be done to the tensor ``value``."""
    part = part_of(run, value)
    return (change for change in _changes(run) if part is not None and change.touches(part))


@lru_cache(maxsize=1)
def _changes(run: History) -> tuple[Change, ...]:
    return (*_switches(run), *_writes(run), *(change for call in run.program.calls for change in _by_call(run, call)))


def _parts(run: History, value: Value) -> Iterator[Part]:
    """The parts that ``value`` may be, and those that it lists."""
    for option in options(value):
        match option:
            case Seq(items=items):
                held: list[Value] = items
            case Dict(items=entries):
                held = list(entries.values())
            case _:
                held = [option]
        yield from filter(None, (part_of(run, each) for each in held for each in options(each)))


def _switches(run: History) -> Iterator[Change]:
    for switch in run.of(GradientSwitch):
        for part in () if switch.freezes else _parts(run, switch.target):
            yield Change(part, None)


def _writes(run: History) -> Iterator[Change]:
    for stored in run.program.stores:
        key = stored.key.value if isinstance(stored.key, Const) else None
        for part in _parts(run, stored.obj):
            yield Change(part.at(key), (stored.value,))
    for write in run.writes:
        if not write.is_item and write.field != "requires_grad":
            for part in _parts(run, write.obj):
                yield Change(part.at(write.field), (write.value,))


def _by_call(run: History, call: Call) -> Iterator[Change]:
    given = (*call.args, *call.kwargs.values())
    if _is_in_place(call.method):
        for part in _parts(run, call.receiver):
            yield Change(part, given)
    elif not _is_shown(call.func):
        yield from _handed_over(run, call)
    for part in _parts(run, call.kwargs["out"]) if "out" in call.kwargs else ():
        yield Change(part, given)


def _is_in_place(method: str) -> bool:
    """Whether a method writes what it is given into its object, as those of torch with `_` at the end do."""
    writes = method.endswith("_") and not method.endswith("__") and method != "requires_grad_"
    return writes or method in _FILLS_DICT


def _handed_over(run: History, call: Call) -> Iterator[Change]:
    """What a call may do that the file does not show, as a helper that is called for what it does to its argument."""
    for value in (*call.args, *call.kwargs.values()):
        for part in _parts(run, value):
            yield Change(part, None, inside=not is_unused(run, call))


def _is_shown(func: Value) -> bool:
    """Whether the file shows what ``func`` does, or a library leaves its arguments alone."""
    match func:
        case Function() | Method() | Class() | Partial() | Seq() | Dict():
            return True
        case Ref(name):
            return name.partition(".")[0] in LIBRARIES
        case Instance(cls):
            return all(base.partition(".")[0] in LIBRARIES for base in bases(cls))
        case Result(call):
            return _is_shown(call.func)
        case Attr(base=base):
            return not isinstance(base, Param) and _is_shown(base)
    return False
