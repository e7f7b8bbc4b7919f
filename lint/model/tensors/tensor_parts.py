"""Which part of which batch or tensor a value is: `batch["x"].cuda()` is the part "x" of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...facts.values import Attr, Computed, Const, Element, Param, Result, Unknown, same
from .batches import is_batch
from .tensor_methods import MOVES, SHAPES, SPLITS

if TYPE_CHECKING:
    from ...facts.values import Value
    from ..history import History

#: Methods that give the tensor itself or a view of it.
VIEWS = MOVES | SHAPES | SPLITS | {"type", "type_as", "narrow", "unfold"}
#: Methods that give what a dict holds.
ENTRIES = frozenset(("get", "values", "items"))
_TENSORS = (Element, Attr, Param, Result, Computed)


class Part(NamedTuple):
    """A part of ``root``, behind ``keys``, outermost first; None for a key that is not known."""

    root: Value
    keys: tuple[object, ...]

    def may_overlap(self, other: Part) -> bool:
        """Whether one may hold the other, or a piece of it."""
        keys = zip(self.keys, other.keys, strict=False)
        return _is_same_root(self.root, other.root) and all(_may_be_same_key(mine, its) for mine, its in keys)

    def at(self, key: object) -> Part:
        """The part ``key`` of this part."""
        return Part(self.root, (*self.keys, key))


def part_of(run: History, value: Value) -> Part | None:
    """The part that ``value`` is; None for what is no tensor and holds none."""
    keys: list[object] = []
    while (step := _holder(run, value)) is not None and isinstance(step.held, _TENSORS):
        keys.append(step.key)
        value = step.held
    return Part(value, tuple(reversed(keys))) if isinstance(value, _TENSORS) else None


class _Step(NamedTuple):
    held: Value
    key: object


def _holder(run: History, value: Value) -> _Step | None:
    """What ``value`` is a part of, and under which key; None for a batch, and for what stands by itself."""
    match value:
        case Element(of=held) if not is_batch(run, value):
            return _Step(held, value.index)
        case Attr(base=held, name=name):
            return _Step(held, name)
        case Result(call) if call.method == "get":
            first = call.argument(0)
            return _Step(call.receiver, first.value if isinstance(first, Const) else None)
        case Result(call) if call.method in VIEWS | ENTRIES:
            return _Step(call.receiver, None)
    return None


def _is_same_root(left: Value, right: Value) -> bool:
    if left is right:
        return True
    if isinstance(left, Unknown) or isinstance(right, Unknown):
        return type(left) is type(right) and left.node is right.node is not None
    return same(left, right)


def _may_be_same_key(left: object, right: object) -> bool:
    """Whether two keys may mean one part: `batch[-1]` may be `batch[1]`, and `batch.x` may be `batch[0]`."""
    if left is None or right is None or type(left) is not type(right):
        return True
    return left == right or (isinstance(left, int) and isinstance(right, int) and min(left, right) < 0)
