"""``budget=72GiB`` and ``offload``: let the planner decide, batch by batch, what fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from ..errors import PolicyError
from ..planner.budget import Budget, parse_budget
from ..policy.base import Policy, Requests
from ..policy.decision import Decision, Planned, Stack
from ..policy.platform import Engine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..policy.platform import Platform


@dataclass(frozen=True, slots=True)
class BudgetPolicy(Policy):
    """Pick the plan that adds the least step time within a memory budget, for each size of batch.

    ``budget=72GiB`` bounds the device's peak, ``budget=0.5`` the share of the uncheckpointed saved tensors that layers
    may hold, ``budget=auto`` is what the device has left beside the model's state. A bound on the peak may also chunk
    the loss head where that pays, which sums the loss in another order; ``+head(1)`` keeps it bitwise.

    Args:
        budget: The bound; sizes are in bytes.
    """

    name: ClassVar[str] = "budget"
    usage: ClassVar[str] = "budget=72GiB"
    budget: Budget

    @classmethod
    def parse(cls, arguments: tuple[str, ...]) -> Self:
        """One budget."""
        if len(arguments) != 1:
            raise PolicyError("policy `budget` takes one value: write `budget=72GiB`, `budget=0.5` or `budget=auto`")
        return cls(parse_budget(arguments[0]))

    def arguments(self) -> tuple[str, ...]:
        """The budget as written."""
        return (str(self.budget),)

    def __str__(self) -> str:
        return f"{self.name}={self.budget}"

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """Every layer is the planner's."""
        return {layer.index: Planned() for layer in stack.layers}

    def requests(self) -> Requests:
        """The budget."""
        return Requests(budget=self.budget)

    def check(self, requests: Requests, platform: Platform) -> None:
        """Refuse an engine that decides about whole layers, and a device without memory."""
        if platform.engine is not Engine.TRACED:
            raise PolicyError(
                f'`{self}` plans single saved tensors, which the engine `torch` cannot: pass engine="traced" to '
                "SelectiveCkpt or apply"
            )
        if platform.device == "meta":
            raise PolicyError(
                f"`{self}` has no memory to plan for, as the model's weights are on the meta device: load them first, "
                "or forecast the model with `hf-ckpt plan`"
            )


@dataclass(frozen=True, slots=True)
class OffloadPolicy(Policy):
    """Move saved tensors to pinned host memory and back, on a GPU.

    Beside a budget (``budget=40GiB+offload``) the planner decides which ones, the inputs of layers among them. Beside
    policies that recompute whole layers (``full+offload``) the input of each of these is moved. The copies run on a
    stream of their own, one layer ahead of backward. On a CPU there is nowhere to offload to.
    """

    name: ClassVar[str] = "offload"
    usage: ClassVar[str] = "budget=40GiB+offload"

    def about_layers(self) -> bool:
        """It says where tensors wait, not which are recomputed."""
        return False

    def decide(self, stack: Stack) -> Mapping[int, Decision]:
        """Nothing about any layer: it says where tensors wait."""
        return {}

    def requests(self) -> Requests:
        """Offload as one of the planner's choices."""
        return Requests(offload=True)

    def check(self, requests: Requests, platform: Platform) -> None:
        """Refuse an engine that does not hold the tensors itself, and a device whose memory is the host's already."""
        if platform.engine is not Engine.TRACED or platform.compiled:
            raise PolicyError(
                '`offload` moves tensors that the engine `traced` holds: pass engine="traced" to SelectiveCkpt or '
                "apply, without torch_compile=True, or leave `offload` out"
            )
        if platform.device != "cuda":
            raise PolicyError(
                "`offload` moves saved tensors from a GPU to host memory, and they are in host memory already (device "
                f"{platform.device}): leave it out"
            )
