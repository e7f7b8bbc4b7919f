"""Real pre-commit from a local clone, as a user's `.pre-commit-config.yaml` runs it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MISTAKE = "from torch.utils.checkpoint import checkpoint\n\n\ndef f(b, x):\n    return checkpoint(b, x)\n"
CLEAN = "x = 1\n"


def git(*arguments, cwd):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always"]
    command = ["git", *identity, *arguments]
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="module")
def hook_repository(tmp_path_factory):
    """A git repository with the working tree's state, as it would be released."""
    folder = tmp_path_factory.mktemp("hook") / "hf-ckpt"
    listed = git("ls-files", "--cached", "--others", "--exclude-standard", "-z", cwd=ROOT).split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    git("init", "-q", cwd=folder)
    git("add", "-A", cwd=folder)
    git("commit", "-q", "-m", "release", cwd=folder)
    return folder


def test_the_manifest_is_valid():
    from pre_commit.clientlib import load_manifest

    hooks = {hook["id"]: hook for hook in load_manifest(str(ROOT / ".pre-commit-hooks.yaml"))}
    assert hooks["ckpt-lint"]["require_serial"] is True
    assert hooks["ckpt-lint"]["types_or"] == ["python", "jupyter"]


@pytest.mark.slow
def test_the_hook_stops_a_commit_with_a_mistake_and_lets_a_clean_one_pass(hook_repository, tmp_path):
    user = tmp_path / "user"
    user.mkdir()
    git("init", "-q", cwd=user)
    revision = git("rev-parse", "HEAD", cwd=hook_repository)
    (user / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {hook_repository}\n  rev: {revision}\n  hooks:\n  - id: ckpt-lint\n"
    )
    (user / "good.py").write_text(CLEAN)
    (user / "notes.txt").write_text("checkpoint(b, x)")
    environment = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "home"), "PRE_COMMIT_COLOR": "never"}

    def run():
        git("add", "-A", cwd=user)
        command = [sys.executable, "-m", "pre_commit", "run"]
        return subprocess.run(command, cwd=user, env=environment, capture_output=True, text=True)

    first = run()
    assert first.returncode == 0, first.stdout + first.stderr
    (user / "bad.py").write_text(MISTAKE)
    second = run()
    assert second.returncode == 1
    assert "bad.py:5:" in second.stdout
    (user / "pyproject.toml").write_text('[tool.ckpt-lint]\nexclude = ["bad.py"]\n')
    assert run().returncode == 0
