"""`examples/mistakes/`: ckpt-lint finds in every script what is planted there, and every script goes wrong as it says.

The scripts run in forks of one process that has the libraries loaded (`tests/forked`).
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.catalogue.rules import all_rules
from hf_ckpt.lint.rules import load_rules

FOLDER = Path(__file__).parents[2] / "examples" / "mistakes"
SCRIPTS = sorted(FOLDER.glob("ckpt*.py"))
#: What stands in a script that takes more than 8 seconds.
SLOW = "# slow"
#: What stands before the library that a script needs beside those of the development dependencies.
NEEDS = "# needs "
RULES = {rule.code: rule for rule in load_rules()}
_MARK = re.compile(r"#\s*mistake:\s*(CKPT\d{3}(?:,\s*CKPT\d{3})*)\s*$")


def planted(text: str) -> list[tuple[int, str]]:
    """(line, code) of every mark in ``text``."""
    return [
        (number, code)
        for number, line in enumerate(text.splitlines(), 1)
        if (match := _MARK.search(line))
        for code in sorted(re.split(r",\s*", match[1]))
    ]


def own_code(script: Path) -> str:
    return script.name[:7].upper()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_linter_finds_what_is_planted_and_nothing_else(script):
    text = script.read_text()
    marks = planted(text)
    assert own_code(script) in {code for _, code in marks}
    # Rules that are off by default (migrations, style) speak in their own script only.
    on = {code for code, rule in RULES.items() if rule.default} | {own_code(script)}
    found = check_source(text, str(script), select=on.__contains__)
    assert sorted((finding.span.line, finding.code) for finding in found) == marks


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script_is_named_after_its_rule(script):
    rule = RULES.get(own_code(script))
    if rule is not None:
        assert script.stem == f"{rule.code.lower()}_{rule.name.replace('-', '_')}"


def test_every_rule_about_python_has_a_script():
    """CKPT216 is about a file of settings that another package's recipe reads: no script of ours can run it."""
    about_python = {rule.code for rule in all_rules() if "```python" in rule.page.partition("## Good")[0]}
    assert RULES.keys() - about_python == {"CKPT216"}
    assert RULES.keys() & about_python <= {own_code(script) for script in SCRIPTS}


def _running(script: Path):
    lines = script.read_text().splitlines()
    marks = [pytest.mark.slow] if SLOW in lines else []
    needed = [line.removeprefix(NEEDS) for line in lines if line.startswith(NEEDS)]
    marks += [pytest.mark.skipif(not find_spec(name), reason=f"needs {name}") for name in needed]
    return pytest.param(script, id=script.stem, marks=marks)


@pytest.mark.parametrize("script", [_running(script) for script in SCRIPTS])
def test_script_goes_wrong_as_it_says(script, forked, tmp_path):
    done = forked.run(script, folder=tmp_path)
    assert done.status == 0, done.stderr[-3000:]
    confirmed = [line for line in done.stdout.splitlines() if line.startswith("confirmed: ")]
    assert len(confirmed) == 1, done.stdout
