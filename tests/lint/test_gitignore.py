"""A folder is searched as git sees it: each answer is compared with git's own."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from hf_ckpt.lint.project.discover import discover
from hf_ckpt.lint.project.settings import Settings

FILES = (
    "a.py",
    "generated.py",
    "keep/generated.py",
    "logs/a.py",
    "logs/keep.py",
    "out/a.py",
    "out/keep.py",
    "src/out/a.py",
    "src/deep/er/b.ipynb",
    "src/deep/er/draft_1.py",
    "src/local.py",
    "src/deep/local.py",
    "src/name with space.py",
    "src/é.py",
    "private.py",
    "src/private.py",
)
LISTS = {
    ".gitignore": "# comment\n\ngenerated.py\n/out/\nlogs/*\n!logs/keep.py\n**/er/draft_*.py\nname\\ with*\n",
    "keep/.gitignore": "!generated.py\n",
    "src/.gitignore": "/local.py\n*.ipynb\n!b.ipynb\n",
    "src/deep/.gitignore": "*.ipynb\n",
    ".git/info/exclude": "private.py\n",
}


@pytest.fixture
def repository(tmp_path, monkeypatch):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    root = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    for name, text in LISTS.items():
        (root / name).write_text(text)
    monkeypatch.chdir(root)
    return root


def found(*paths, **changes):
    settings = Settings(root=os.getcwd(), **changes)
    return sorted(os.path.relpath(path) for path in discover(paths, lambda _: settings).files)


def by_git(*paths):
    command = ["git", "-c", "core.quotepath=off", "ls-files", "--others", "--exclude-standard", *paths]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted(path for path in listed if path.endswith((".py", ".ipynb")))


@pytest.mark.parametrize("folder", [".", "src", "src/deep", "keep", "logs"])
def test_it_is_what_git_would_list(repository, folder):
    assert found(folder) == by_git(folder)
    assert found(str(repository / folder)) == by_git(folder)


def test_it_is_not_everything(repository):
    assert 0 < len(found(".")) < len(FILES) == len(found(".", respect_gitignore=False))


def test_what_is_named_is_read(repository):
    assert found("generated.py", "out") == ["generated.py", "out/a.py", "out/keep.py"]


def test_without_a_repository_the_lists_in_the_folder_count(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    (tmp_path / ".gitignore").write_text("*.py\n")
    (tmp_path / "project" / ".gitignore").write_text("b.py\n")
    for name in ("a.py", "b.py"):
        (tmp_path / "project" / name).write_text("")
    monkeypatch.chdir(tmp_path / "project")
    assert found(".") == ["a.py"]


def test_lists_that_cannot_be_read_ignore_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").write_text("gitdir: elsewhere\n")
    (tmp_path / ".gitignore").write_bytes(b"\xff\xfe\n!\nb.py\n")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / ".gitignore").mkdir()
    for name in ("a.py", "b.py", "sub/c.py"):
        (tmp_path / name).write_text("")
    assert found(".") == ["a.py", "sub/c.py"]


def test_the_option(repository):
    from command import ckpt_lint as lint
    from test_cli import MISTAKE

    (repository / "generated.py").write_text(MISTAKE)
    assert lint(".", cwd=repository).returncode == 0
    assert lint(".", "--no-respect-gitignore", cwd=repository).returncode == 1
    (repository / "pyproject.toml").write_text("[tool.ckpt-lint]\nrespect-gitignore = false\n")
    assert lint(".", cwd=repository).returncode == 1
    assert lint(".", "--respect-gitignore", cwd=repository).returncode == 0
