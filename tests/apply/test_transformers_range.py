"""The supported range of transformers: both engines and a real Trainer under older versions from the package index."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERSIONS = ("4.57.6", "5.0.0", "5.17.0")
#: Gradients under every policy and engine, restoring, copies, take-over, metrics, resume, hooks, FSDP2's among them.
TESTS = (
    *("tests/apply/test_gradients.py", "tests/apply/test_apply.py", "tests/callbacks/test_selective_ckpt.py"),
    *(
        "tests/compat/test_layer_hooks.py",
        "tests/engine/test_sharded.py::test_sharded_training_is_bitwise_equal[fsdp2]",
    ),
)
CHOSEN = "not bf16 and not lora"


@pytest.mark.slow(minutes=3)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_older_transformers(version: str, tmp_path: Path) -> None:
    environ = _environment(_overlay(version, tmp_path))
    shown = [sys.executable, "-c", "import transformers; print(transformers.__version__)"]
    assert subprocess.run(shown, env=environ, capture_output=True, text=True).stdout.strip() == version
    command = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *TESTS, "-k", CHOSEN]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr


def _overlay(version: str, folder: Path) -> Path:
    """A folder for the import path: this transformers, and what else must differ from the running environment."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    report = folder / "report.json"
    needs = (f"transformers=={version}", "datasets", "peft", "accelerate")
    subprocess.run([*pip, "--dry-run", "--report", str(report), *needs], check=True)
    packages = [entry["metadata"] for entry in json.loads(report.read_text())["install"]]
    pins = [f"{package['name']}=={package['version']}" for package in packages]
    subprocess.run([*pip, "--no-deps", "--target", str(folder / "overlay"), *pins], check=True)
    return folder / "overlay"


def _environment(overlay: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return inherited | {"PYTHONPATH": str(overlay)}
