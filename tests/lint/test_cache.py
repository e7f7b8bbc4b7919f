"""A cached run reports what a fresh one would, whatever changed in between."""

import json
import os
import random

import pytest
from hf_ckpt.lint.analysis import check_files
from hf_ckpt.lint.analysis.cache import Cache
from hf_ckpt.lint.analysis.job import Job
from hf_ckpt.lint.analysis.result import FileResult
from hf_ckpt.lint.project.library_versions import project_ranges
from hf_ckpt.lint.project.settings import Settings

TEXTS = (
    "x = 1\n",
    "from torch.utils.checkpoint import checkpoint\ny = checkpoint(f, x)\n",
    "import torch.utils.checkpoint as c\n\ny = c.checkpoint(f, x)  # noqa: CKPT101\n",
    "from torch.utils.checkpoint import checkpoint\ny = checkpoint(f, x, use_reentrant=False)  # noqa: CKPT101\n",
    "from torch.utils.checkpoint import checkpoint\ndef f(:\n",
    "from torch.utils.checkpoint import checkpoint\nfrom helper import KW\ny = checkpoint(f, x, **KW)\n",
)
HELPERS = tuple(
    f"# for checkpoint\nKW = {value}\n"
    for value in ('{"use_reentrant": False}', '{"preserve_rng_state": True}', "unknown()")
)


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check_files, "CACHE_FROM", 0)
    for number in range(10):
        (tmp_path / f"{number}.py").write_text(TEXTS[number % len(TEXTS)])
    return tmp_path


def check(project, folder, **settings):
    project_ranges.cache_clear()
    jobs = [
        Job(name, Settings(root=str(project), **settings))
        for name in sorted(os.listdir(project))
        if name.endswith(".py")
    ]
    return check_files.check_paths(jobs, folder)


def test_random_changes_never_show_an_old_result(project):
    choose = random.Random(0)
    for _ in range(30):
        change = choose.randrange(5)
        if change == 0:
            (project / f"{choose.randrange(12)}.py").write_text(choose.choice(TEXTS))
        elif change == 1:
            (project / "requirements.txt").write_text(choose.choice(["torch==2.3\n", "torch==2.13\n", ""]))
        elif change == 2:
            (project / "helper.py").write_text(choose.choice(HELPERS))
        elif change == 3:
            (project / "helper.py").unlink(missing_ok=True)
        ignore = choose.choice([(), ("CKPT101",), ("CKPT903",)])
        assert check(project, "cache", ignore=ignore) == check(project, None, ignore=ignore)


def test_a_change_in_an_imported_file_counts(project):
    (project / "main.py").write_text(TEXTS[-1])
    found = []
    for text in HELPERS[:2]:
        (project / "helper.py").write_text(text)
        results = {result.filename: result for result in check(project, "cache")}
        found.append([finding.code for finding in results["main.py"].findings])
    assert found == [[], ["CKPT101"]]


def test_a_warm_run_analyses_nothing(project, monkeypatch):
    cold = check(project, "cache")
    assert any(result.findings for result in cold)
    monkeypatch.setattr(check_files, "gate", lambda *_: pytest.fail("looked at a file again"))
    assert check(project, "cache") == cold


def test_the_same_content_elsewhere_is_another_file(project):
    first = check(project, "cache")
    os.rename("1.py", "moved.py")
    moved = {result.filename: result for result in check(project, "cache")}
    assert moved["moved.py"].findings[0].filename == "moved.py"
    assert len(moved) == len(first)


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"format": 1}', "\0", "[" * 100_000])
def test_a_damaged_cache_is_no_cache(project, damage):
    cold = check(project, "cache")
    (project / "cache" / "results.json").write_text(damage)
    assert check(project, "cache") == cold


def test_damaged_entries_are_checked_again(project):
    cold = check(project, "cache")
    path = project / "cache" / "results.json"
    document = json.loads(path.read_text())
    document["results"] = {key: [["nonsense"]] for key in document["results"]}
    path.write_text(json.dumps(document))
    assert check(project, "cache") == cold


def test_another_version_of_the_linter_starts_anew(project):
    check(project, "cache")
    path = project / "cache" / "results.json"
    path.write_text(path.read_text().replace('"tool": "', '"tool": "0'))
    assert Cache("cache").get(next(iter(json.loads(path.read_text())["results"])), "1.py") is None


def test_a_failed_analysis_is_tried_again(project, monkeypatch):
    from hf_ckpt.lint.analysis import check_text as core

    def fail(*_, **__):
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(core, "check_source", fail)
        assert any(result.failure for result in check(project, "cache"))
    assert check(project, "cache") == check(project, None)


def test_failures_are_not_stored_and_no_folder_is_no_problem(project):
    cache = Cache("cache")
    cache.put("key", FileResult("1.py", failure="x"))
    assert cache.get("key", "1.py") is None
    (project / "file").write_text("")
    assert check(project, "file/below") == check(project, None)


def test_the_folder_ignores_itself_in_git(project):
    check(project, "cache")
    assert (project / "cache" / ".gitignore").read_text() == "*\n"
