"""What passes under transformers' own switch passes under ours."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from .families import FAMILIES
from .judge import STOCK, SUBLAYERS, Verdict, judge
from .mixins import load_mixin

_FOLDER = "TRANSFORMERS_TESTS"


@pytest.fixture(scope="module")
def mixin(request: pytest.FixtureRequest) -> Any:
    folder = os.environ.get(_FOLDER)
    if not folder:
        pytest.skip(f"{_FOLDER} names no `tests` folder of transformers' source distribution")
    pytest.importorskip("parameterized", reason="transformers' tests need the package parameterized")
    for path in Path(folder).glob("test_*.py"):
        for marker in re.findall(r"\bmark\.(\w+)", path.read_text()):
            request.config.addinivalue_line("markers", f"{marker}: of transformers' tests")
    return load_mixin(Path(folder))


@pytest.mark.slow(minutes=1)
@pytest.mark.parametrize("model_class", FAMILIES)
def test_a_policy_passes_what_the_switch_passes(model_class: str, mixin: Any) -> None:
    verdicts = judge(model_class, mixin)
    stock = {verdict.test for verdict in verdicts if verdict.switch == STOCK and verdict.passed}
    failed = [v for v in verdicts if v.test in stock and not v.passed and not _is_meant_otherwise(model_class, v)]
    assert stock
    assert not failed, "\n".join(f"{v.switch}: {v.test}: {v.reason}" for v in failed)


def _is_meant_otherwise(model_class: str, verdict: Verdict) -> bool:
    match model_class, verdict.switch:
        case "SwinForImageClassification", _:  # it looks at a stage with the switch; layers in it are recomputed
            return verdict.test.startswith("test_training")
        case "Wav2Vec2ForCTC", switch:  # convolutions have none of the sublayers: kept, and their flags say so
            return switch == SUBLAYERS and verdict.test.endswith("enable_disable")
    return False
