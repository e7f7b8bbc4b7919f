"""`fully_shard` (FSDP2) without a Trainer. Run: `torchrun --nproc_per_node 2 examples/fsdp2.py`.

Order: build, `fully_shard`, `hf_ckpt.apply`. The gradients of every rank are those of the uncheckpointed
run, bit for bit.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from stdlib_text import VOCABULARY, byte_blocks
from torch import nn
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, LlamaConfig

import hf_ckpt


def build() -> nn.Module:
    """The same Llama on every rank, each decoder layer sharded on its own."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=192, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=2, bos_token_id=0, eos_token_id=0, attention_dropout=0.1,
        )
    )  # fmt: skip
    model = model.to("cuda" if torch.cuda.is_available() else "cpu").train()
    for layer in model.model.layers:
        fully_shard(layer)
    return fully_shard(model)


def gradients(model: nn.Module, ids: torch.Tensor) -> list[torch.Tensor]:
    """This rank's shard of every gradient after one step. The seed fixes the dropout."""
    model.zero_grad()
    torch.manual_seed(1)
    model(input_ids=ids, labels=ids).loss.backward()
    return [p.grad.to_local().clone() for p in model.parameters() if p.grad is not None]


def main() -> None:
    """Two steps, one of them checkpointed."""
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if cuda:
        torch.cuda.set_device(rank % torch.cuda.device_count())
    model = build()
    rows = byte_blocks(count=2 * world, length=64)[rank::world]
    ids = torch.tensor([row["input_ids"] for row in rows], device=next(model.parameters()).device)

    expected = gradients(model, ids)
    handle = hf_ckpt.apply(model, "full")
    with handle.measure():
        found = gradients(model, ids)
    equal = len(expected) > 0 and all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    if rank == 0:
        print(handle.report())
    print(f"rank {rank}: {len(found)} gradients {'equal, every bit' if equal else 'DIFFER'}", flush=True)
    handle.restore()
    dist.destroy_process_group()
    if not equal:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
