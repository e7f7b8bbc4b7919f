"""Attributes of modules, which somebody may set between a forward and its replay.

A parent hands a scale on before each call, or a module counts its calls. A replay finds what the forward found.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from operator import is_, itemgetter
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_iter

from ..compat.wrappers import stands_for_parameter
from .containers import (
    CONTAINERS,
    DEEPEST,
    MOST_ITEMS,
    base_of,
    content_of,
    empty,
    fill,
    is_tuple,
    options_of,
    tuple_like,
)
from .inner_state import InnerState, inner_state_of, is_plain_object
from .readings import Unknown, copied, reading_of, share, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .readings import Reading

#: What torch itself keeps on a module. Parameters and buffers are followed elsewhere (``engine/written_buffers.py``).
_TORCHS = frozenset(vars(nn.Module())) - {"training", "_modules"} | {"forward"}
#: What DeepSpeed's hooks count on a module (deepspeed/runtime/zero/parameter_offload.py), which no forward reads.
_DEEPSPEEDS = frozenset({"applied_pre_backward_ref_cnt", "pre_bwd_fn", "post_bwd_fn"})
_NOBODY_READS = _TORCHS | _DEEPSPEEDS
_CONTAINERS: tuple[Any, ...] = (*CONTAINERS, tuple)
#: Of what most attributes are, what nobody can change.
_UNCHANGING = (bool, int, float, str, type(None), FunctionType, MethodType, torch.dtype, torch.device)
#: Of a module whose first forward did not write them, tensors of up to so many bytes are still copied before each.
_SMALL = 1 << 20
#: Stands for a value that no replay puts back.
_WHATEVER = object()
#: Modules that had a forward, and those of them in whose forwards a tensor among the attributes was written in place.
_seen: WeakSet[nn.Module] = WeakSet()
_writers: WeakSet[nn.Module] = WeakSet()


class _Container:
    """Stands for a container, which modules and others may share; ``items`` has what stands for what was in it.

    A replay fills the very container where it still stands there, so that all who share it find the same in it. It is
    not held: it may get tensors whose graph would hold it in turn.
    """

    __slots__ = ("_options", "attributes", "base", "items", "key", "kind")

    def __init__(self, container: Any) -> None:
        self.kind: Any = type(container)
        self.key = id(container)
        self.base = base_of(container)
        #: What is in it; a list of pairs for a dict.
        self.items: list[Any] = []
        #: Its own attributes, where its class gives it any.
        self.attributes: dict[str, Any] = {}
        self._options = options_of(container)

    def another(self) -> Any:
        """An empty one of the same class."""
        return empty(self.kind, self._options)

    def of(self, value: Any) -> bool:
        """Whether ``value`` is the container."""
        return type(value) is self.kind and id(value) == self.key


class _Tensor:
    """Stands for a tensor. Its graph is not held: that of an earlier step would hold the step before, and so on."""

    __slots__ = ("_alias", "_is_leaf", "_requires_grad", "reading", "together")

    def __init__(self, tensor: torch.Tensor) -> None:
        #: All attributes in one memory, where it is not alone there: what is written to one shows in the others.
        self.together: Sequence[_Tensor] = ()
        self.reading = reading_of(tensor)
        self._is_leaf = tensor.is_leaf
        self._requires_grad = tensor.requires_grad
        self._alias = tensor if tensor.is_leaf else tensor.detach()

    def as_read(self) -> torch.Tensor:
        """The tensor while nobody wrote to it; then what it held."""
        tensor = self.reading.tensor()
        if tensor is not None:
            return self.reading.as_read(tensor)
        found = self.reading.as_read(self._alias)
        if self._is_leaf or not self._requires_grad or found.requires_grad:
            return found
        with torch.enable_grad():
            return copied(found).requires_grad_().clone()

    @property
    def extent(self) -> tuple[int, int, int]:
        """Where it lies: the address of its memory, and its first byte in there and the one after its last."""
        alias = self._alias
        if alias.layout is not torch.strided:
            return id(self), 0, 0
        start, end = int(alias.storage_offset()), _end_of(alias)
        return alias.untyped_storage()._cdata, start * alias.itemsize, end * alias.itemsize

    def read_together(self) -> Iterator[tuple[_Tensor, torch.Tensor]]:
        """All tensors in its memory, in one memory again, as they were; :class:`Unknown` ones where that is unknown."""
        aliases = [each._alias for each in self.together]
        is_plain = all(_is_copied_into(alias, self._alias.dtype) for alias in aliases)
        is_known = is_plain and not any(each._requires_grad or each.reading.content is None for each in self.together)
        start = min(alias.storage_offset() for alias in aliases)
        with _disable_current_modes():
            memory = self._alias.new_empty(max(map(_end_of, aliases)) - start if is_known else 0)
            for each, alias in zip(self.together, aliases, strict=True):
                content = each.reading.content
                if content is None or not is_known:
                    yield each, Unknown.like(alias)
                else:
                    view = memory.as_strided(alias.shape, alias.stride(), alias.storage_offset() - start)
                    yield each, view.copy_(content)


def _is_copied_into(tensor: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether it is of this dtype, and no two of its elements are one."""
    return tensor.dtype == dtype and all(
        size < 2 or step for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    )


