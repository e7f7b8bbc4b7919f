"""The benchmark for real cards, on a simulated one: each of its parts comes to an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.benchmarks.gpu import PARTS

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("part", PARTS)
def test_a_part_answers(part: str, simulate: Callable[..., Any]) -> None:
    assert simulate("h100", "gpu_benchmark", "--only", part) == {"exit": 0}
