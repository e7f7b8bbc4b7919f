"""Run as two gloo ranks: prints OK when MLPs in chunks train like whole ones, or say why they stay whole."""

import os
import sys

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from peft.utils.other import fsdp_auto_wrap_policy
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM, LlamaConfig

import hf_ckpt

CONFIG = LlamaConfig(
    num_hidden_layers=2, hidden_size=32, intermediate_size=64, num_attention_heads=2, vocab_size=128, use_cache=False
)


def fsdp1(model):
    return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)


def fsdp2(model):
    for layer in model.model.layers:
        fully_shard(layer)
    return fully_shard(model)


def fsdp2_inside(model):
    for layer in model.model.layers:
        fully_shard(layer.mlp.down_proj)
    return fsdp2(model)


def fsdp1_lora(model):
    """As the Trainer does it with PEFT: every lora_A and lora_B is a unit of its own."""
    adapter = LoraConfig(r=4, target_modules=["gate_proj", "down_proj"], init_lora_weights=False)
    model = get_peft_model(model, adapter)
    return FullyShardedDataParallel(
        model, device_id=torch.device("cpu"), use_orig_params=True, auto_wrap_policy=fsdp_auto_wrap_policy(model)
    )


WRAPPINGS = {
    "ddp": DistributedDataParallel, "fsdp1": fsdp1, "fsdp2": fsdp2, "fsdp2 inside": fsdp2_inside,
    "fsdp1 lora": fsdp1_lora,
}  # fmt: skip
WHOLE = {"fsdp1": "use FSDP2", "fsdp2 inside": "one FSDP unit", "fsdp1 lora": "one FSDP unit"}


def run(wrap, policy):
    torch.manual_seed(0)
    model = wrap(AutoModelForCausalLM.from_config(CONFIG).train())
    handle = hf_ckpt.apply(model, policy)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    with handle.measure():
        for number in range(3):
            torch.manual_seed(10 * number + dist.get_rank())
            ids = torch.randint(0, 128, (2, 17))
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses, handle.report().chunked and handle.report().chunked[0]


def main(name):
    dist.init_process_group("gloo")
    whole, _ = run(WRAPPINGS[name], "full")
    losses, mlps = run(WRAPPINGS[name], "full+mlp(4)")
    assert all(abs(a - b) < 1e-5 * b for a, b in zip(losses, whole, strict=True)), (losses, whole)
    if name in WHOLE:
        assert mlps.ran_in_chunks == 0, mlps
        assert WHOLE[name] in mlps.reason, mlps
    else:
        assert mlps.ran_in_chunks == 2, mlps
    print("OK", flush=True)
    dist.barrier()
    # Gloo's threads may abort an interpreter that ends while they run.
    os._exit(0)


main(sys.argv[1])
