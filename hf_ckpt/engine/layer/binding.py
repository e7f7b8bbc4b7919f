"""What a trace depends on besides the arguments: the modules of the layer and their state.

The state is read anew before every call (microseconds): switching an adapter off, freezing a weight, setting a
submodule to eval or hooking it must never meet a trace made before.
"""

from __future__ import annotations

import enum
import functools
import types
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules import module as nn_module

from ...compat.hooks import FOREIGN_ATTRIBUTES, OBSERVING_MODULES
from ..containers import DEEPEST, MOST_ITEMS
from ..inner_state import is_array, is_plain_object, slots_in, state_of
from .attached import has_state, objects_in, tensors_in
from .calls import PLAIN_TYPES
from .slots import PLAIN_TENSORS, Slot, slots_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from .calls import LayerCall

#: Attributes that only say which layer this is. Layers that differ in nothing else share traces.
_POSITION_NAMES = frozenset({"layer_idx", "layer_id", "layer_index", "layer_number", "idx", "block_idx"})
#: torch's own tables on a module are read one by one.
_NO_STATE = _POSITION_NAMES | {name for name, value in vars(nn.Module()).items() if isinstance(value, dict)}
_HOOK_TABLES = ("_forward_hooks", "_forward_pre_hooks")
#: Modules whose hooks only look; our meter notes which layer is running.
_OBSERVING_MODULES = (*OBSERVING_MODULES, "hf_ckpt.measuring.meter")
_PLAIN = (*PLAIN_TYPES, complex, bytes, enum.Enum, types.FunctionType, types.BuiltinFunctionType)
#: Larger arrays are not read before each call.
_SMALL = 1 << 12
#: A forward that somebody put on a module (accelerate), which the layer's call leads to.
_FORWARDS = frozenset({"forward", "_old_forward"})
#: What is followed elsewhere: as slots, and as modules of the layer.
_ELSEWHERE = (torch.Tensor, nn.Module)
_SEQUENCES = (tuple, list, set, frozenset, deque)
_ATTENTION_KERNELS: tuple[Callable[[], bool], ...] = (
    torch._C._get_flash_sdp_enabled,
    torch._C._get_mem_efficient_sdp_enabled,
    torch._C._get_math_sdp_enabled,
    torch._C._get_cudnn_sdp_enabled,
)


@dataclass(frozen=True, slots=True)
class Hooked:
    """A module with hooks of somebody else, and what is said where one of them changes a value."""

    module: nn.Module
    what: str


class _Owner:
    """A module of the layer, or an object behind an attribute, and the attributes of it that are plain data."""

    __slots__ = ("kind", "names", "outer", "path", "table")

    def __init__(self, path: str, owner: Any) -> None:
        self.path = path
        self.kind = type(owner)
        self.table: dict[str, Any] = owner.__dict__
        state = [(name, self.table[name]) for name in sorted(self.table) if name not in _NO_STATE]
        self.names = tuple(name for name, value in state if _is_plain(value))
        #: Attributes of which more is to be known than that they are there.
        self.outer = tuple(n for n, v in state if not _is_plain(v) and _is_outer(n, v))

    def items(self) -> tuple[tuple[str, Hashable], ...]:
        """Its attributes, to compare."""
        plain = ((name, _hashable(self.table[name])) for name in self.names)
        items = (*plain, *((name, plain_data_in(self.table[name])) for name in self.outer))
        return _unnamed(items, f".{self.path}") if _is_adapter(self.kind) else items


