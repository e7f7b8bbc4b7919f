"""Code behind `if errors: raise` runs, when a program adds to its list of errors under conditions only."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

RUNS = {
    "in the same function": """
        def run(module, x, settings):
            errors = []
            if settings.depth < 1:
                errors.append("depth")
            if errors:
                raise ValueError(errors)
            return checkpoint(module, x)
    """,
    "in a function of their own": """
        def problems(settings):
            found = []
            if settings.depth < 1:
                found.append("depth")
                return tuple(found)
            if settings.width < 1:
                found.append("width")
            return tuple(found)

        def run(module, x, settings):
            errors = problems(settings)
            if errors:
                raise ValueError(errors)
            return checkpoint(module, x)
    """,
    "several at once": """
        def run(module, x, settings):
            errors = []
            if settings.depth < 1:
                errors.extend(["depth", "width"])
            if not errors:
                return checkpoint(module, x)
            raise ValueError(errors)
    """,
    "from a loop": """
        def run(module, x, settings):
            errors = []
            for name in settings:
                if not name:
                    errors += [name]
            if errors:
                raise ValueError(errors)
            return checkpoint(module, x)
    """,
    "names in a set": """
        def run(module, x, settings):
            errors = set()
            if settings.depth < 1:
                errors.add("depth")
            if errors:
                raise ValueError(errors)
            return checkpoint(module, x)
    """,
}
NEVER_RUNS = {
    "always one": """
        def run(module, x, settings):
            errors = []
            if settings.depth < 1:
                errors.append("depth")
            errors.append("not supported")
            if errors:
                raise ValueError(errors)
            return checkpoint(module, x)
    """,
    "one from the start": """
        def run(module, x, settings):
            errors = ["not supported"]
            if settings.depth < 1:
                errors.append("depth")
            if errors:
                raise ValueError(errors)
            return checkpoint(module, x)
    """,
}


def codes(program: str) -> list[str]:
    text = "from torch.utils.checkpoint import checkpoint\n" + textwrap.dedent(program)
    return [finding.code for finding in check_source(text)]


@pytest.mark.parametrize("program", RUNS.values(), ids=RUNS)
def test_what_follows_runs(program: str):
    assert codes(program) == ["CKPT101"]


@pytest.mark.parametrize("program", NEVER_RUNS.values(), ids=NEVER_RUNS)
def test_what_follows_never_runs(program: str):
    assert codes(program) == []
