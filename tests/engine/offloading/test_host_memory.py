"""Host memory for offload: little more than is out, shared by all sizes, given back. Without CUDA it is not pinned."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_ckpt.engine.offloading import free_memory, host_memory
from hf_ckpt.engine.offloading.extents import Extents
from hf_ckpt.engine.offloading.host_memory import HostMemory
from hf_ckpt.errors import BudgetError

CPU = torch.device("cpu")
MIB = 1 << 20


def step(memory: HostMemory, sizes: list[int]) -> None:
    """Everything goes out in forward, and comes back from the last to the first."""
    out = [memory.take(nbytes) for nbytes in sizes]
    while out:
        memory.give(out.pop())


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=60))
def test_extents_keep_the_books(moves: list[tuple[bool, int]]) -> None:
    extents, taken = Extents(50), set[tuple[int, int]]()
    for gives, nbytes in moves:
        place = next((start for start, end in extents.parts if end - start >= nbytes), None)
        if gives and taken:
            extents.give(*taken.pop())
        elif place is not None:
            extents.take(place, nbytes)
            taken.add((place, place + nbytes))
        covered = sorted([*taken, *extents.parts])
        assert [start for start, _ in covered[1:]] == [end for _, end in covered[:-1]]
        assert covered[0][0] == 0
        assert covered[-1][1] == 50
        assert all(one[1] < other[0] for one, other in zip(extents.parts, extents.parts[1:], strict=False))


def test_a_block_has_all_bytes_and_blocks_share_none() -> None:
    memory = HostMemory(CPU)
    step(memory, [MIB, 3 * MIB, 2 * MIB])
    blocks = [memory.take(nbytes) for nbytes in (5 * MIB + 7, 300_001)]
    for number, block in enumerate(blocks):
        for _, _, host in block.pieces:
            host.fill_(number)
    for number, (block, nbytes) in enumerate(zip(blocks, (5 * MIB + 7, 300_001), strict=True)):
        assert block.pieces[0][0] == 0
        assert block.pieces[-1][1] == nbytes
        assert all(end - begin == host.numel() and bool((host == number).all()) for begin, end, host in block.pieces)
        assert [end for _, end, _ in block.pieces[:-1]] == [begin for begin, _, _ in block.pieces[1:]]
    assert len(blocks[0].pieces) > 1


@pytest.mark.parametrize("seed", range(4))
def test_batches_of_every_length_share_the_memory(seed: int) -> None:
    draw, memory, most = random.Random(seed), HostMemory(CPU), 0
    for _ in range(40):
        length = draw.randint(100, 400)
        sizes = [length * width for _ in range(12) for width in (344 << 8, 128 << 8, 64)]
        most = max(most, sum(sizes))
        step(memory, sizes)
        assert memory.pinned <= 1.1 * most + MIB
    made = memory.segments
    step(memory, sizes)
    assert memory.segments == made
    assert max(len(memory.take(nbytes).pieces) for nbytes in sizes) <= 9


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTFORK"), reason="only Linux leaves memory out of a fork")
def test_a_fork_does_not_copy_it() -> None:
    memory = HostMemory(CPU)
    begin, _, host = memory.take(MIB).pieces[0]
    assert begin == 0
    lines = Path("/proc/self/smaps").read_text(encoding="ascii").splitlines()
    regions = (place for place, line in enumerate(lines) if "-" in line.split()[0] and ":" not in line.split()[0])
    spans = {place: [int(end, 16) for end in lines[place].split()[0].split("-")] for place in regions}
    (mine,) = (place for place, (start, end) in spans.items() if start <= host.data_ptr() < end)
    flags = next(line for line in lines[mine + 1 :] if line.startswith("VmFlags:"))
    assert "dc" in flags.split()


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTFORK"), reason="only Linux leaves memory out of a fork")
def test_a_forked_child_does_not_unmap_it() -> None:
    memory = HostMemory(CPU)
    block = memory.take(MIB)
    address, nbytes = block.parts[0].segment.memory.data_ptr(), memory.pinned
    child = os.fork()
    if not child:
        try:
            libc = ctypes.CDLL(None)
            libc.mmap.restype = ctypes.c_void_p
            libc.mmap.argtypes = [ctypes.c_void_p, *[ctypes.c_long] * 5]
            map_fixed = 0x10  # the mmap module lacks its name
            fixed = libc.mmap(address, nbytes, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | map_fixed, -1, 0)
            memory.give(block)
            del block
            memory.end()
            os._exit(ctypes.string_at(fixed, 1)[0])  # the child's own memory is still there
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    memory.give(block)
    memory.end()
    assert memory.pinned == 0


def test_what_plans_use_no_more_is_given_back() -> None:
    waited: list[int] = []
    memory = HostMemory(CPU, lambda: waited.append(memory.pinned))
    for _ in range(3):
        memory.forward_begins()
        step(memory, [8 * MIB] * 4)
    assert 32 * MIB <= memory.pinned <= 36 * MIB
    for _ in range(40):
        memory.forward_begins()
        step(memory, [8 * MIB])
    assert 8 * MIB <= memory.pinned <= 11 * MIB
    for _ in range(40):
        memory.forward_begins()
    assert memory.pinned == 0
    assert len(waited) == 2, "the host waits where memory is given back, and nowhere else"


def test_equal_forwards_after_shorter_ones_use_the_same_memory() -> None:
    memory = HostMemory(CPU)
    made = []
    for sizes in [[2 * MIB] * 64] * 3 + [[44 * MIB] * 16] * 40:
        memory.forward_begins()
        step(memory, sizes)
        made.append(memory.segments)
    assert made[4] == made[-1], "pinned anew"
    assert memory.pinned <= 1.1 * sum(sizes) + 2 * MIB


def test_the_end_gives_everything_back_once_nothing_is_out() -> None:
    memory = HostMemory(CPU)
    one, other = memory.take(MIB), memory.take(MIB)
    memory.end()
    memory.give(one)
    assert memory.pinned
    memory.give(other)
    assert memory.pinned == memory.out == 0
    step(memory, [MIB])
    assert memory.pinned, "it can be used again"


def test_an_end_while_the_memory_is_in_use_comes_after_that() -> None:
    memory = HostMemory(CPU, lambda: memory.end())
    step(memory, [8 * MIB] * 4)
    for _ in range(40):
        memory.forward_begins()
        if not memory.pinned:
            break
        step(memory, [8 * MIB])
    assert memory.pinned == 0, "the wait before some of it is given back ended it"


def test_more_than_the_host_has_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = HostMemory(CPU)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr(free_memory, "free_bytes", lambda: 40 * MIB)
    block = memory.take(9 * MIB)
    with pytest.raises(
        BudgetError,
        match=r"pinned 9.4 MB of .* 21.0 MB more, and may take 14.9 MB \(80% of what is free for each of its 2 ranks\); raise",
    ):
        memory.take(20 * MIB)
    assert memory.out == 9 * MIB
    memory.give(block)


def test_free_memory_goes_back_to_a_host_that_has_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    memory = HostMemory(CPU, lambda: waited.append(memory.pinned))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.setattr(free_memory, "free_bytes", lambda: 320 * MIB - memory.pinned)
    step(memory, [MIB] * 66)
    memory.forward_begins()
    step(memory, [32 * MIB] * 8)
    assert 256 * MIB <= memory.pinned <= 320 * MIB
    assert len(waited) == 1, "copies end before their memory goes"
    kept = [memory.take(31 * MIB) for _ in range(8)]
    assert len(memory.take(4 * MIB).pieces) > 1, "what is free between blocks is used"
    with pytest.raises(BudgetError, match="and needs"):
        memory.take(128 * MIB)
    assert len(kept) == 8


def test_a_driver_that_pins_nothing_is_the_same_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "pin", lambda memory, device: False)
    memory = HostMemory(torch.device("cuda", 0))
    with pytest.raises(BudgetError, match=r"needs 1\.0 MB more, which the system does not give; raise the budget"):
        memory.take(MIB)
    assert memory.pinned == 0


@pytest.mark.parametrize("where", ["pin", "append"])
def test_an_interrupt_while_the_driver_pins_leaves_nothing_pinned(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned, interrupts = [], {where}

    def interrupted(place: str) -> None:
        if place in interrupts:
            interrupts.remove(place)
            raise KeyboardInterrupt

    def pin(memory: torch.Tensor, device: torch.device) -> bool:
        pinned.append(memory.data_ptr())
        interrupted("pin")
        return True

    class Segments(list[host_memory.Segment]):
        def append(self, segment: host_memory.Segment) -> None:
            super().append(segment)
            interrupted("append")

    monkeypatch.setattr(host_memory, "pin", pin)
    monkeypatch.setattr(host_memory, "unpin", lambda memory, device: pinned.remove(memory.data_ptr()))
    memory = HostMemory(torch.device("cuda", 0))
    memory._segments = Segments()
    with pytest.raises(KeyboardInterrupt):
        memory.take(MIB)
    assert memory.pinned == len(pinned) == len(memory._segments) == 0
    memory.give(memory.take(MIB))
    memory.end()
    assert memory.pinned == len(pinned) == 0