def _end_of(tensor: torch.Tensor) -> int:
    steps = ((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int(tensor.storage_offset() + sum(steps) + 1 if tensor.numel() else tensor.storage_offset())


class _Content:
    """What is in a container now, and its attributes."""

    __slots__ = ("_attributes", "_items")

    def __init__(self, container: Any) -> None:
        self._items = content_of(container)
        self._attributes = dict(getattr(container, "__dict__", {}))

    def put_back(self, container: Any) -> None:
        """Fill the container with it, where something else is in it."""
        if not self._is_in(container):
            fill(container, self._items, self._attributes)

    def _is_in(self, container: Any) -> bool:
        items, attributes = content_of(container), getattr(container, "__dict__", {})
        if len(items) != len(self._items) or not _are_same(attributes, self._attributes):
            return False
        if isinstance(container, dict):
            return all(k is key and v is value for (k, v), (key, value) in zip(items, self._items, strict=True))
        return all(map(is_, items, self._items))


class AttributesBefore:
    """The attributes of ``module`` and of all modules inside it, as they are before a forward.

    Without ``copies`` they can be compared with later ones, and not be restored where a tensor was written in place.
    """

    __slots__ = ("_buffers", "_copies", "_copying", "_inner", "_values")

    def __init__(self, module: nn.Module | None, *, copies: bool = True) -> None:
        self._values: dict[nn.Module, dict[str, Any]] = {}
        self._copies: list[tuple[nn.Module, torch.Tensor, Reading, torch.Tensor]] = []
        self._copying = copies
        #: By id: what objects among them keep inside.
        self._inner: dict[int, InnerState] = {}
        known: dict[int, _Tensor | _Container] = {}
        for owner in () if module is None else module.modules():
            if type(owner).__module__.startswith("torch.distributed."):  # FSDP knows in which pass it is
                continue
            values = self._values[owner] = attributes_of(owner)
            for name, value in values.items():
                if not issubclass(type(value), _UNCHANGING):
                    values[name] = self._stand_in(value, owner, known)
        _note_shared_memory(known)
        #: What stands for tensors that are buffers too, which a replay may find on copies (``on_copies``).
        self._buffers = [
            (stands, owner._buffers, name)
            for owner in (self._values if known else ())
            for name, buffer in owner._buffers.items()
            if isinstance(stands := known.get(id(buffer)), _Tensor)
        ]

    def settle(self) -> None:
        """The forward is over."""
        for owner, tensor, reading, copy in self._copies:
            writes = version_of(tensor) != reading.version
            if writes:
                _writers.add(owner)
            if writes or copy.nbytes <= _SMALL:
                share(tensor, reading.version, copy)
        for owner, before in self._values.items():
            _seen.add(owner)
            now = vars(owner)
            for name, value in before.items():
                if type(value) not in (_Tensor, _Container) and now.get(name) is not value and _has_graph(value):
                    before[name] = _WHATEVER
        self._copies.clear()

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Let a replay find what the forward found, and put back what stands there now."""
        put_back = self.put()
        try:
            yield
        finally:
            put_back()

    def put(self) -> Callable[[], None]:
        """Let all be as it was; returns what puts back what stands there now."""
        changed = [(owner, name) for owner in self._values for name in self._changed(owner)]
        now = {owner: dict(vars(owner)) for owner in self._values}
        there = self._there()
        # The replay may change what now is as the forward found it, too.
        contents = [(container, _Content(container)) for _, container in there.values()]
        made: dict[int, Any] = {id(stands): container for stands, container in there.values()}
        for tensor, buffers, name in self._buffers:
            if (buffer := buffers.get(name)) is not None and not tensor.reading.of(buffer):
                made[id(tensor)] = buffer
        inside: list[Callable[[], None]] = []

        def put_back() -> None:
            for owner, attributes in now.items():
                _put_back(owner, attributes)
            for container, content in contents:
                content.put_back(container)
            for put in inside:
                put()

        try:
            inside.extend(inner.put() for inner in self._inner.values())
            for stands, container in [each for each in there.values() if not _holds(each[1], each[0])]:
                fill(container, _items(stands, made), _attributes(stands, made))
            for owner, name in changed:
                _put(owner, name, name in self._values[owner], _found(self._values[owner].get(name), made))
        except BaseException:
            put_back()
            raise
        return put_back

    def are_current(self) -> bool:
        """Whether all of them are as they were."""
        if any(self._changed(owner) for owner in self._values):
            return False
        if not all(inner.is_current() for inner in self._inner.values()):
            return False
        return all(_holds(container, stands) for stands, container in self._there().values())

    def _there(self) -> dict[int, tuple[_Container, Any]]:
        """The containers that still stand where they stood, by what stands for them."""
        there: dict[int, tuple[_Container, Any]] = {}
        for owner, before in self._values.items():
            for name, value in before.items():
                _find(value, vars(owner).get(name), there)
        return there

    def _changed(self, owner: nn.Module) -> list[str]:
        before, now = self._values[owner], attributes_of(owner)
        names = list(before) if before.keys() == now.keys() else list(before | now)
        return [n for n in names if n not in before or n not in now or not _is_same(before[n], now[n])]

    def _stand_in(self, value: Any, owner: nn.Module, known: dict[int, _Tensor | _Container], depth: int = 0) -> Any:
        kind = type(value)  # to ask a config for its class is slow (PreTrainedConfig.__getattribute__)
        if issubclass(kind, _UNCHANGING):
            return value
        if id(value) in known:
            return known[id(value)]
        if issubclass(kind, torch.Tensor):
            if not _is_followed(value):
                return value
            stands = known[id(value)] = _Tensor(value)
            # Who has written large tensors may do so again; before the first forward nobody knows.
            if self._copying and (value.nbytes <= _SMALL or owner in _writers or owner not in _seen):
                self._copies.append((owner, value, stands.reading, copied(value)))
            return stands
        if id(value) in self._inner or depth == DEEPEST:
            return value
        if not issubclass(kind, _CONTAINERS) and not is_plain_object(value):
            if (inner := inner_state_of(value)) is not None:
                self._inner[id(value)] = inner
            return value
        parts: Any = value if isinstance(value, _CONTAINERS) else vars(value)
        if len(parts) > MOST_ITEMS:
            return value
        if isinstance(value, tuple):
            if not is_tuple(value):
                return value
            return tuple_like(value, [self._stand_in(item, owner, known, depth + 1) for item in value])
        container = known[id(value)] = _Container(value)
        stand_in = partial(self._stand_in, owner=owner, known=known, depth=depth + 1)
        if isinstance(value, dict):
            container.items = [(key, stand_in(item)) for key, item in content_of(value)]
        else:
            container.items = [stand_in(item) for item in content_of(value)]
        own = getattr(value, "__dict__", None)
        if own:
            container.attributes = {name: stand_in(item) for name, item in list(own.items())}
        return container


def attributes_of(module: nn.Module) -> dict[str, Any]:
    """The attributes of a module that its forward may read, and somebody set."""
    return {name: value for name, value in vars(module).items() if _is_read(name, value)}


def _is_read(name: str, value: Any) -> bool:
    return name not in _NOBODY_READS and not name.startswith("ds_") and not stands_for_parameter(value)


def _is_followed(value: Any) -> bool:
    """Whether it is a tensor that somebody may write between a forward and its replay: no weight, no subclass.

    A subclass may have no values, and a trace leaves such tensors behind where one module sets another's attribute.
    """
    return type(value) in (torch.Tensor, nn.Buffer)


def _is_same(before: Any, now: Any) -> bool:
    """Whether ``now`` is what ``before`` stands for; what is in a container is asked for by :func:`_holds`."""
    if type(before) is _Tensor:
        return before.reading.of(now) and before.reading.is_current
    if type(before) is _Container:
        return before.of(now)
    if before is _WHATEVER:
        return True
    if type(before) is not type(now):
        return False
    if is_tuple(before):
        return len(before) == len(now) and all(map(_is_same, before, now))
    return before is now or (isinstance(before, bool | int | float | complex | str | bytes) and bool(before == now))


def _holds(container: Any, stands: _Container) -> bool:
    """Whether a container holds what it held, and has the attributes that it had."""
    items, content, attributes = stands.items, content_of(container), getattr(container, "__dict__", {})
    if len(content) != len(items) or attributes.keys() != stands.attributes.keys():
        return False
    if not all(_is_same(value, attributes[name]) for name, value in stands.attributes.items()):
        return False
    if stands.base is set:
        members = [item.reading.tensor() if type(item) is _Tensor else item for item in items]
        return set(members) == set(content) and all(i.reading.is_current for i in items if type(i) is _Tensor)
    return all(map(_is_same, items, content))


def _find(stands: Any, now: Any, there: dict[int, tuple[_Container, Any]]) -> None:
    """Note the containers that still stand where they stood, by what stands for them."""
    if is_tuple(stands) and type(now) is type(stands):
        for item, i in zip(stands, now, strict=False):
            _find(item, i, there)
    elif type(stands) is _Container and stands.of(now) and id(stands) not in there:
        there[id(stands)] = stands, now
        if isinstance(now, dict):
            for key, item in stands.items:
                _find(item, dict.get(now, key), there)
        elif stands.base is not set:
            for item, i in zip(stands.items, content_of(now), strict=False):
                _find(item, i, there)
        for name, value in stands.attributes.items():
            _find(value, vars(now).get(name), there)


def _found(stands: Any, made: dict[int, Any]) -> Any:
    """What a replay finds; ``made`` has what it found so far, as modules may share it."""
    if is_tuple(stands):
        return tuple_like(stands, [_found(item, made) for item in stands])
    if type(stands) not in (_Tensor, _Container):
        return stands
    if id(stands) not in made:
        if isinstance(stands, _Container):
            made[id(stands)] = container = stands.another()
            fill(container, _items(stands, made), _attributes(stands, made))
        elif all(each.reading.is_current for each in stands.together):
            made[id(stands)] = stands.as_read()
        else:
            made |= {id(each): made.get(id(each), read) for each, read in stands.read_together()}
    return made[id(stands)]


def _items(stands: _Container, made: dict[int, Any]) -> list[Any]:
    return [_found(item, made) for item in stands.items]


def _attributes(stands: _Container, made: dict[int, Any]) -> dict[str, Any]:
    return {name: _found(value, made) for name, value in stands.attributes.items()}


def _note_shared_memory(known: dict[int, _Tensor | _Container]) -> None:
    """Tell tensors that overlap of each other."""
    tensors = [stands for stands in known.values() if isinstance(stands, _Tensor)]
    if len(tensors) < 2:
        return
    together: list[_Tensor] = []
    reached = (0, 0)
    for (memory, start, end), stands in sorted(((t.extent, t) for t in tensors), key=itemgetter(0)):
        if (memory, start) >= reached:
            together = []
        together.append(stands)
        reached = max(reached, (memory, end))
        if len(together) > 1:
            stands.together = together[0].together = together


def _has_graph(value: Any) -> bool:
    """Whether tensors in ``value`` have a graph, which whoever holds them holds."""
    inside = (value, list(getattr(value, "__dict__", {}).values()))
    return any(isinstance(t, torch.Tensor) and not t.is_leaf for t in tree_iter(inside))


def _put_back(owner: nn.Module, attributes: dict[str, Any]) -> None:
    now = vars(owner)
    if _are_same(now, attributes):
        return
    for name in [n for n in now.keys() | attributes.keys() if now.get(n) is not attributes.get(n)]:
        if _is_read(name, attributes.get(name)) and _is_read(name, now.get(name)):
            _put(owner, name, name in attributes, attributes.get(name))


def _are_same(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether the same names have the very same values."""
    return now.keys() == before.keys() and all(map(is_, map(now.__getitem__, before), before.values()))


def _put(owner: nn.Module, name: str, is_there: bool, value: Any) -> None:
    if is_there:
        vars(owner)[name] = value
    else:
        vars(owner).pop(name, None)