class Binding:
    """One layer, its slots, and its state when it was bound."""

    def __init__(self, call: LayerCall) -> None:
        self.layer = call.layer
        self.function = call.function
        self.slots: tuple[Slot, ...] = slots_of(call.layer)
        modules = list(call.layer.named_modules())
        hooked = modules if call.runs_hooks else modules[1:]
        owners = [_Owner(*named) for named in (*modules, *_objects(modules, self.slots))]
        self._state = self._reader(owners, modules, hooked)
        self.state = _snapshot(self._state())
        self.key = self._key(owners)
        #: Why this layer cannot be traced at all, or "".
        self.obstacle = "a global module hook may change what it computes" if _global_hooks() else ""
        #: Modules whose hooks are watched while the layer runs.
        self.hooked = tuple({id(found.module): found for found in _foreign_hooks(hooked)}.values())

    def is_current(self, call: LayerCall) -> bool:
        """Whether nothing a trace depends on has changed since."""
        try:
            return (
                call.layer is self.layer
                and call.function is self.function
                and not _global_hooks()
                and self._state() == self.state
            )
        except (KeyError, AttributeError):  # an attribute is gone, or a parameter is None now
            return False

    def changed(self, other: Binding) -> str:
        """The first attribute in which two states differ, for a message."""
        for ours, theirs in zip(self.key[1], other.key[1], strict=False):
            for (name, a), (_, b) in zip(ours[2], theirs[2], strict=False):
                if a != b:
                    return f"{ours[0]}.{name}" if ours[0] else name
        return "its state"

    def _reader(
        self, owners: list[_Owner], modules: list[tuple[str, nn.Module]], hooked: list[tuple[str, nn.Module]]
    ) -> Callable[[], tuple[Any, ...]]:
        """A function that reads everything a trace depends on: one expression, because it runs on every call."""
        objects: dict[str, Any] = {}
        parts: list[str] = []

        def watch(value: Any, *expressions: str) -> None:
            name = f"o{len(objects)}"
            objects[name] = value
            parts.extend(expression.format(name) for expression in expressions)

        first: dict[int, str] = {}  # modules may share a value, which is read once
        objects["read"] = plain_data_in
        for owner in owners:
            watch(owner.table, "len({})", *(f"{{}}[{name!r}]" for name in owner.names))
            for name in owner.outer:
                value = owner.table[name]
                known = first.setdefault(id(value), here := f"o{len(objects)}[{name!r}]")
                new = f"read({here})" if _has_parts(value) else f"type({here})"
                watch(owner.table, new if known is here else f"{here} is {known}")
        for _, module in modules:
            table = module.__dict__
            watch(module, "{}.__class__.forward")
            for kind in ("_parameters", "_buffers"):
                absent = [name for name, value in table[kind].items() if value is None]
                watch(table[kind], "len({})", *(f"{{}}[{name!r}] is None" for name in absent))
            if table["_modules"]:
                watch(table["_modules"], "[*map(id, {}.values())]")
        for _, module in hooked:
            for hooks in _HOOK_TABLES:
                watch(module.__dict__[hooks], "[*map(id, {}.values())]")
        for slot in self.slots:
            if slot.within:
                watch(slot.table, f"id({{}}[{slot.attribute!r}].{'.'.join(slot.within)})")
                continue
            watch(slot.table, *(f"{{}}[{slot.attribute!r}].{what}" for what in ("requires_grad", "dtype")))
        return eval(_compiled(f"lambda: ({', '.join(parts)},)"), objects)  # type: ignore[no-any-return]

    def _key(self, owners: list[_Owner]) -> tuple[Any, ...]:
        """Equal for layers that may share a trace."""
        state = tuple(
            (owner.path, (owner.kind, getattr(owner.kind, "forward", None)), owner.items()) for owner in owners
        )
        tensors = tuple(
            (slot.path, slot.kind, t.shape, t.stride(), t.dtype, t.device, t.requires_grad)
            for slot in self.slots
            for t in (slot.fetch(),)
        )
        return self.function, state, tensors


def _foreign_hooks(hooked: list[tuple[str, nn.Module]]) -> Iterator[Hooked]:
    """The modules with hooks that are neither ours nor of transformers: a trace knows nothing of what they do."""
    for prefix, module in hooked:
        for table in _HOOK_TABLES:
            for hook in module.__dict__[table].values():
                origin = getattr(hook, "__module__", None) or type(hook).__module__
                if origin not in _OBSERVING_MODULES:
                    name = getattr(hook, "__qualname__", type(hook).__qualname__)
                    yield Hooked(module, f"the hook {name} on {prefix or 'the layer'} changes what it computes")
                    break


def _global_hooks() -> bool:
    return bool(nn_module._global_forward_hooks or nn_module._global_forward_pre_hooks)


@functools.lru_cache(maxsize=256)
def _compiled(source: str) -> types.CodeType:
    return compile(source, "<state of a layer>", "eval")


def _is_plain(value: Any) -> bool:
    if isinstance(value, _PLAIN):
        return True
    if isinstance(value, _SEQUENCES):
        return all(_is_plain(item) for item in value)
    return isinstance(value, dict) and all(_is_plain(item) for item in value.values())


def _is_outer(name: str, value: Any) -> bool:
    return name not in FOREIGN_ATTRIBUTES and name not in _FORWARDS and not isinstance(value, _ELSEWHERE)


