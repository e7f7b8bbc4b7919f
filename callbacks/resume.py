"""What a resumed run knows of the one that wrote its checkpoint."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import TrainerState

    from hf_ckpt.policy import Policy

logger = logging.getLogger("hf_ckpt")


def warn_of_drift(policy: Policy, state: TrainerState) -> None:
    """Say when a run resumes under another policy than its checkpoint was written under."""
    saved = state.stateful_callbacks.get("SelectiveCkpt") if isinstance(state.stateful_callbacks, dict) else None
    before = saved.get("args", {}).get("policy") if isinstance(saved, dict) else None
    if before is not None and before != str(policy):
        logger.warning("this run resumes with policy `%s`, the checkpoint was written under `%s`", policy, before)
