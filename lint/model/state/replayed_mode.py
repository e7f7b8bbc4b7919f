"""The mode in which a backward pass runs checkpointed regions again, where it is not that of the forward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import Instance, options
from ..events import Backward, ModeSwitch
from ..flow.frames import follows
from ..types import unwrapped
from .modes import comes_to

if TYPE_CHECKING:
    from ...facts.values import Value
    from ..events import Checkpointing
    from ..history import History


def may_be_replayed_in_eval(run: History, event: Checkpointing) -> bool:
    """Whether an `eval()` stands last before a backward pass, of what may be a model that comes to ``event``.

    What happens in train mode alone happens in the forward pass then, and not again.
    """
    switches = [it for it in run.of(ModeSwitch) if _may_switch(run, it.receiver, event)]
    for backward in run.of(Backward):
        before = [it for it in switches if follows(run, backward, it)]
        if before and before[-1].on is False:
            return True
    return False


def _may_switch(run: History, switched: Value, event: Checkpointing) -> bool:
    """Whether ``switched`` may be, or be in, a model that runs what ``event`` checkpoints."""
    models = [unwrapped(option) for option in options(switched)]
    return any(
        not isinstance(model, Instance) or comes_to(run, model, event) or _shares(run, model, event) for model in models
    )


def _shares(run: History, module: Instance, event: Checkpointing) -> bool:
    """Whether ``module`` runs something that ``event`` runs again."""
    return not run.region(event).conditions.keys().isdisjoint(run.bodies.of(module).conditions)
