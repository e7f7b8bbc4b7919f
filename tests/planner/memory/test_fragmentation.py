"""Plans leave to the device's allocator what it takes beyond what is alive."""

from __future__ import annotations

import torch

from hf_ckpt.planner.budget import NOTHING_SPARE, DeviceMemory, PeakBudget, limits_of
from hf_ckpt.planner.memory.fragmentation import UNKNOWN, Fragmentation, Look, Spare

from ..planner_models import build, conduct
from ..test_budget import PROBLEM

GIB = 1 << 30


def test_first_plans_leave_a_share_of_the_room_and_later_ones_what_was_seen():
    seen = Fragmentation()
    assert seen.spare == Spare(share=UNKNOWN)
    assert seen.look(50 * GIB, 40 * GIB, -10 * GIB) is Look.EMPTY  # the plan's first step checks what it rebuilds
    assert seen.look(44 * GIB, 40 * GIB, -16 * GIB) is Look.PLAN
    assert seen.spare == Spare(int(1.1 * 4 * GIB))
    assert seen.look(56 * GIB, 54 * GIB, -4 * GIB) is Look.EMPTY
    assert seen.look(58 * GIB, 54 * GIB, -2 * GIB) is Look.NOTHING


def settled(nbytes: int) -> Fragmentation:
    seen = Fragmentation(nbytes)
    assert seen.look(0, 40 * GIB, -GIB) is Look.EMPTY
    return seen


def test_a_device_that_gives_more_than_the_budget_under_every_step_is_planned_for():
    seen = settled(GIB)
    assert seen.look(62 * GIB, 58 * GIB, 2 * GIB) is Look.PLAN
    assert seen.spare == Spare(3 * GIB + 62 * GIB // 200)


def test_what_ran_between_steps_is_given_back_and_changes_no_plan():
    seen = settled(GIB)
    assert seen.look(59 * GIB, 58 * GIB, -GIB) is Look.NOTHING
    assert seen.look(70 * GIB, 58 * GIB, 10 * GIB) is Look.EMPTY  # an evaluation
    assert seen.look(59 * GIB, 58 * GIB, -GIB) is Look.NOTHING
    assert seen.spare == Spare(GIB)


def test_an_allocator_that_never_fits_is_left_alone_after_some_tries():
    seen = settled(GIB)
    looks = [seen.look(70 * GIB, 50 * GIB, 10 * GIB) for _ in range(40)]
    assert looks[-10:] == [Look.NOTHING] * 10


def test_a_device_that_had_nothing_left_teaches_nothing_but_to_leave_more():
    seen = Fragmentation()
    assert seen.refused(20 * GIB) is Look.PLAN
    assert seen.spare == Spare(share=2 * UNKNOWN)
    known = settled(GIB)
    assert known.refused(60 * GIB) is Look.PLAN
    assert known.spare == Spare(4 * GIB)


def test_only_where_an_allocator_caches_something_is_left_to_it():
    process, card = DeviceMemory(None, 20 * GIB), DeviceMemory(80 * GIB, 20 * GIB, given=30 * GIB)
    spare = Spare(2 * GIB, share=0.1)
    assert limits_of(PeakBudget(60 * GIB), PROBLEM, process, 0, spare).peak == 40 * GIB
    limits = limits_of(PeakBudget(60 * GIB), PROBLEM, card, 0, spare)
    assert (limits.peak, limits.beside) == (34 * GIB, 26 * GIB)
    assert limits_of(PeakBudget(60 * GIB), PROBLEM, card, 0, NOTHING_SPARE).peak == 40 * GIB


class Allocator:
    """Says that it holds ``overhead`` bytes beyond the peak of the plan in force."""

    def __init__(self, overhead: int) -> None:
        self.overhead = overhead
        self.planner = None

    def __call__(self, device: torch.device) -> DeviceMemory:
        plan = self.planner.current if self.planner is not None else None
        return DeviceMemory(None, 0, given=0 if plan is None else plan.alive + self.overhead)


def step(model):
    ids = torch.zeros(4, 32, dtype=torch.long)
    model(input_ids=ids, labels=ids).loss.backward()


def peaks(budget, overhead, steps=9):
    """The peak in bytes that each step's plan has on the device; the first step has none."""
    model, allocator, found = build(), Allocator(overhead), []
    allocator.planner = planner = conduct(model, budget, memory=allocator)
    for _ in range(steps):
        step(model)
        found += [planner.current.alive] if planner.current is not None else []
    return found


def test_a_plan_and_the_allocators_overhead_stay_within_the_budget():
    model_bytes = sum(p.nbytes for p in build().parameters())
    roomy = peaks(f"{model_bytes + (4 << 20)}B", 0)[-1]
    budget = (model_bytes + roomy) // 2  # not all can be kept
    without, small = peaks(f"{budget}B", 0), peaks(f"{budget}B", budget // 20)
    assert without[0] < without[-1] <= budget, "the first plan is careful, the last one takes all"
    assert small[-1] + budget // 20 <= budget
    assert small[-1] > 0.8 * budget


def test_a_budget_that_only_the_smallest_plan_meets_is_no_error():
    tight = peaks("64MiB", 0)[-1]
    least = peaks(f"{tight}B", tight // 3)
    assert least[-1] <= tight


def card_of(total):
    return lambda device: DeviceMemory(total, 0, given=0)


def share_on(total):
    """The plan for half of what layers save on a card of this size, after a few steps."""
    model = build()
    planner = conduct(model, "0.5", memory=card_of(total))
    for _ in range(3):
        step(model)
    return planner.current


def test_a_share_that_the_card_has_no_room_for_is_not_kept(caplog):
    roomy = share_on(1 << 40)
    least = share_on(1)
    assert "the device may run out of memory: the smallest plan adds" in caplog.text
    caplog.clear()
    total = (roomy.alive + least.alive) // 2
    fitting = share_on(total)
    assert least.alive < fitting.alive < total < roomy.alive
    assert "run out of memory" not in caplog.text


class Counted:
    """Memory of a process or of a card; counts how often it is asked."""

    def __init__(self, given: int | None) -> None:
        self.given = given
        self.asked = 0

    def __call__(self, device: torch.device) -> DeviceMemory:
        self.asked += 1
        return DeviceMemory(None, 0, given=self.given)


def asked_in_a_step(memory: Counted, budget: str, forwards: int) -> int:
    model = build()
    conduct(model, budget, memory=memory)
    ids = torch.zeros(4, 32, dtype=torch.long)

    def several() -> None:
        sum(model(input_ids=ids, labels=ids).loss for _ in range(forwards)).backward()

    for _ in range(8):
        several()
    before = memory.asked
    several()
    return memory.asked - before


def test_the_device_is_looked_at_once_a_step_where_that_says_something():
    assert asked_in_a_step(Counted(given=1), "64MiB", forwards=3) == 1
    assert asked_in_a_step(Counted(given=1), "0.5", forwards=3) == 0
    assert asked_in_a_step(Counted(given=None), "64MiB", forwards=3) == 0


def test_a_budget_that_the_allocator_exceeds_whatever_is_planned_is_told_once(caplog):
    conducted = build()
    conduct(conducted, "64MiB", memory=Counted(given=80 << 20))
    for _ in range(30):
        step(conducted)
    assert caplog.text.count("16.8 MB more of the device than the budget allows") == 1
