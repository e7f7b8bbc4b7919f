"""Plans leave to the device's allocator what it takes beyond what is alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hf_ckpt.planner.budget import NOTHING_SPARE, DeviceMemory, PeakBudget, limits_of
from hf_ckpt.planner.memory.fragmentation import UNKNOWN, Fragmentation, Look, Spare

from ..planner_models import build, conduct
from ..test_budget import PROBLEM

if TYPE_CHECKING:
    from collections.abc import Sequence

GIB = 1 << 30


def look(seen: Fragmentation, given: int, planned: int, over: int, left: int = 1 << 32) -> Look:
    """A step's end, in GiB."""
    return seen.look(given * GIB, planned * GIB, over * GIB, left * GIB)


def grown(taken: int, room: int) -> int:
    """What a plan for all of the room leaves, where one for nothing of it took so much."""
    return taken + (room - taken) // 5


def test_first_plans_leave_a_share_of_the_room_and_later_ones_what_was_seen():
    seen = Fragmentation()
    assert seen.spare == Spare(share=UNKNOWN)
    assert look(seen, 50, 40, -10) is Look.EMPTY  # the plan's first step checks what it rebuilds
    assert look(seen, 44, 40, -16) is Look.PLAN
    assert seen.spare == Spare(grown(int(1.1 * 4 * GIB), 20 * GIB))
    assert look(seen, 54, 52, -6) is Look.EMPTY
    assert look(seen, 59, 52, -1) is Look.NOTHING


def test_the_first_step_of_a_plan_fits_the_device_too():
    seen = Fragmentation()
    assert look(seen, 50, 40, -28, left=30) is Look.EMPTY  # 2 GiB of the device are not the budget's
    assert look(seen, 44, 40, -34, left=36) is Look.PLAN
    assert seen.spare == Spare(grown(int(1.1 * 10 * GIB) - 2 * GIB, 38 * GIB))


def test_first_steps_that_take_more_do_not_keep_later_ones_from_what_is_unused():
    seen = Fragmentation(lends=0.5)
    assert look(seen, 145, 119, 0, left=3) is Look.EMPTY
    assert look(seen, 135, 119, -10, left=13) is Look.PLAN
    first = seen.nbytes
    assert look(seen, 145, 119, 0, left=3) is Look.EMPTY  # it checks what it rebuilds anew
    assert look(seen, 135, 119, -10, left=13) is Look.PLAN
    assert seen.nbytes == (16 * GIB + first) // 2, "halfway to what steps take: the allocator can give its cache back"


def settled(nbytes: int) -> Fragmentation:
    seen = Fragmentation(nbytes)
    assert look(seen, 0, 40, -1) is Look.EMPTY
    return seen


