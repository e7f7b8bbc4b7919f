"""The distributions of this working tree, and empty virtual environments to install them into."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
#: Import name -> folder, for the packages that are not below `hf_ckpt/` in the repository.
REMAPPED = {"hf_ckpt.lint": "lint", "hf_ckpt.callbacks": "callbacks"}


class Environment(NamedTuple):
    """A virtual environment without pip; ``folder`` is an empty working directory."""

    bin: Path
    folder: Path

    def install(self, *requirements: str) -> None:
        """pip install, by the pip of the running interpreter; what is imported later is compiled then."""
        command = [sys.executable, "-m", "pip", "--python", str(self.bin / "python"), "install", "--quiet"]
        _checked([*command, "--disable-pip-version-check", "--no-compile", *requirements], cwd=self.folder)

    def run(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A program of the environment."""
        program = [str(self.bin / command[0]), *command[1:]]
        return subprocess.run(program, cwd=cwd or self.folder, capture_output=True, text=True)

    def python(self, code: str, cwd: Path | None = None) -> str:
        """What ``python -c code`` prints; it must succeed. The working directory comes first on its path."""
        done = self.run("python", "-c", code, cwd=cwd)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


def environment(folder: Path) -> Environment:
    """A fresh empty one below ``folder``."""
    _checked([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], cwd=folder)
    (folder / "work").mkdir()
    return Environment(folder / "venv" / "bin", folder / "work")


def _checked(command: list[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a clone would hold, so that no build output lands in the repository."""
    folder = tmp_path_factory.mktemp("checkout")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def distributions(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that was built from it: a file missing from the sdist is missing from both."""
    folder = tmp_path_factory.mktemp("dist")
    _checked([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(checkout)], cwd=folder)
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="session")
def wheel_environment(distributions: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel with its base dependencies, as pre-commit installs it: no torch."""
    env = environment(tmp_path_factory.mktemp("wheel"))
    env.install(str(distributions[1]))
    return env


@pytest.fixture(scope="session")
def setuptools_config() -> dict:
    """``[tool.setuptools]`` of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
