"""The simulated cards: every test here runs processes on them, and skips itself where they are not built."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from .simulated import rig

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def simulate() -> Callable[..., Any]:
    """``simulate(card, scenario, *arguments)`` is what the scenario returned on that card."""
    found = rig()
    if found.missing():
        pytest.skip(found.missing())

    def run(card: str, scenario: str, *arguments: str, count: int = 1, allocator: str = "") -> Any:
        command = ["-m", "tests.gpu_sim.run_scenario", scenario, *arguments]
        ended = found.run(card, command, count=count, allocator=allocator)
        assert ended.returncode == 0, f"{scenario} ended with {ended.returncode}:\n{ended.stderr[-4000:]}"
        return json.loads(ended.stdout.splitlines()[-1])

    return run