def plain_data_in(value: Any, depth: int = 0) -> Any:
    """The plain data inside containers, objects and small arrays, in their order; of anything else what it is."""
    kind: Any = type(value)  # to ask a config for its class is slow (PreTrainedConfig.__getattribute__)
    if issubclass(kind, _PLAIN):
        return kind, value  # True equals 1
    if depth == DEEPEST or not _has_parts(value):
        return kind
    if is_array(value):
        return kind, value.dtype.str, value.shape, value.tobytes() if value.nbytes <= _SMALL else None
    if issubclass(kind, set | frozenset):
        return kind, frozenset([plain_data_in(item, depth + 1) for item in list(value)])
    if issubclass(kind, _SEQUENCES):
        return kind, *[plain_data_in(item, depth + 1) for item in list(value)]
    items = list((value if issubclass(kind, dict) else _attributes(value)).items())
    return kind, *[
        (name if type(name) is str else plain_data_in(name, depth + 1), plain_data_in(item, depth + 1))
        for name, item in items
        if type(name) is not str or name not in _POSITION_NAMES
    ]


def _attributes(value: Any) -> dict[str, Any]:
    """What a function that was made of another one was made of, and the attributes of an object."""
    if isinstance(value, types.MethodType):
        return {"function": value.__func__, "of": value.__self__}
    if isinstance(value, functools.partial):
        return {"function": value.func, "args": value.args, "kwargs": value.keywords}
    return state_of(value) if slots_in(value) else vars(value)


def _has_parts(value: Any) -> bool:
    kind: Any = type(value)
    if issubclass(kind, (*_SEQUENCES, dict)):
        return len(value) <= MOST_ITEMS
    if issubclass(kind, types.MethodType | functools.partial) or is_array(value) or slots_in(value):
        return True
    return is_plain_object(value) and len(vars(value)) <= MOST_ITEMS


def _snapshot(value: Any) -> Any:
    """What equals ``value`` until somebody fills one of its containers."""
    if isinstance(value, dict):
        items = {key: _snapshot(item) for key, item in dict.items(value)}
        return OrderedDict(items) if isinstance(value, OrderedDict) else items
    if isinstance(value, set):
        return set(value)
    if not isinstance(value, tuple | list | deque):
        return value
    kind = next(kind for kind in (tuple, list, deque) if isinstance(value, kind))
    return kind(map(_snapshot, value))


def _hashable(value: Any) -> Hashable:
    if isinstance(value, dict):
        return tuple((key, _hashable(item)) for key, item in value.items())
    if isinstance(value, tuple | list | deque):
        return tuple(_hashable(item) for item in value)
    return frozenset(value) if isinstance(value, set | frozenset) else value


def _is_adapter(kind: type) -> bool:
    """Whether it is PEFT's, which writes the adapted module's name into each and computes the same with any name."""
    return kind.__module__.partition(".")[0] == "peft"


def _unnamed(value: Any, path: str) -> Any:
    """``value`` without the names of modules that end in ``path``."""
    if type(value) is tuple:
        return tuple(_unnamed(item, path) for item in value)
    return path if isinstance(value, str) and value.endswith(path) else value


def _objects(modules: list[tuple[str, nn.Module]], slots: tuple[Slot, ...]) -> Iterator[tuple[str, Any]]:
    """What is behind attributes besides plain tensors, modules and plain data, once each, with its path.

    Objects that a module holds (a config, for one), weights with attributes of their own, and the objects of these.
    """
    seen: set[int] = set()
    weights = ((slot.path, slot.fetch()) for slot in slots if not slot.within)
    held = (
        (f"{prefix}.{name}" if prefix else name, value)
        for prefix, module in modules
        for name, value in module.__dict__.items()
        if name not in FOREIGN_ATTRIBUTES and not isinstance(value, torch.Tensor) and has_state(value)
    )
    for path, owner in (*held, *((path, weight) for path, weight in weights if type(weight) not in PLAIN_TENSORS)):
        inner = objects_in(owner) if any(True for _ in tensors_in(owner)) else ()
        for within, value in (((), owner), *inner):
            if id(value) not in seen:
                seen.add(id(value))
                yield ".".join((path, *within)), value


def surroundings(device: torch.device) -> tuple[Hashable, ...]:
    """What a layer's ops depend on outside the model: autocast, the attention kernels allowed, the default dtype."""
    kind = device.type
    autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    kernels = tuple([enabled() for enabled in _ATTENTION_KERNELS])
    return autocast, torch.are_deterministic_algorithms_enabled(), kernels, torch.get_default_dtype()
