"""transformers' own activation checkpointing: the switch of a layer, and who turns it.

A ``GradientCheckpointingLayer`` reads two attributes: ``gradient_checkpointing`` says whether, and
``_gradient_checkpointing_func`` with what it is called (transformers/modeling_layers.py).
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from .._undo import AttributeChange
from .outermost import OutermostForwards
from .wrappers import is_checkpoint_wrapper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


def supports_checkpointing(layer: nn.Module) -> bool:
    """Whether transformers can switch activation checkpointing of this layer by itself."""
    return isinstance(layer, GradientCheckpointingLayer)


def set_checkpointing(layer: nn.Module, enable: bool, function: Any) -> Iterator[AttributeChange]:
    """Set transformers' switch of one layer, change by change as the caller takes them; off when ``function`` is None.

    transformers takes a KV cache away from a layer whose switch is on, unless it says that it can have one. Ours can.
    ``function(call, *args)`` is called with the layer's forward, its keyword arguments bound, and its positional ones.
    """
    yield AttributeChange(layer, "gradient_checkpointing", enable and function is not None)
    if function is not None:
        if _checkpoints_its_hooks(layer):
            function = partial(_on_forward, function)
        yield AttributeChange(layer, "_gradient_checkpointing_func", function)
        if supports_checkpointing(layer):
            yield AttributeChange(layer, "_can_checkpoint_with_cache", True)


def _checkpoints_its_hooks(layer: nn.Module) -> bool:
    """Whether it is a layer of transformers 5.22 or older, which hands on ``__call__`` and not ``forward``."""
    return supports_checkpointing(layer) and "__call__" in vars(GradientCheckpointingLayer)


def _on_forward(function: Callable[..., Any], call: Callable[..., Any], /, *args: Any) -> Any:
    """Hand on the ``forward`` of a layer that hands on its ``__call__``, so that its hooks run once, outside.

    transformers 5.23 does so by itself. Hooks inside would run a second time in the backward pass, and where FSDP2
    gathers the weights in one, the layer would be seen with its shards (torch/distributed/fsdp/_fully_shard).
    """
    method = call.func if isinstance(call, partial) else call
    # Somebody else's call or forward may do more than the layer.
    if getattr(method, "__func__", None) is not nn.Module.__call__:
        return function(call, *args)
    layer = method.__self__  # type: ignore[attr-defined]
    if _has_its_own_forward(layer) or layer._compiled_call_impl is not None:
        return function(call, *args)
    attributes = vars(layer)
    ours = partial(_between_the_hooks, function, layer)
    try:
        attributes["forward"] = ours  # Module._call_impl reads it before any hook runs (torch/nn/modules/module.py)
        return call(*args)
    finally:
        if attributes.get("forward") is ours:
            del attributes["forward"]


def _has_its_own_forward(layer: nn.Module) -> bool:
    """Whether somebody set one on the instance. Ours is there while a hook of the layer calls the layer again."""
    forward = vars(layer).get("forward")
    return forward is not None and not (isinstance(forward, partial) and forward.func is _between_the_hooks)


def _between_the_hooks(function: Callable[..., Any], layer: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    vars(layer).pop("forward", None)  # an attribute that a trace would depend on
    return function(partial(type(layer).forward, layer, **kwargs), *args)


def run_plainly(call: Callable[..., Any], *args: Any) -> Any:
    """Stands as the checkpointing function of a module that others recompute, or that holds them."""
    return call(*args)


class LoweredFlags:
    """Lowers the switches of the modules around the layers and inside them while the model runs, or one inside it.

    What reads them outside a forward (users, TRL, tests) learns that activation checkpointing is on. Inside one they
    would checkpoint a second time, or take away a KV cache that the model itself asked for.
    """

    def __init__(self, around: Iterable[nn.Module], modules: tuple[nn.Module, ...]) -> None:
        self.modules = modules
        self._lowered: list[nn.Module] = []
        self._forwards = OutermostForwards(around, self._lower, self._raise)

    def install(self) -> None:
        """Watch the forwards of the modules around the layers, the model's first."""
        self._forwards.start()

    def undo(self) -> None:
        """Watch them no longer."""
        self._raise()
        self._forwards.stop()

    def _lower(self) -> None:
        self._raise()  # an interrupt ended the forward before
        self._lowered = [module for module in self.modules if module.gradient_checkpointing]
        for module in self._lowered:
            module.gradient_checkpointing = False  # type: ignore[assignment]

    def _raise(self, *_: Any) -> None:
        for module in self._lowered:
            module.gradient_checkpointing = True  # type: ignore[assignment]
        self._lowered = []


@contextmanager
def switches_lowered(module: nn.Module | None) -> Iterator[None]:
    """Lower the switches inside a module that runs again outside of the model's forward, as they were lowered in it.

    Some code asks its switch for more than whether to checkpoint: T5's attention makes its position bias require a
    gradient, which saves one tensor more.
    """
    parts = () if module is None else module.modules()
    lowered = [part for part in parts if getattr(part, "gradient_checkpointing", False)]
    for part in lowered:
        part.gradient_checkpointing = False  # type: ignore[assignment]
    try:
        yield
    finally:
        for part in lowered:
            part.gradient_checkpointing = True  # type: ignore[assignment]


