"""Which plan a batch gets: safe for its size, its own once it is known."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from hf_ckpt.assignment import Assignment
from hf_ckpt.planner.batches.per_batch import BUCKETS_PER_DOUBLING, TIGHTEN, BatchSize, Choice, MadePlan, PlanBook
from hf_ckpt.planner.costs.assess import Assessment
from hf_ckpt.planner.costs.problem import HeadOption
from hf_ckpt.planner.solver.solve import Solution

ROWS, LENGTHS = st.integers(1, 16), st.integers(1, 4096)
TEXTS = st.builds(lambda rows, length: BatchSize(rows * length, length), ROWS, LENGTHS)
PAIRS = st.builds(
    lambda rows, a, b, c: BatchSize(rows * a, a, rows * b, b, rows * c, c), ROWS, LENGTHS, LENGTHS, LENGTHS
)
SIZES = TEXTS | PAIRS


def plan(kept=(1,)):
    layers = (Assignment.where(keep=kept),)
    return MadePlan(Solution(layers, HeadOption(1, 0), Assessment(0, 0, 0.0)), ())


@given(st.lists(SIZES, max_size=30), SIZES)
def test_a_plan_is_never_used_for_more_than_it_was_made_for(seen, size):
    book, made = PlanBook(), {}
    for known in seen:
        choice = book.choose(known)
        if not choice.settled:
            made[known] = plan()
            book.add(known, made[known])
    choice = book.choose(size)
    if choice.plan is not None:
        source = next(known for known, value in made.items() if value is choice.plan)
        assert size.fits_in(source)
        assert choice.settled == (source.bucket == size.bucket)


@given(st.lists(SIZES, min_size=1, max_size=300))
def test_planning_ends(seen):
    book = PlanBook()
    for _ in range(2):
        lessons = 0
        for size in seen:
            if not book.choose(size).settled:
                lessons += 1
                book.add(size, plan())
    assert lessons == 0


def test_a_longer_batch_of_the_bucket_replaces_its_plan():
    book = PlanBook()
    short, longer = BatchSize(1000, 500), BatchSize(1010, 505)
    assert short.bucket == longer.bucket
    book.add(short, plan())
    assert book.choose(longer) == Choice(None, settled=False)
    book.add(longer, plan())
    assert list(book.plans) == [longer]
    assert book.choose(short).settled


def test_a_much_shorter_batch_gets_its_own():
    book = PlanBook()
    book.add(BatchSize(4096, 1024), plan())
    choice = book.choose(BatchSize(1024, 1024))
    assert choice.plan is not None
    assert not choice.settled


def test_buckets():
    assert BatchSize(2048, 1).bucket[0] - BatchSize(1024, 1).bucket[0] == BUCKETS_PER_DOUBLING


def test_a_longer_target_or_more_pixels_need_a_plan_of_their_own():
    book = PlanBook()
    book.add(BatchSize(64, 32, 16, 8, 1000, 500), plan())
    assert book.choose(BatchSize(64, 32, 14, 7, 1000, 500)).settled
    assert book.choose(BatchSize(64, 32, 18, 9, 1000, 500)) == Choice(None, settled=False)
    assert book.choose(BatchSize(64, 32, 16, 8, 1010, 505)) == Choice(None, settled=False)
    fewer_pixels = book.choose(BatchSize(64, 32, 16, 8, 100, 50))
    assert fewer_pixels.plan is not None
    assert not fewer_pixels.settled


def test_tightening_ends_when_nothing_is_kept():
    book = PlanBook()
    book.add(BatchSize(8, 8), plan())
    assert book.tighten(plan())
    assert book.plans == {}
    assert book.factor == TIGHTEN
    assert not book.tighten(plan(kept=()))
    assert not book.tighten(replace(plan(), smallest=True)), "the same plan would run out of memory for ever"
    assert not book.tighten(None)
