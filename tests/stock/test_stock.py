"""What passes under transformers' own switch passes under ours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from .families import FAMILIES
from .judge import STOCK, judge
from .mixins import load_mixin

_FOLDER = "TRANSFORMERS_TESTS"
#: The tests look at the outermost block with the switch, a stage; its layers, which have none, are what is recomputed.
_RECOMPUTED_INSIDE = frozenset({"SwinForImageClassification"})


@pytest.fixture(scope="module")
def mixin() -> Any:
    folder = os.environ.get(_FOLDER)
    if not folder:
        pytest.skip(f"{_FOLDER} names no `tests` folder of transformers' source distribution")
    pytest.importorskip("parameterized", reason="transformers' tests need the package parameterized")
    return load_mixin(Path(folder))


@pytest.mark.slow(minutes=1)
@pytest.mark.parametrize("model_class", FAMILIES)
def test_a_policy_passes_what_the_switch_passes(model_class: str, mixin: Any) -> None:
    verdicts = judge(model_class, mixin)
    stock = {verdict.test for verdict in verdicts if verdict.switch == STOCK and verdict.passed}
    failed = {v.test: f"{v.switch}: {v.test}: {v.reason}" for v in verdicts if v.test in stock and not v.passed}
    assert stock
    if model_class in _RECOMPUTED_INSIDE:
        failed = {test: text for test, text in failed.items() if not test.startswith("test_training")}
    assert not failed, "\n".join(failed.values())