def checkpointing_models(model: nn.Module) -> Iterator[nn.Module]:
    """Every module through which transformers switches activation checkpointing on and off."""
    return (m for m in model.modules() if hasattr(type(m), "_set_gradient_checkpointing"))


def other_switches(model: nn.Module, layers: Sequence[nn.Module]) -> Iterator[nn.Module]:
    """Modules around the layers, or inside one, that have a switch too, and would checkpoint a second time."""
    known = {id(layer) for layer in layers}
    inside = {id(part) for layer in layers for part in layer.modules()}
    for module in model.modules():
        if not hasattr(module, "gradient_checkpointing") or id(module) in known:
            continue
        if id(module) in inside or any(id(child) in known for child in module.modules()):
            yield module


def loses_its_cache(layer: nn.Module) -> bool:
    """Whether transformers takes the KV cache from this layer now (GradientCheckpointingLayer.__call__)."""
    trains = supports_checkpointing(layer) and layer.training and bool(layer.gradient_checkpointing)
    return trains and not getattr(layer, "_can_checkpoint_with_cache", False)


def switch_settings(model: nn.Module) -> dict[str, Any] | None:
    """What the checkpoint function of the first layer that is switched on was told; None where none is."""
    layers = (module for module in model.modules() if supports_checkpointing(module) and module.gradient_checkpointing)
    for layer in layers:
        return dict(getattr(layer._gradient_checkpointing_func, "keywords", {}))
    return None


def flags_on(model: nn.Module) -> list[str]:
    """Attributes of the transformers models inside that say the switch is on, where nobody turned it.

    Turning it leaves a function on every module that has the attribute, layers of older modeling code or none.
    """
    found = []
    for inner in checkpointing_models(model):
        if any("_gradient_checkpointing_func" in vars(module) for module in inner.modules()):
            continue
        if vars(inner).get("gradient_checkpointing"):
            found.append(f"{type(inner).__name__}.gradient_checkpointing")
        if getattr(getattr(inner, "config", None), "gradient_checkpointing", False):
            found.append("config.gradient_checkpointing")
    return found


def checkpoints_itself(model: nn.Module) -> bool:
    """Whether something in the model is checkpointed already: by transformers' switch, or inside torch's wrapper."""
    return any(getattr(m, "gradient_checkpointing", False) or is_checkpoint_wrapper(m) for m in model.modules())


def lost_its_switch(layer: nn.Module) -> bool:
    """Whether somebody replaced ``forward`` on the layer's class, and with it transformers' switch (5.23 and later)."""
    wraps_forward = "__init_subclass__" in vars(GradientCheckpointingLayer)
    return wraps_forward and supports_checkpointing(layer) and not hasattr(type(layer).forward, "__wrapped__")


class Switchable(Protocol):
    """Something of a policy that can stand still: its layers then run as they are."""

    active: bool


class PolicyOwner(Protocol):
    """What put a policy on a model, and takes it off."""

    @property
    def abandoned(self) -> bool:
        """Whether the training that applied the policy is over and left it on the model."""

    def restore(self) -> None:
        """Take the policy off."""


class PolicySwitch:
    """Keeps a policy in place while others switch activation checkpointing off and on again.

    TRL does so around every generation, PEFT while it prepares a model, users by hand. All of them end up in
    ``PreTrainedModel._set_gradient_checkpointing`` (transformers 4.35 to 5.x), which overwrites every layer's flag and
    function. This object stands as that method on one model: it lets that happen, and then puts the policy's own back,
    or off.

    ``switches`` are the layers whose transformers switch the policy uses, with the function each must have (None: the
    layer keeps its saved tensors, or its regions sit elsewhere). ``owner`` takes the policy off; None on a copy of the
    model, which nothing can restore.
    """

    def __init__(
        self,
        model: nn.Module,
        owner: PolicyOwner,
        switches: Sequence[tuple[nn.Module, Any]],
        regions: Sequence[Switchable],
    ) -> None:
        self.model = model
        self.switches = switches
        self.regions = regions
        self.owner: PolicyOwner | None = owner

    def put_on(self) -> AttributeChange:
        """Stand as the model's switch; the change takes it off again."""
        return AttributeChange(self.model, "_set_gradient_checkpointing", self)

    def __getstate__(self) -> dict[str, Any]:
        # The owner is of one model, and leads to its trainer: copies and pickles of the model go without.
        return self.__dict__ | {"owner": None}

    def __call__(self, enable: bool = True, gradient_checkpointing_func: Any = None, **kwargs: Any) -> None:
        """What transformers does, then the policy again."""
        switch: Callable[..., None] = type(self.model)._set_gradient_checkpointing  # type: ignore[attr-defined]
        if gradient_checkpointing_func is not None:
            kwargs["gradient_checkpointing_func"] = gradient_checkpointing_func
        switch(self.model, enable=enable, **kwargs)
        for region in self.regions:
            region.active = enable
        for layer, function in self.switches:
            list(set_checkpointing(layer, enable, function))


def policy_switch(module: nn.Module) -> PolicySwitch | None:
    """The :class:`PolicySwitch` on this module; None without one."""
    found = vars(module).get("_set_gradient_checkpointing")
    return found if isinstance(found, PolicySwitch) else None
