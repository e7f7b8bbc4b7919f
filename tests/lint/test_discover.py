import os

import pytest
from hf_ckpt.lint.project.discover import discover, excluded
from hf_ckpt.lint.project.settings import Settings


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for name in ("a.py", "b.ipynb", "c.txt", "pkg/d.py", "vendored/e.py", ".venv/f.py", "pkg/build/g.py", "script"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings_with(**changes):
    return lambda directory: Settings(root=os.getcwd())._replace(**changes)


def test_folders_are_searched_for_python_and_notebooks(tree):
    assert discover(["."], settings_with()).files == ("a.py", "b.ipynb", "pkg/d.py", "vendored/e.py")


def test_a_named_file_is_read_whatever_it_is_called(tree):
    assert discover(["script", ".venv/f.py"], settings_with()).files == ("script", ".venv/f.py")


def test_a_file_named_twice_is_read_once(tree):
    assert discover(["a.py", "./a.py", "."], settings_with()).files[0] == "a.py"
    assert len(discover(["a.py", "./a.py", "."], settings_with()).files) == 4


def test_excludes_hold_for_named_files_only_by_force(tree):
    exclude = ("vendored",)
    assert discover(["vendored/e.py"], settings_with(exclude=exclude)).files == ("vendored/e.py",)
    forced = settings_with(exclude=exclude, force_exclude=True)
    assert discover(["vendored/e.py", ".venv/f.py", "a.py"], forced).files == ("a.py",)
    assert "vendored/e.py" not in discover(["."], settings_with(exclude=exclude)).files


def test_missing_paths_are_named(tree):
    assert discover(["nope.py", "a.py"], settings_with()) == (("a.py",), ("nope.py",))


def test_links_in_a_circle_end(tree):
    (tree / "pkg" / "loop").symlink_to(tree)
    assert len(discover(["."], settings_with()).files) == 4


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("a/b.py", "b.py", True),
        ("a/b.py", "*.py", True),
        ("a/b.py", "a", True),
        ("a", "a", True),
        ("a/b.py", "a/", True),
        ("a/b.py", "a/**", True),
        ("a/b.py", "a/*.py", True),
        ("a/b.py", "./a/b.py", True),
        ("aa/b.py", "a/*", False),
    ],
)
def test_patterns(path, pattern, expected):
    assert excluded(path, [pattern]) is expected
