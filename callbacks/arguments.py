"""What TrainingArguments say about activation checkpointing that a policy must know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hf_ckpt.conflicts import check_data_parallel
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


def check_one_gpu_a_process(args: Any, model: Any) -> None:
    """Raise ConflictError when the Trainer will wrap the model in ``nn.DataParallel`` (Trainer._wrap_model)."""
    if not getattr(model, "is_loaded_in_8bit", False):
        check_data_parallel(args.n_gpu)


def is_compiled(args: Any) -> bool:
    """Whether the Trainer compiles the model: a traced graph has no replay that could be counted."""
    return bool(getattr(args, "torch_compile", False))
