"""KV caches in training: off in every config; where a model asks for one itself, kept and never written twice.

``Trainer`` sets ``config.use_cache`` of the top-level config only; a VLM's text config keeps its own. Some models read
what a layer cached later in the same step (an action expert, a decoder behind an encoder): without the cache they would
compute something else, and a replay with the same cache would append to it a second time. So a replay works on a copy
of the cache as the forward found it, and gradients flow through the keys and values of the forward.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from transformers import Cache, PretrainedConfig
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from .._undo import AttributeChange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import nn

#: They grow by concatenation, never in place, so a copy may share their tensors.
_GROWING = (DynamicLayer, DynamicSlidingWindowLayer)


def disable_kv_cache(model: nn.Module) -> Iterator[AttributeChange]:
    """Set ``use_cache=False`` on every config of the model that has it, one by one; the changes undo it."""
    for config in _configs(model):
        if getattr(config, "use_cache", False):
            yield AttributeChange(config, "use_cache", False)


def _configs(model: nn.Module) -> Iterator[PretrainedConfig]:
    seen: set[int] = set()
    pending = [getattr(module, "config", None) for module in model.modules()]
    while pending:
        config = pending.pop()
        if not isinstance(config, PretrainedConfig) or id(config) in seen:
            continue
        seen.add(id(config))
        yield config
        pending.extend(vars(config).values())


class OnCopies:
    """``function``, called with copies of the ``caches`` as they are now. Each call gets fresh ones."""

    def __init__(self, function: Callable[..., Any], caches: Iterable[Cache]) -> None:
        self.function = function
        self.snapshots = {id(cache): snapshot(cache) for cache in caches}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function."""
        return self.function(*map(self._as_it_was, args), **{k: self._as_it_was(v) for k, v in kwargs.items()})

    def _as_it_was(self, value: Any) -> Any:
        known = self.snapshots.get(id(value))
        return value if known is None else snapshot(known)


class ForwardThenReplay:
    """Calls ``forward`` the first time and ``replay`` from then on."""

    def __init__(self, forward: Callable[..., Any], replay: Callable[..., Any]) -> None:
        self.forward = forward
        self.replay = replay
        self._forward_done = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run one of them."""
        function = self.replay if self._forward_done else self.forward
        self._forward_done = True
        return function(*args, **kwargs)


def replay_of(forward: Callable[..., Any], values: Iterable[Any]) -> Callable[..., Any]:
    """What a replay of ``forward`` calls; ``values`` are the arguments, among which there may be caches."""
    caches = [value for value in values if isinstance(value, Cache)]
    return OnCopies(forward, caches) if caches else forward


def on_snapshots(call: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    """``call`` with its caches made replayable; itself when neither it nor ``args`` has any."""
    if not isinstance(call, partial):  # somebody wrapped the layer's checkpointing function
        replay = replay_of(call, args)
        return call if replay is call else ForwardThenReplay(call, replay)
    replay = replay_of(call.func, (*call.args, *call.keywords.values(), *args))
    if replay is call.func:
        return call
    return partial(ForwardThenReplay(call.func, replay), *call.args, **call.keywords)


def bound_to(call: Callable[..., Any]) -> dict[str, Any]:
    """The keyword arguments that a layer bound to its call."""
    return call.keywords if isinstance(call, partial) else {}


def snapshot(cache: Cache) -> Cache:
    """A copy that shares no container with ``cache``, and no tensor that a layer writes in place."""
    made = copy.copy(cache)
    for name, value in vars(cache).items():
        if isinstance(value, Cache):
            setattr(made, name, snapshot(value))
        elif name == "layers":
            setattr(made, name, [_layer(layer) for layer in value])
        elif isinstance(value, list | dict):
            setattr(made, name, value.copy())
    return made


def _layer(layer: Any) -> Any:
    made = copy.copy(layer)
    if type(layer) not in _GROWING:
        for name, value in vars(layer).items():
            vars(made)[name] = _clone(value)
    return made


def _clone(value: Any) -> Any:
    match value:
        case torch.Tensor():
            return value.detach().clone()
        case list():
            return [_clone(item) for item in value]
        case dict():
            return {key: _clone(item) for key, item in value.items()}
    return value
