import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_ckpt.errors import BudgetError
from hf_ckpt.planner.budget import (
    MARGIN,
    AutoBudget,
    DeviceMemory,
    PeakBudget,
    ShareBudget,
    held_without_checkpointing,
    limits_of,
    parse_budget,
)
from hf_ckpt.planner.costs.problem import Limits, Problem
from hf_ckpt.planner.memory.fragmentation import FIRST_SPARE
from hf_ckpt.planner.solver.refine import solve_refined

from .planner_ledgers import llama_kind


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("72GiB", PeakBudget(72 << 30)),
        ("72Gi", PeakBudget(72 << 30)),
        ("512 MiB", PeakBudget(512 << 20)),
        ("1.5gib", PeakBudget(3 << 29)),
        ("80GB", PeakBudget(80 * 10**9)),
        ("123B", PeakBudget(123)),
        ("0.5", ShareBudget(0.5)),
        (0.5, ShareBudget(0.5)),
        (1, ShareBudget(1.0)),
        ("1.0", ShareBudget(1.0)),
        (".25", ShareBudget(0.25)),
        ("50%", ShareBudget(0.5)),
        ("auto", AutoBudget()),
        (" Auto ", AutoBudget()),
    ],
)
def test_spellings(text, budget):
    assert parse_budget(text) == budget


@pytest.mark.parametrize("text", ["72", "1.2"])
def test_a_size_without_a_unit_is_told_which(text: str) -> None:
    with pytest.raises(BudgetError, match=f"is a memory budget without a unit: write '{text}GiB', or a share up to 1"):
        parse_budget(text)


@pytest.mark.parametrize("text", ["", "-1GiB", "0", "0.0", "120%", "0GiB", "GiB", "nan", "1e3", "all"])
def test_anything_else_is_one_sentence(text):
    with pytest.raises(BudgetError, match="is not a memory budget: write a size"):
        parse_budget(text)


@given(
    st.integers(1, 1 << 50).map(PeakBudget) | st.floats(1e-6, 1).map(lambda s: ShareBudget(float(f"{s:.4f}") or 1.0))
)
def test_a_budget_reads_what_it_writes(budget):
    assert parse_budget(str(budget)) == budget


PROBLEM = Problem((llama_kind(),), (0, 0))


def test_limits():
    memory = DeviceMemory(total=100 << 30, used=20 << 30)
    assert limits_of(PeakBudget(72 << 30), PROBLEM, memory, to_come=2 << 30) == Limits(peak=50 << 30, beside=22 << 30)
    auto = limits_of(AutoBudget(), PROBLEM, memory, to_come=0)
    assert auto.peak == int((100 << 30) * (1 - MARGIN)) - (20 << 30)
    assert limits_of(ShareBudget(0.5), PROBLEM, memory, 0) == Limits(held=held_without_checkpointing(PROBLEM) // 2)


def test_a_share_leaves_the_device_what_auto_leaves_it():
    """Where an allocator caches: it takes more than is alive."""
    memory = DeviceMemory(total=100 << 30, used=20 << 30, given=21 << 30)
    auto = limits_of(AutoBudget(), PROBLEM, memory, 2 << 30, FIRST_SPARE)
    share = limits_of(ShareBudget(0.5), PROBLEM, memory, 2 << 30, FIRST_SPARE)
    assert share == Limits(held=held_without_checkpointing(PROBLEM) // 2, room=auto.peak)


@pytest.mark.parametrize("used", [0, 9 << 30, 20 << 30])
def test_the_budget_an_error_names_is_the_least_that_fits(used: int):
    """Also where the model alone takes more than the budget."""

    def attempt(budget: str) -> None:
        solve_refined(PROBLEM, limits_of(parse_budget(budget), PROBLEM, DeviceMemory(None, used), to_come=0))

    with pytest.raises(BudgetError, match=r"^no plan fits the budget: [^;]* are taken by") as caught:
        attempt("100KiB" if used == 0 else "9GiB")
    named = re.search(r"budget=(\d+)(KiB|MiB)", str(caught.value))
    attempt(named[0].removeprefix("budget="))
    with pytest.raises(BudgetError, match="no plan fits"):
        attempt(f"{int(named[1]) - 1}{named[2]}")


def test_the_share_an_error_names_fits():
    with pytest.raises(BudgetError, match="no plan fits") as caught:
        solve_refined(PROBLEM, limits_of(ShareBudget(0.001), PROBLEM, DeviceMemory(None, 0), to_come=0))
    share = re.search(r"budget=(0\.\d+)$", str(caught.value))[1]
    solve_refined(PROBLEM, limits_of(parse_budget(share), PROBLEM, DeviceMemory(None, 0), to_come=0))


def test_auto_without_a_limit():
    with pytest.raises(BudgetError, match="knows no memory limit"):
        limits_of(AutoBudget(), PROBLEM, DeviceMemory(None, 0), to_come=0)
