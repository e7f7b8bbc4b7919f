"""Which ops a rule about saveable ops means; both engines ask here. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import PolicyError
from ..op_catalogue import traits_of

if TYPE_CHECKING:
    from .decision import SaveableOps


def is_saveable(saveable: SaveableOps, name: str) -> bool:
    """Whether the outputs of the op of this name (``aten.mm.default``) may be kept.

    Raises PolicyError for a rule that does not exist.
    """
    match saveable.rule:
        case "dots":
            return traits_of(name).product
        case "dots_with_no_batch_dims":
            return traits_of(name).weight_product
        case "names":
            return any(_matches(wanted, name) for wanted in saveable.names)
        case "nothing":
            return False
    raise PolicyError(f"`{saveable.rule}` is no rule for saveable ops")


def _matches(wanted: str, name: str) -> bool:
    packet = name.rpartition(".")[0]
    return wanted.replace("::", ".") in (name, packet, packet.partition(".")[2])
