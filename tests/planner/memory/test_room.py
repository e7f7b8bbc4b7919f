"""What ranks that plan together take for taken: the most of the device, the least of the host."""

from __future__ import annotations

import pickle
from functools import partial

import pytest
import torch

from hf_ckpt.planner.budget import DeviceMemory
from hf_ckpt.planner.memory.room import Room


class OtherRank:
    """Ranks of which the other one said these numbers; its host has a number of bytes for offload, or none is known."""

    def __init__(self, used: int, host: int | None) -> None:
        room = room_with(used, host)
        self.said: list[int] = []
        self.together = False
        room.look(self, empty=True)
        self.together = True

    def largest(self, values: list[int]) -> list[int]:
        if not self.together:
            self.said = list(values)
        return list(map(max, values, self.said))


def memory(device: torch.device, used: int = 0) -> DeviceMemory:
    return DeviceMemory(100, used)


def room_with(used: int, host: int | None) -> Room:
    model = torch.nn.Linear(2, 2)
    tell = partial(memory, used=used)
    return Room(
        model, [model], tell, optimizer=None, gradients_grow=False, host=partial(int, host) if host else no_bound
    )


def no_bound() -> None:
    return None


@pytest.mark.parametrize(
    ("mine", "other", "both"), [(7, 5, 5), (5, 7, 5), (None, 7, 7), (7, None, 7), (None, None, None)]
)
def test_the_least_host_memory_bounds_all_ranks(mine: int | None, other: int | None, both: int | None) -> None:
    taken = room_with(30, mine).look(OtherRank(40, other), empty=True)
    assert (taken.memory.used, taken.host) == (40, both)


def test_it_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(room_with(30, 7))).host() == 7
