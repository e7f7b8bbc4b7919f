"""Small scripts that showed where the linter was wrong: right code stays silent, wrong code is found.

The scripts are not part of the repository. `$CKPT_LINT_CASES` names the folder that holds them, by default
`shared/research/lint-cases` beside it: a folder a case below `false-positives/` and `misses/`.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest
from hf_ckpt.lint import check_paths

_DEFAULT = Path(__file__).parents[3] / "shared" / "research" / "lint-cases"
CASES = Path(os.environ.get("CKPT_LINT_CASES", _DEFAULT))

#: The wrong scripts that nothing is said about, and why nobody could know, or what stands against saying it.
SILENT = {
    "batchnorm__mm_registry": "a BatchNorm by a default of the signature only, for which there is a note",
    "branch-mismatch__kwargs_dict_dropped": "only a caller that gives the argument makes the two branches differ",
    "configs__ta_yaml_kwargs_no_switch": "which class reads the file is open, and trl's is on by default",
    "counter_wraps_one_layer": "how many layers are meant to be wrapped is the author's choice",
    "offload__plugin_attr": "the environment of the launcher may switch checkpointing on",
    "renames__removed_api": "an import that fails says so itself, and nothing is checkpointed wrongly",
    "strategy_callback_rng": "who calls the function that the strategy gets, and with which model, is the library's",
}

pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the cases are not here ($CKPT_LINT_CASES)")


def cases(kind: str) -> list[str]:
    return sorted(path.name for path in (CASES / kind).iterdir() if path.is_dir()) if CASES.is_dir() else []


@cache
def codes(kind: str, name: str) -> frozenset[str]:
    return frozenset(finding.code for finding in check_paths([CASES / kind / name]))


@pytest.mark.parametrize("name", cases("false-positives"))
def test_right_code_is_silent(name):
    assert codes("false-positives", name) == frozenset()


@pytest.mark.parametrize("name", [name for name in cases("misses") if name not in SILENT])
def test_wrong_code_is_found(name):
    assert codes("misses", name)


def test_what_is_silent_is_known_by_name():
    assert SILENT.keys() <= set(cases("misses"))
    assert [name for name in SILENT if codes("misses", name)] == []
