"""Selective, measured and provably correct activation checkpointing for the HuggingFace Trainer.

Importing this package costs nothing and never imports torch: the public names load on first use (PEP 562), because
``ckpt-lint`` lives below it and must start fast on machines that have no torch at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._apply import apply
    from .callbacks import SelectiveCkpt
    from .certificate.verify import verify
    from .doctor.own_loop import Diagnosed
    from .handle import Handle
    from .policy import Policy, parse_policy

__version__ = "0.1.0"

__all__ = ["Diagnosed", "Handle", "Policy", "SelectiveCkpt", "apply", "parse_policy", "verify"]

_HOMES = {
    "SelectiveCkpt": ".callbacks",
    "Diagnosed": ".doctor.own_loop",
    "apply": "._apply",
    "Handle": ".handle",
    "Policy": ".policy",
    "parse_policy": ".policy",
    "verify": ".certificate.verify",
}


def __getattr__(name: str) -> Any:
    # The helper itself is imported late: `ckpt-lint` pays for every module this package imports.
    from ._lazy import lazy_names

    return lazy_names(__name__, _HOMES)(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