def test_a_device_that_gives_more_than_the_budget_under_every_step_is_planned_for():
    seen = settled(GIB)
    assert look(seen, 62, 58, 2) is Look.PLAN
    assert seen.spare == Spare(3 * GIB + 62 * GIB // 200)


def test_what_ran_between_steps_is_given_back_and_changes_no_plan():
    seen = settled(GIB)
    assert [look(seen, 59, 58, -1) for _ in range(5)] == [Look.NOTHING] * 5
    assert look(seen, 70, 58, 10) is Look.EMPTY  # an evaluation
    assert look(seen, 59, 58, -1) is Look.NOTHING
    assert seen.spare == Spare(GIB)


def test_a_cache_that_still_grows_after_it_was_emptied_is_planned_for():
    seen = settled(GIB)
    assert look(seen, 59, 58, -1) is Look.NOTHING
    assert look(seen, 61, 58, 1) is Look.PLAN
    assert seen.spare == Spare(2 * GIB + 61 * GIB // 200)


def test_later_plans_are_judged_by_the_step_in_which_an_earlier_ones_cache_grew():
    seen = settled(8 * GIB)
    assert look(seen, 57, 50, -1) is Look.NOTHING
    assert look(seen, 60, 50, 2) is Look.PLAN
    enough = seen.nbytes
    assert look(seen, 55, 47, -3) is Look.EMPTY
    assert look(seen, 54, 47, -4) is Look.NOTHING, "the third step of the plan before took 3 more than its second one"
    assert look(seen, 57, 47, -1) is Look.NOTHING
    assert seen.nbytes == enough
    refused = settled(8 * GIB)
    assert look(refused, 57, 50, -1) is Look.NOTHING
    assert refused.refused(30 * GIB) is Look.PLAN
    assert look(refused, 55, 47, -3) is Look.EMPTY
    assert look(refused, 54, 47, -4) is Look.NOTHING


def test_a_step_may_take_a_part_of_what_the_budget_leaves_of_the_device_where_it_lends_it():
    strict, lending = settled(8 * GIB), Fragmentation(8 * GIB, lends=0.5)
    assert look(lending, 0, 40, -1) is Look.EMPTY
    assert look(strict, 61, 53, 1, left=1) is Look.PLAN
    assert look(lending, 61, 53, 1, left=1) is Look.NOTHING
    assert look(lending, 62, 53, 2, left=0) is Look.PLAN
    assert (lending.exceeds(GIB, GIB), lending.exceeds(GIB, 0)) == (False, True)


def test_an_allocator_that_never_fits_is_left_alone_after_some_tries():
    seen = settled(GIB)
    looks = [look(seen, 70, 50, 10) for _ in range(40)]
    assert looks[-10:] == [Look.NOTHING] * 10


def test_a_device_that_had_nothing_left_teaches_nothing_but_to_leave_more():
    seen = Fragmentation()
    assert seen.refused(20 * GIB) is Look.EMPTY
    assert seen.refused(20 * GIB) is Look.PLAN
    assert seen.spare == Spare(share=2 * UNKNOWN)
    known = settled(GIB)
    assert known.refused(60 * GIB) is Look.PLAN
    assert known.spare == Spare(4 * GIB)


def test_a_plan_stays_whose_first_step_alone_left_the_device_nothing():
    seen = Fragmentation(2 * GIB)
    assert seen.refused(60 * GIB) is Look.EMPTY
    assert look(seen, 57, 55, -3) is Look.NOTHING
    assert seen.spare == Spare(2 * GIB)
    unknown = Fragmentation()
    assert unknown.refused(60 * GIB) is Look.EMPTY
    assert look(unknown, 57, 55, -3) is Look.PLAN
    assert unknown.spare == Spare(grown(int(1.1 * 2 * GIB), 5 * GIB))


def test_later_plans_take_what_was_left_for_too_much_and_half_of_it_where_one_left_too_little():
    seen = Fragmentation(10 * GIB)
    assert look(seen, 53, 50, -7) is Look.EMPTY
    assert look(seen, 54, 50, -6) is Look.PLAN
    assert seen.spare == Spare(grown(int(1.1 * 4 * GIB), 10 * GIB))
    assert look(seen, 58, 54, -2) is Look.EMPTY
    assert look(seen, 56, 54, -4) is Look.PLAN
    too_little = grown(int(1.1 * 2 * GIB), 6 * GIB)
    assert seen.spare == Spare(too_little)
    assert look(seen, 60, 57, 0) is Look.EMPTY
    assert look(seen, 61, 57, 1) is Look.PLAN
    enough = too_little + GIB + 61 * GIB // 200
    assert seen.spare == Spare(enough)
    assert look(seen, 57, 54, -3) is Look.EMPTY
    assert look(seen, 55, 54, -5) is Look.PLAN
    assert seen.spare == Spare((too_little + enough) // 2)
    assert look(seen, 58, 55, -2) is Look.EMPTY
    assert look(seen, 57, 55, -1) is Look.NOTHING, "half of it was taken once"
    short = settled(2 * GIB)
    assert short.refused(60 * GIB) is Look.PLAN
    assert look(short, 57, 54, -3) is Look.EMPTY
    assert look(short, 58, 54, -1) is Look.NOTHING, "the device had nothing left when plans left what this looks like"
    small = Fragmentation(int(4.5 * GIB))
    assert look(small, 53, 50, -7) is Look.EMPTY
    assert look(small, 54, 50, -6) is Look.NOTHING, "too little for plans to be made anew"


def settles(seen: Fragmentation, took: Sequence[float], limit: int = 100) -> list[float]:
    """What plans leave, in GiB, where plan by plan the allocator takes so much; the last one stays.

    Every plan takes all that the limit leaves.
    """
    left = []
    for takes in took:
        assert seen.nbytes is not None
        left.append(round(seen.nbytes / GIB, 1))
        planned, limit_bytes = limit * GIB - seen.nbytes, limit * GIB
        given = planned + int(takes * GIB)
        assert seen.look(given, planned, given - limit_bytes, 20 * GIB) is Look.EMPTY
        latest = seen.look(given, planned, given - limit_bytes, 20 * GIB)
    assert latest is Look.NOTHING
    return left


def test_plans_leave_what_another_one_much_alike_took_where_little_is_unused_by_that():
    seen = Fragmentation(5 * GIB)
    seen._most = int(3.8 * GIB)  # by the first plan
    assert settles(seen, [1.2, 1.0]) == [5.0, 3.9], "not the 1.3 that the allocator may exceed by 2.5"


def test_a_plan_that_takes_less_than_it_may_is_not_made_anew():
    seen = settled(14 * GIB)
    assert look(seen, 42, 40, -58) is Look.NOTHING


def test_half_of_what_is_far_too_much_is_taken_although_some_plan_left_too_little():
    assert settles(Fragmentation(7 * GIB), [8.0, 5.0, 5.0]) == [7.0, 8.5, 6.8]


def test_plans_go_back_to_what_was_enough_where_less_was_too_little_and_stay_after_some_tries():
    assert settles(Fragmentation(7 * GIB), [8.0, 5.0, 8.3, 5.0, 5.0]) == [7.0, 8.5, 6.8, 8.5, 7.6]
    took = [8.0, 5.0, 8.3, 5.0, 8.3, 5.0, 8.3, 5.0]
    assert settles(Fragmentation(7 * GIB), took) == [7.0, 8.5, 6.8, 8.5, 7.6, 8.5, 8.1, 8.5]


def test_no_more_plans_are_made_where_none_has_less_alive_and_the_allocator_takes_no_less():
    seen, planned = settled(2 * GIB), 60
    assert look(seen, 63, planned, 2) is Look.PLAN
    assert look(seen, 63, planned, 2) is Look.EMPTY
    assert look(seen, 62, planned, 1) is Look.PLAN, "it takes less than before"
    assert look(seen, 62, planned, 1) is Look.EMPTY
    assert [look(seen, 62, planned, 1) for _ in range(9)] == [Look.NOTHING] * 9


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


class Refusing:
    """A card that has nothing left in every step until plans take no more than ``fitting`` bytes."""

    def __init__(self, total: int, fitting: int) -> None:
        self.total, self.fitting, self.refused, self.planner = total, fitting, 0, None

    def __call__(self, device: torch.device) -> DeviceMemory:
        plan = self.planner.current if self.planner is not None else None
        self.refused += plan is not None and plan.alive > self.fitting
        return DeviceMemory(self.total, 0, given=0, refused=self.refused)


def test_a_share_is_not_kept_where_the_card_had_nothing_left_under_it():
    roomy, least = share_on(1 << 40).alive, share_on(1).alive
    model, card = build(), Refusing(total=int(1.1 * roomy), fitting=(roomy + least) // 2)
    card.planner = planner = conduct(model, "0.5", memory=card)
    alive = []
    for _ in range(8):
        step(model)
        alive += [planner.current.alive] if planner.current is not None else []
    assert alive[0] > card.fitting >= alive[-1] >= least


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
    assert asked_in_a_step(Counted(given=1), "0.5", forwards=3) == 1
    assert asked_in_a_step(Counted(given=None), "64MiB", forwards=3) == 0


def test_a_budget_that_the_allocator_exceeds_whatever_is_planned_is_told_once(caplog):
    conducted = build()
    planner = conduct(conducted, "64MiB", memory=Counted(given=80 << 20))
    for _ in range(30):
        step(conducted)
    assert caplog.text.count("16.8 MB more of the device than the budget allows") == 1
    assert planner.exceeded
