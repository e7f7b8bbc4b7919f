"""Run as two gloo ranks: what only one of them meets must not leave the other one waiting."""

import datetime
import os

import pytest
import torch
import torch.distributed as dist
from planner_models import build, conduct, nothing_used
from torch.distributed.fsdp import fully_shard

from hf_ckpt.engine import UntraceableError
from hf_ckpt.engine.tracing.cache import TraceCache
from hf_ckpt.errors import BudgetError
from hf_ckpt.planner.batches import learning


def untraceable(*_):
    raise UntraceableError("it met more than 32 shapes, and each needs its own trace")


def too_little(*_):
    raise BudgetError("no plan fits on this rank")


def train(budget):
    model = build()
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    planner = conduct(model, budget, memory=nothing_used()) if budget else None
    ids = torch.arange(32).reshape(2, 16)
    losses = []
    for _ in range(3):
        model.zero_grad()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        losses.append(loss.item())
    assert budget is None or planner.current is not None
    return losses


dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
plain = train(None)
lookup, make_plan = TraceCache.lookup, learning.make_plan
if dist.get_rank() == 1:
    TraceCache.lookup = untraceable
assert train("0.5") == plain
TraceCache.lookup = lookup
if dist.get_rank() == 1:
    learning.make_plan = too_little
with pytest.raises(BudgetError, match="no plan fits on this rank"):
    train("0.5")
print("OK", flush=True)
os._exit(0)
