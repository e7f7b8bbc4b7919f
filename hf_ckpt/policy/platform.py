"""What the surroundings of a policy can do: plain data, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from ..errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Engine(StrEnum):
    """What recomputes."""

    #: Traced replay (the default); segments are torch's checkpoint.
    TRACED = "traced"
    #: ``torch.utils.checkpoint`` everywhere: the reference, and the only one under ``torch.compile``.
    TORCH = "torch"


def parse_engine(value: str | Engine) -> Engine:
    """Read an engine's name.

    Args:
        value: ``"traced"`` or ``"torch"``, or the engine itself.

    Returns:
        The engine.

    Raises:
        PolicyError: there is no such engine; the message names those there are.
    """
    try:
        return Engine(value)
    except ValueError:
        raise PolicyError(f"there is no engine {value!r}: use {' or '.join(f'`{e}`' for e in Engine)}") from None


def _any_op(name: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Platform:
    """What a policy has to work with beside the decoder layers.

    Attributes:
        engine: What recomputes.
        compiled: Whether the model will run inside a graph of ``torch.compile``.
        device: The type of the device that the model trains on: ``"cuda"``, ``"cpu"``, ``"meta"``.
        missing_head: Why the model has no loss head that could be chunked; empty when it has one.
        uncut: Why no layer has a part that ``attention(8)``, ``mlp(8)`` or ``norm(8)`` could run in chunks, by the name
            of the policy; empty when one has.
        has_op: Whether torch has an op of this name.
    """

    engine: Engine = Engine.TRACED
    compiled: bool = False
    device: str = "cpu"
    missing_head: str = ""
    uncut: Mapping[str, str] = field(default_factory=dict)
    has_op: Callable[[str], bool] = _any_op
