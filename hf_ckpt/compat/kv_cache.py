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


def disable_kv_cache(model: nn.Module) -> list[AttributeChange]:
    """Set ``use_cache=False`` on every config of the model that has it; the changes undo it."""
    return [
        AttributeChange(config, "use_cache", False) for config in _configs(model) if getattr(config, "use_cache", False)
    ]


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


class OnSnapshots:
    """``function``, whose first call gets the caches themselves and every later one copies of them as they were.

    ``values`` are the arguments among which the caches stand.
    """

    def __init__(self, function: Callable[..., Any], values: Iterable[Any]) -> None:
        self.function = function
        self.snapshots = {id(value): snapshot(value) for value in values if isinstance(value, Cache)}
        self._forward_done = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the function."""
        if not self._forward_done:
            self._forward_done = True
            return self.function(*args, **kwargs)
        return self.function(*map(self._as_it_was, args), **{k: self._as_it_was(v) for k, v in kwargs.items()})

    def _as_it_was(self, value: Any) -> Any:
        known = self.snapshots.get(id(value))
        return value if known is None else snapshot(known)


def on_snapshots(call: partial[Any], args: tuple[Any, ...]) -> partial[Any]:
    """``call`` with its caches made replayable; itself when neither it nor ``args`` has any."""
    values = (*call.args, *call.keywords.values(), *args)
    if not any(isinstance(value, Cache) for value in values):
        return call
    return partial(OnSnapshots(call.func, values), *call.args, **call.keywords)


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
