"""Decides from a measured step whether a policy took effect, and names the cause when it did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..compat.checkpointing import lost_its_switch
from ..errors import NoEffectError

if TYPE_CHECKING:
    from torch import nn

    from ..anatomy import Anatomy, DecoderLayer
    from .report import LayerReport, Report


def check_effect(report: Report, anatomy: Anatomy) -> None:
    """Raise NoEffectError unless all that should recompute, and did run, recomputed in the measured step.

    A layer below the lowest trainable parameter has nothing to recompute and may stay silent, and so may one that has
    nothing to rebuild, or that the loss does not read while others replay; under a policy about sublayers, one of which
    the loss does not read all of these (of PI0's last layer it reads keys and values alone). Of a layer that did not
    run nothing is known (see :func:`unseen`). A head that the policy names must have computed a loss in chunks, and of
    the MLPs, norms and projections that it names one must have run in them.
    """
    if not report.measured:
        raise NoEffectError(
            f"policy `{report.policy}` was never seen in a training forward: the model ran in eval mode or without "
            "gradients, or another copy of the model is being trained; call `model.train()` and pass the trained model"
        )
    _check_rebuilds(report, anatomy)
    silent = [pair for pair in zip(report.layers, anatomy.layers, strict=True) if _is_silent(*pair)]
    others_replayed = any(layer.replays for layer in report.layers)
    for layer, known in silent:
        if not (others_replayed and layer.calls > 0 and _is_unread(layer, known)):
            raise NoEffectError(
                f"policy `{report.policy}` had no effect on {layer.name}: {_cause(layer, known.module)}"
            )
    for head in report.heads:
        if head.asked and head.problem:
            raise NoEffectError(f"`head({head.chunks})` of policy `{report.policy}` had no effect: {head.problem}")
    for parts in report.chunked:
        if not parts.ran_in_chunks:
            raise NoEffectError(
                f"`{parts.role}({parts.chunks})` of policy `{report.policy}` had no effect: "
                f"{parts.reason or f'none of the {parts.called} ran in the measured step'}"
            )


def unseen(report: Report, anatomy: Anatomy) -> set[str]:
    """Names of the layers that should recompute and of which the measured step could show nothing.

    They did not run, or their first rebuild was still being compared with what they saved.
    """
    pairs = zip(report.layers, anatomy.layers, strict=True)
    return {
        layer.name
        for layer, known in pairs
        if layer.recomputes and not (layer.ran and layer.settled) and _trains(known.module)
    }


def _check_rebuilds(report: Report, anatomy: Anatomy) -> None:
    pairs = zip(report.layers, anatomy.layers, strict=True)
    asked = [layer for layer, known in pairs if layer.recomputes and layer.ran and _trains(known.module)]
    if asked and not any(layer.rebuilds or not layer.settled for layer in asked):
        raise NoEffectError(
            f"policy `{report.policy}` had no effect: nothing that these layers save is made where it recomputes, so "
            "there is nothing to rebuild; use `full` or a budget"
        )


def _is_silent(layer: LayerReport, known: DecoderLayer) -> bool:
    """Whether a replay was due in this layer and none was seen."""
    due = layer.recomputes and layer.ran and layer.settled and layer.rebuilds
    return due and layer.replays == 0 and _trains(known.module)


def _is_unread(layer: LayerReport, known: DecoderLayer) -> bool:
    """Whether the loss does not depend on what the policy drops here, as far as gradients tell."""
    names = (name for role in layer.roles for name in known.info.sublayers.get(role, ()))
    sublayers = [part for part in map(known.module.get_submodule, names) if _trains(part)]
    return all(map(_has_part_without_gradient, sublayers)) if sublayers else _has_no_gradient(known.module)


def _has_part_without_gradient(sublayer: nn.Module) -> bool:
    """Whether the loss does not depend on all of it, so that what it dropped may not have been needed."""
    parts = [part for part in sublayer.children() if _trains(part)]
    return any(map(_has_no_gradient, parts or [sublayer]))


def _has_no_gradient(module: nn.Module) -> bool:
    """Whether backward gave none of its parameters a gradient: the loss does not depend on it."""
    return not any(p.requires_grad and p.grad is not None and p.grad.any() for p in module.parameters())


def _trains(module: nn.Module) -> bool:
    return any(p.requires_grad for p in module.parameters())


def _cause(layer: LayerReport, module: nn.Module) -> str:
    if layer.calls > 0:
        return "its forward was recorded but backward never reached it; is the loss computed from this model's output?"
    if not module.training:
        return (
            "the layer is in eval mode, where transformers switches activation checkpointing off; call `model.train()`"
        )
    if lost_its_switch(module):
        return (
            f"`{type(module).__name__}.forward` was replaced on the class, which removes transformers' switch "
            "(5.23 and later); patch the instance, or patch before the class is first used"
        )
    if "forward" in vars(module) and not _is_ours(vars(module)["forward"]):
        return "somebody replaced the layer's forward after the policy was applied; apply the policy last"
    return "its forward never went through the policy's region; something switched it off after it was applied"


def _is_ours(forward: object) -> bool:
    return hasattr(getattr(forward, "__self__", forward), "replays")
