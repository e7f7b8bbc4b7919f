"""Reads a model before its training begins, for the checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..compat.adapters import tensors_left_out
from ..compat.checkpointing import flags_on, lost_its_switch, switch_settings
from .facts import ModelSettings, Patched, StartFacts
from .place import Place, is_users

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import torch

    from ..anatomy import Anatomy


def read_start(
    model: torch.nn.Module, anatomy: Anatomy, settings: Mapping[str, Any], built: ModelSettings
) -> StartFacts:
    """The training as it is before its first step; arguments as in :meth:`.checkup.Checkup.start`."""
    return StartFacts(
        settings,
        _patched(layer.module for layer in anatomy.layers),
        sum(parameter.requires_grad for parameter in model.parameters()),
        any(hasattr(module, "peft_config") for module in model.modules()),
        built,
        tensors_left_out(model),
    )


def model_settings(model: torch.nn.Module | None) -> ModelSettings:
    """What the model says of its activation checkpointing now; before a Trainer or a policy has a say in it."""
    if model is None:
        return ModelSettings()
    told = switch_settings(model)
    return ModelSettings(told, tuple(flags_on(model)) if told is None else ())


def _patched(layers: Iterable[torch.nn.Module]) -> tuple[Patched, ...]:
    classes = {type(layer): layer for layer in layers if lost_its_switch(layer)}
    return tuple(Patched(kind.__name__, _place_of(kind.forward)) for kind in classes)


def _place_of(function: Any) -> Place | None:
    code = getattr(function, "__code__", None)
    return Place(code.co_filename, code.co_firstlineno) if code is not None and is_users(code.co_filename) else None
