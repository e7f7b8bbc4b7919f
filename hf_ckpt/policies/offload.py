"""``offload``: the planner may also move saved tensors to host memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..policy.base import Policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..policy.decision import Decision, Stack


@dataclass(frozen=True, slots=True)
class OffloadPolicy(Policy):
    """Beside a budget (``budget=40GiB+offload``): saved tensors may move to pinned host memory and come back in time.

    The copies run on a stream of their own, one layer ahead of backward. On a CPU there is nowhere to offload to.
    """

    name: ClassVar[str] = "offload"
    about_layers: ClassVar[bool] = False

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """Nothing about any layer: it widens what a budget may choose from."""
        return {}
