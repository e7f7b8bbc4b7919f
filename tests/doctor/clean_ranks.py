"""Right runs on two gloo ranks: ``python -m tests.doctor.clean_ranks STRATEGY`` is one rank of one of them.

accelerate has no FSDP on a CPU, so FSDP runs in a loop of its own, with the doctor where SelectiveCkpt calls it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint
from transformers import Trainer

import hf_ckpt
from hf_ckpt import SelectiveCkpt
from hf_ckpt.doctor.checkup import Checkup
from hf_ckpt.doctor.facts import ModelSettings
from hf_ckpt.doctor.watch import Watch

from ..engine.sharded_worker import wrap
from .clean_runs import STEPS, Words
from .run_faults import _with_mlp
from .runs import arguments, pad, small_llama, texts

if TYPE_CHECKING:
    from ..forked import Forked

#: As the table names them, and as they are started.
STRATEGIES = {
    "Trainer, DDP": "ddp",
    "FSDP1": "fsdp1",
    "FSDP2": "fsdp2",
    "FSDP2, one unit for all, a checkpoint of its own": "fsdp2-root",
}
_MARK = "said: "


def words_of(strategy: str, forked: Forked) -> list[str]:
    """What all ranks of a run were told; its certificates where they do not hold."""
    said = []
    for rank in forked.run_ranks("-m", "tests.doctor.clean_ranks", strategy, folder=Path(__file__).parents[2]):
        told = [line for line in rank.stdout.splitlines() if line.startswith(_MARK)]
        said += json.loads(told[0].removeprefix(_MARK)) if told else [rank.stderr[-2000:]]
    return said


def _trained_by_trainer() -> list[str]:
    callback = SelectiveCkpt("full", doctor=True, verify="first_step")
    data = texts([16] * 4 * STEPS)
    args = arguments(max_steps=STEPS, ddp_backend="gloo")
    Trainer(small_llama(), args, train_dataset=data, data_collator=pad, callbacks=[callback]).train()
    assert callback.certificate is not None
    return [*map(str, callback.findings), *([] if callback.certificate.holds else [str(callback.certificate)])]


def _sharded(strategy: str) -> tuple[nn.Module, str]:
    """The model, and the policy for it."""
    if strategy == "fsdp2-root":
        return fully_shard(_with_mlp(partial(checkpoint, use_reentrant=False))), "none"
    return wrap(small_llama(), strategy), "full"


def _trained_by_hand(strategy: str) -> list[str]:
    model, policy = _sharded(strategy)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    batches = [pad(texts([16, 16])) for _ in range(STEPS)]
    certificate = hf_ckpt.verify(model, lambda: model(**batches[0]).loss, policy)
    handle = hf_ckpt.apply(model, policy)
    checkup, watch = Checkup(model, handle.anatomy), Watch(model)
    checkup.start({}, ModelSettings())
    for number, batch in enumerate(batches):
        watch.begin_step(number + 1)
        checkup.begin_step()
        model(**batch).loss.backward()
        checkup.backward_done()
        checkup.end_step()
        optimizer.step()
        optimizer.zero_grad()
    checkup.end()
    return [*map(str, checkup.found), *([] if certificate.holds else [str(certificate)])]


def main() -> None:
    """Run one rank."""
    words = Words()
    logging.getLogger("hf_ckpt.doctor").addHandler(words)
    if sys.argv[1] == "ddp":
        found = _trained_by_trainer()
    else:
        dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
        found = _trained_by_hand(sys.argv[1])
    print(_MARK + json.dumps([*words.said, *found]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
