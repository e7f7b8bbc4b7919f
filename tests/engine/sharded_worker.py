"""What each rank of the sharded tests runs: one strategy, with and without the engine."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from hf_ckpt.engine import Mode
from hf_ckpt.policy.decision import RecomputeExcept, RecomputeLayer, RecomputeSublayers, Role, SaveableOps

from .zoo import batch, build, decoder_layers, install, uninstall

DECISIONS = (
    RecomputeLayer(),
    RecomputeExcept(SaveableOps("dots")),
    RecomputeSublayers(frozenset({Role.ATTENTION})),
)


class CountGathers(TorchDispatchMode):
    """Counts all-gather collectives."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += "allgather" in str(func) or "all_gather" in str(func)
        return func(*args, **(kwargs or {}))


def wrap(model: nn.Module, strategy: str) -> nn.Module:
    if strategy == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if strategy in ("fsdp1", "fsdp1-flat"):
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

        kinds = {type(layer) for layer in decoder_layers(model)}
        policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=kinds)
        return FullyShardedDataParallel(
            model, auto_wrap_policy=policy, use_orig_params=strategy == "fsdp1", device_id=torch.device("cpu")
        )
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if strategy == "fsdp2-bf16" else MixedPrecisionPolicy()
    for layer in decoder_layers(model):
        fully_shard(layer, mp_policy=mixed)
    return fully_shard(model, mp_policy=mixed)


def local_gradients(model: nn.Module) -> list[torch.Tensor]:
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return [g.to_local().clone() if hasattr(g, "to_local") else g.clone() for g in grads]


def train_step(model: nn.Module, rank: int) -> tuple[list[torch.Tensor], int]:
    model.zero_grad()
    torch.manual_seed(10 + rank)
    with CountGathers() as gathers:
        loss = model(**batch(seed=rank + 1)).loss
        loss.backward()
    return [loss.detach().clone(), *local_gradients(model)], gathers.count


def check(model: nn.Module, rank: int, sharded: bool) -> None:
    uninstall(model)
    expected, gathers = train_step(model, rank)
    assert len(expected) > 3
    assert bool(gathers) == sharded
    for decision in DECISIONS:
        engines = install(model, decision)
        for _ in range(3):
            found, found_gathers = train_step(model, rank)
            assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True)), decision
            assert found_gathers <= gathers, (found_gathers, gathers)
        for engine in engines:
            report = engine.report()
            assert report.mode is Mode.SYMBOLIC, report
            assert report.replays == 3, report


def main(strategy: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for lora in (False, True)[: 1 if strategy == "fsdp1-flat" else 2]:  # a flat parameter is trained as a whole
        check(wrap(build("llama", lora=lora), strategy), dist.get_rank(), sharded=strategy != "ddp")
    print("OK", flush=True)
    dist.barrier()
    # Gloo's threads may abort an interpreter that ends while they run.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
