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
CONFIG = """\
output_dir: out
per_device_train_batch_size: 2
learning_rate: 1.0e-4
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: 'False'
"""


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
    assert hooks["ckpt-lint-config"]["require_serial"] is True
    assert hooks["ckpt-lint-config"]["types_or"] == ["yaml", "json"]


@pytest.fixture
def user(hook_repository, tmp_path):
    """A repository that has both hooks, and a function that runs them on everything in it."""
    folder = tmp_path / "user"
    folder.mkdir()
    git("init", "-q", cwd=folder)
    revision = git("rev-parse", "HEAD", cwd=hook_repository)
    (folder / ".pre-commit-config.yaml").write_text(
        f"repos:\n- repo: {hook_repository}\n  rev: {revision}\n  hooks:\n  - id: ckpt-lint\n  - id: ckpt-lint-config\n"
    )
    home = str(hook_repository.parent / "home")
    environment = {**os.environ, "PRE_COMMIT_HOME": home, "PRE_COMMIT_COLOR": "never"}

    def run():
        git("add", "-A", cwd=folder)
        command = [sys.executable, "-m", "pre_commit", "run"]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)

    return folder, run


@pytest.mark.slow
def test_the_hook_stops_a_commit_with_a_mistake_and_lets_a_clean_one_pass(user):
    user, run = user
    (user / "good.py").write_text(CLEAN)
    (user / "notes.txt").write_text("checkpoint(b, x)")
    first = run()
    assert first.returncode == 0, first.stdout + first.stderr
    (user / "bad.py").write_text(MISTAKE)
    second = run()
    assert second.returncode == 1
    assert "bad.py:5:" in second.stdout
    (user / "pyproject.toml").write_text('[tool.ckpt-lint]\nexclude = ["bad.py"]\n')
    assert run().returncode == 0


@pytest.mark.slow
def test_the_hook_for_configurations_reads_yaml_and_json_and_nothing_else(user):
    user, run = user
    (user / "good.yaml").write_text(CONFIG.replace("'False'", "false"))
    (user / "other.json").write_text('{"gradient_checkpointing": "yes"}')
    (user / "config.txt").write_text(CONFIG)
    first = run()
    assert first.returncode == 0, first.stdout + first.stderr
    (user / "bad.yaml").write_text(CONFIG)
    second = run()
    assert second.returncode == 1
    assert "- hook id: ckpt-lint-config\n" in second.stdout
    assert "- hook id: ckpt-lint\n" not in second.stdout
    assert "bad.yaml:6:3" in second.stdout
    (user / "bad.yaml").write_text(CONFIG.replace("'False'", "'False'  # noqa: CKPT133"))
    assert run().returncode == 0
