"""One of two ranks: accelerate's FSDP2 checkpointing around layers with dropout, sharded over gloo, and what is said."""

from __future__ import annotations

import os

from torch import distributed as dist
from torch.distributed.fsdp import fully_shard

import hf_ckpt

from .hazards import accelerates_fsdp2_checkpointing_with_dropout


def main() -> None:
    """Shard as accelerate does, after the wrappers are on."""
    dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
    model, loss = accelerates_fsdp2_checkpointing_with_dropout()
    for block in model.transformer.h:
        fully_shard(block)
    fully_shard(model)
    print(hf_ckpt.verify(model, loss), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
