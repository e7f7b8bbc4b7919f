"""A correctness linter proves what it says: every `## Evidence` block runs under the installed libraries."""

from __future__ import annotations

import pytest
from rule_pages import Example, examples

pytest.importorskip("torch")
EVIDENCE = examples("Evidence")


def _needs_processes(example: Example) -> bool:
    return "__main__" in example.code or "spawn" in example.code


def _parameter(example: Example):
    marks = [pytest.mark.slow] if "# slow" in example.code else []
    return pytest.param(example, id=example.id, marks=marks)


@pytest.mark.parametrize("example", [_parameter(example) for example in EVIDENCE if not _needs_processes(example)])
def test_evidence_holds(example, monkeypatch, tmp_path):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    exec(compile(example.code, f"<{example.id}>", "exec"), {"__name__": "evidence"})


@pytest.mark.parametrize("example", [_parameter(example) for example in EVIDENCE if _needs_processes(example)])
def test_evidence_holds_in_its_own_process(example, tmp_path, forked):
    script = tmp_path / "evidence.py"
    script.write_text(example.code)
    done = forked.run(script, folder=tmp_path)
    assert done.status == 0, done.stderr[-3000:]
