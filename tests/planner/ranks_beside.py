"""Run as two ranks whose default group takes no CPU tensors, as NCCL's does: they agree without the device."""

import os

import torch
import torch.distributed as dist

from hf_ckpt.errors import BudgetError
from hf_ckpt.planner.ranks import Ranks

dist.init_process_group("cuda:gloo")
rank = dist.get_rank()
ranks = Ranks(torch.device("cuda"), together=True)
assert ranks.largest([rank, 3 - rank]) == [1, 3]
assert ranks.any(rank == 1)
assert Ranks(torch.device("cuda"), together=True)._group is ranks._group  # another training makes no other group
assert not ranks.any(False)
assert ranks.decide(lambda: ("mine", rank), prefer=rank == 1) == ("mine", 1)


def fail():
    if rank:
        raise ValueError("no room on this rank")
    return "a plan"


try:
    ranks.decide(fail)
except BudgetError as error:
    print("OK" if str(error) == "no room on this rank" else error, flush=True)
ranks.any(False)  # neither leaves before the other has heard it
# Gloo's threads may abort an interpreter that ends while they run.
os._exit(0)
