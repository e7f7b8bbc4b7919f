"""What TrainingArguments say about activation checkpointing that a policy must know. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hf_ckpt.errors import ConflictError

if TYPE_CHECKING:
    from collections.abc import Mapping


def check_fsdp_plugin(fsdp_config: Mapping[str, Any] | None, environ: Mapping[str, str]) -> None:
    """Raise ConflictError when FSDP's own activation checkpointing is on: every layer would be recomputed twice."""
    in_arguments = str((fsdp_config or {}).get("activation_checkpointing", "false")).lower()
    in_launcher = environ.get("FSDP_ACTIVATION_CHECKPOINTING", "false").lower()
    if "true" in (in_arguments, in_launcher):
        where = "fsdp_config['activation_checkpointing']" if in_arguments == "true" else "FSDP_ACTIVATION_CHECKPOINTING"
        raise ConflictError(
            f"{where} is on beside SelectiveCkpt, so every layer would be recomputed twice: set it to false, "
            "SelectiveCkpt takes its place"
        )


def is_compiled(args: Any) -> bool:
    """Whether the Trainer compiles the model: a traced graph has no replay that could be counted."""
    return bool(getattr(args, "torch_compile", False))
