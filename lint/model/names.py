"""One name for each library function, whatever path it was imported by."""

from __future__ import annotations

from functools import cache

#: Libraries that re-export everything at the top or move things between modules from release to release.
_FLAT = frozenset(("transformers", "peft", "trl", "accelerate", "diffusers", "lightning", "pytorch_lightning", "swift"))
_CKPT_WRAPPER = "torch.distributed.algorithms._checkpoint.checkpoint_wrapper."


@cache
def canonical(name: str) -> str:
    """``transformers.training_args.TrainingArguments`` is ``transformers.TrainingArguments``; the like for torch."""
    name = name.removesuffix(".from_argparse_args")  # of Lightning's Trainer before 2.0
    parts = name.split(".")
    if parts[0] in _FLAT and len(parts) > 2:
        first = next((i for i, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
        return ".".join([parts[0], *parts[max(first, 1) :]])
    if name.startswith("torch.nn.modules."):
        return ".".join(["torch.nn", *parts[-1:]])
    if name.startswith(("torch.distributed.fsdp.", "torch.distributed._composable.fsdp")):
        return f"torch.distributed.fsdp.{parts[-1]}"
    if name.startswith("torch.distributed._composable.") and parts[-1] in ("fully_shard", "checkpoint", "replicate"):
        return f"torch.distributed._composable.{parts[-1]}"
    if name.startswith("torch.nn.parallel."):
        return f"torch.nn.parallel.{parts[-1]}"
    if parts[-1] == "CheckpointWrapper" and name.startswith("torch.distributed.algorithms."):
        return f"{_CKPT_WRAPPER}checkpoint_wrapper"  # the function only builds it
    if name.startswith("torch.distributed.algorithms._checkpoint."):
        return _CKPT_WRAPPER + parts[-1] if parts[-1][0].islower() or len(parts) < 6 else name
    return name
