"""Run as two gloo ranks: batches of different lengths, one plan for both under FSDP2."""

import os

import torch
import torch.distributed as dist
from planner_models import build, conduct, nothing_used
from torch.distributed.fsdp import fully_shard

from hf_ckpt.planner.ranks import needs_agreement

LENGTHS = ((16, 48), (48, 16), (16, 16), (48, 40))


def shard(model):
    for layer in model.model.layers:
        fully_shard(layer)
    return fully_shard(model)


def train(budget):
    model = shard(build())
    planner = conduct(model, budget, memory=nothing_used()) if budget else None
    losses = []
    for lengths in (*LENGTHS, *LENGTHS):
        length = lengths[dist.get_rank()]
        torch.manual_seed(length)
        ids = torch.randint(0, 97, (2, length))
        model.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        losses.append(loss.item())
        if planner is not None:
            mine = [(size, plan.writes) for size, plan in planner.book.plans.items()]
            both = [None, None]
            dist.all_gather_object(both, (mine, planner.current is None))
            assert both[0] == both[1], both
    return losses, planner


def marked_by_zero3():
    model = build()
    for number, parameter in enumerate(model.parameters()):
        parameter.ds_id = number  # as DeepSpeed marks the parameters that it gathers
    return model


dist.init_process_group("gloo")
assert not needs_agreement(build())
assert needs_agreement(marked_by_zero3())
plain, _ = train(None)
planned, planner = train("0.4")
assert planned == plain, (planned, plain)
assert [size.tokens for size in planner.book.plans] == [96, 32]
limited, planner = train("700KiB")
assert planner.current is not None
print("OK", flush=True)
dist.barrier()
# Gloo's threads may abort an interpreter that ends while they run.
os._exit(0)
