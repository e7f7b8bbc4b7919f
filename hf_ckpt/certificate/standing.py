"""What a forward and its backward may change of a model and of those around it, taken and brought back."""

from __future__ import annotations

import copy
from collections import deque
from typing import TYPE_CHECKING, Any

import torch

from ..engine.random_state import foreign_random_state, set_foreign_random_state

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The switches of activation checkpointing are not state: they differ on purpose from run to run.
_SWITCHES = frozenset({"gradient_checkpointing", "_can_checkpoint_with_cache"})
#: What every module has, its training mode among it.
_MODULES_OWN = frozenset(vars(torch.nn.Module()))
#: Values inside one attribute, above which it is left as it is.
_MOST = 10_000


class Standing:
    """Random numbers, buffers, gradients, training modes and plain attributes as they were when this was made.

    Args:
        model: Gradients are taken off it.
        owners: Other objects whose plain attributes a step writes, such as a Trainer.
    """

    def __init__(self, model: torch.nn.Module, owners: Iterable[object] = ()) -> None:
        self._random = _random_states()
        self._gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
        self._buffers = list(_buffers(model))
        own = (module for module in model.modules() if not type(module).__module__.startswith("torch."))
        self._plain = [_Attributes(owner) for owner in (*own, *owners)]
        self._modes = [(module, module.training) for module in model.modules()]
        self._take_off_gradients()

    def begin_run(self) -> None:
        """Bring everything back but the gradients, of which there are none."""
        self._take_off_gradients()
        for module, mode in self._modes:
            module.training = mode
        for attributes in self._plain:
            attributes.bring_back()
        with torch.no_grad():
            for module, name, buffer, values in self._buffers:
                module._buffers[name] = buffer
                buffer.copy_(values)
        _set_random_states(self._random)

    def bring_back(self) -> None:
        """Bring everything back."""
        self.begin_run()
        for parameter, gradient in self._gradients:
            parameter.grad = gradient

    def _take_off_gradients(self) -> None:
        for parameter, _ in self._gradients:
            parameter.grad = None


def _buffers(model: torch.nn.Module) -> Iterable[tuple[torch.nn.Module, str, torch.Tensor, torch.Tensor]]:
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None:
                yield module, name, buffer, buffer.detach().clone()


class _Attributes:
    """The plain attributes of one object; collections are brought back in place, as others may hold them too."""

    def __init__(self, owner: object) -> None:
        self._owner = owner
        self._values = plain_attributes(owner)
        self._before = {name: vars(owner)[name] for name in self._values}

    def bring_back(self) -> None:
        """Bring them back, and take off those that are new."""
        attributes = vars(self._owner)
        for name in [name for name in attributes if name not in self._values and _is_state(name, attributes[name])]:
            del attributes[name]
        for name, value in self._values.items():
            before = self._before[name]
            if isinstance(before, torch.Generator):
                before.set_state(value)
            elif before != value:
                _refill(before, copy.deepcopy(value))
            attributes[name] = before


def plain_attributes(owner: object) -> dict[str, Any]:
    """Copies of the attributes that are numbers, words, generators of random numbers, or collections of such."""
    found = {}
    for name, value in list(vars(owner).items()):
        if isinstance(value, torch.Generator):
            found[name] = value.get_state()
        elif _is_state(name, value):
            found[name] = copy.deepcopy(value)
    return found


def _refill(collection: Any, value: Any) -> None:
    """Give a dict, list, set or deque the contents of another one; what cannot change needs none."""
    if not isinstance(collection, dict | list | set | deque):
        return
    collection.clear()
    add = collection.extend if isinstance(collection, list | deque) else collection.update
    add(value)


def _is_state(name: str, value: object) -> bool:
    return name not in _SWITCHES and name not in _MODULES_OWN and _is_plain(value)


def _is_plain(value: object) -> bool:
    waiting, seen = [value], 0
    while waiting:
        part, seen = waiting.pop(), seen + 1
        if seen > _MOST:
            return False
        if isinstance(part, dict):
            waiting += [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple | set | frozenset | deque):
            waiting += part
        elif not (part is None or isinstance(part, bool | int | float | str)):
            return False
    return True


def _random_states() -> dict[str, Any]:
    states: dict[str, Any] = {"cpu": torch.get_rng_state(), "foreign": foreign_random_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def _set_random_states(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["cpu"])
    set_foreign_random_state(states["foreign"])
    if "cuda" in states:
        torch.cuda.set_rng_state_all(states["cuda"])
