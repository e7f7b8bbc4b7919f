"""FullyShardedDataParallel (FSDP1) without a Trainer. Run: `torchrun --nproc_per_node 2 examples/fsdp1.py`.

Order: build, shard, `hf_ckpt.apply`. The gradients of every rank are those of the uncheckpointed run, bit for bit.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from stdlib_text import VOCABULARY, byte_blocks
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

import hf_ckpt


def build() -> nn.Module:
    """The same Llama on every rank, each decoder layer its own FSDP unit."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=192, num_hidden_layers=4,
            num_attention_heads=4, num_key_value_heads=2, bos_token_id=0, eos_token_id=0, attention_dropout=0.1,
        )
    )  # fmt: skip
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")
    policy = ModuleWrapPolicy({LlamaDecoderLayer})
    return FullyShardedDataParallel(model, auto_wrap_policy=policy, use_orig_params=True, device_id=device).train()


def gradients(model: nn.Module, ids: torch.Tensor) -> list[torch.Tensor]:
    """This rank's shard of every gradient after one step. The seed fixes the dropout."""
    model.zero_grad()
    torch.manual_seed(1)
    model(input_ids=ids, labels=ids).loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


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
