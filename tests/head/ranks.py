"""Run as two gloo ranks: prints OK when the chunked head trains like the plain one in every wrapping."""

import os
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM, LlamaConfig

from hf_ckpt.head.install import install

CONFIG = LlamaConfig(
    num_hidden_layers=2, hidden_size=32, intermediate_size=64, num_attention_heads=2, vocab_size=128, use_cache=False
)


def build():
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIG)


def ddp(model, **options):
    return DistributedDataParallel(model, **options)


def fsdp1(model, own_head=False, **options):
    if own_head:
        model.lm_head = FullyShardedDataParallel(model.lm_head, device_id=torch.device("cpu"), **options)
    return FullyShardedDataParallel(model, device_id=torch.device("cpu"), **options)


def fsdp2(model, own_head=False):
    for layer in model.model.layers:
        fully_shard(layer)
    if own_head:
        fully_shard(model.lm_head)
    return fully_shard(model)


WRAPPINGS = {
    "ddp": (ddp, {}, True),
    "ddp-unused": (ddp, {"find_unused_parameters": True}, True),
    "ddp-static": (ddp, {"static_graph": True}, True),
    "fsdp1": (fsdp1, {}, True),
    "fsdp1-orig": (fsdp1, {"use_orig_params": True}, True),
    "fsdp1-own-head": (fsdp1, {"own_head": True, "use_orig_params": True}, False),
    "fsdp2": (fsdp2, {}, True),
    "fsdp2-own-head": (fsdp2, {"own_head": True}, False),
}


def run(wrap, options, chunks):
    model = build()
    wrapped = wrap(model, **options)
    handle = install(wrapped, chunks) if chunks else None
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.5)
    losses = []
    for number in range(3):
        torch.manual_seed(10 * number + dist.get_rank())
        ids = torch.randint(0, 128, (2, 17))
        loss = wrapped(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, handle


def main(name):
    dist.init_process_group("gloo")
    wrap, options, chunked = WRAPPINGS[name]
    plain, _ = run(wrap, options, None)
    one, handle = run(wrap, options, 1)
    assert handle.uses == (3 if chunked else 0), handle.uses
    many, _ = run(wrap, options, 4)
    assert one == plain, (one, plain)
    assert all(abs(a - b) < 1e-5 * b for a, b in zip(many, plain, strict=True)), (many, plain)
    print("OK", flush=True)
    dist.barrier()
    # Gloo's threads may abort an interpreter that ends while they run.
    os._exit(0)


main(sys.argv[1])
