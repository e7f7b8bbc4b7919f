"""Builds a class tiny, with inputs on which it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from .classes import Subject, classes_of
from .inputs import Size, make_inputs, seed
from .particular import CONFIGS, INPUTS
from .shrink import STYLES, Style, shrink

if TYPE_CHECKING:
    from torch import nn

_MOST_PARAMETERS = 40_000_000
#: Two steps: tokens and frames differ, and so does the number of samples.
SIZES = (Size(2, 12), Size(3, 20))


class CannotBuildError(Exception):
    """Why the generator cannot make this class run."""


@dataclass(frozen=True, slots=True)
class Built:
    """A tiny model in training mode and the inputs of two steps."""

    model: nn.Module
    batches: tuple[dict[str, Any], ...]
    style: Style


def build(subject: Subject) -> Built:
    """Build with the first style of shrinking under which the model runs. Raises CannotBuildError."""
    reasons: dict[str, None] = {}
    best: Built | None = None
    for style in STYLES:
        try:
            built = _build(subject, style)
        except Exception as error:
            reasons[f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"[:400]] = None
            continue
        if _is_complete(built):
            return built
        best = best or built
    if best is not None:
        return best
    raise CannotBuildError(" || ".join(reasons))


def _build(subject: Subject, style: Style) -> Built:
    model_class, config_class = classes_of(subject)
    own = CONFIGS.get(subject.model_class)
    config = shrink(config_class, style, own)
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in model_class(config).parameters())
    if count > _MOST_PARAMETERS:
        raise CannotBuildError(f"{count / 1e6:.0f} million parameters however it is shrunk")
    seed(0)
    model = model_class(shrink(config_class, style, own)).train()
    _without_cache(model)
    return Built(model, tuple(make_inputs(model, size) for size in SIZES), style)


def _without_cache(model: nn.Module) -> None:
    """As `Trainer` does, on every config: with a cache attention may run through another kernel, to the last bit."""
    for module in model.modules():
        config = getattr(module, "config", None)
        if getattr(config, "use_cache", False):
            config.use_cache = False


def _is_complete(built: Built) -> bool:
    """Whether a model that takes media is given some."""
    if type(built.model).__name__ in INPUTS:
        return True
    takes = built.model.main_input_name
    names = built.batches[0]
    media = {"pixel_values", "input_features", "input_values", "pixel_values_videos"}
    import inspect

    wants = media & set(inspect.signature(built.model.forward).parameters)
    return takes in names and (not wants or bool(media & set(names)))
