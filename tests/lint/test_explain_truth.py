"""What `explain` says of a script is what a run of it does: which checkpoints are made, where, and what raises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from explained.scripts import SCRIPTS
from hf_ckpt.lint.explain.run import explain

if TYPE_CHECKING:
    from hf_ckpt.lint.explain.state import Explanation

    from tests.forked import Forked

_RECORD = Path(__file__).parent / "explained" / "record.py"


@pytest.fixture(scope="module")
def recorded(forked: Forked, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each script does when it runs."""
    done = forked.run(_RECORD, folder=tmp_path_factory.mktemp("scripts"), stdin=json.dumps(SCRIPTS))
    assert done.status == 0, done.stderr
    found = map(json.loads, done.stdout.splitlines())
    return {run["name"]: run for run in found}


def said_of(name: str) -> Explanation:
    return explain(SCRIPTS[name], "script.py", {"transformers": ">=5.23", "torch": ">=2.13"})


def own_sites(explanation: Explanation) -> dict[tuple[int, bool], bool]:
    """The checkpoints that are said to be the script's own, with whether each surely runs."""
    found = {}
    for step in explanation.steps:
        when, _, effect = step.effect.rpartition("checkpoints a region of its own, ")
        if effect in ("reentrant", "non-reentrant"):
            found[step.where.line, effect == "reentrant"] = not when
    return found


def library_variants(explanation: Explanation) -> set[bool | None]:
    """The variants in which libraries are said to checkpoint."""
    on = {verdict.state.reentrant for verdict in explanation.verdicts if verdict.state.on and not verdict.caveat}
    wrapped = [step.effect for step in explanation.steps if step.effect.startswith("wraps a module, ")]
    return on | {effect.endswith(", reentrant") for effect in wrapped}


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_explanation_is_what_the_run_does(name, recorded):
    run, explanation = recorded[name], said_of(name)
    raising = {step.where.line for step in explanation.steps if step.effect.startswith("raises")}
    assert raising == ({run["raised"]} if run["raised"] else set())
    if raising:
        return
    said, made = own_sites(explanation), {(line, reentrant) for line, reentrant in run["own"]}
    assert made <= said.keys()
    assert {site for site, surely in said.items() if surely} <= made
    assert library_variants(explanation) == {reentrant for _, reentrant in run["library"]}
    assert all(verdict.state.on is not None for verdict in explanation.verdicts)
