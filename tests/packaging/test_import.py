"""Importing the package, or its linter, never imports torch, even where torch is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "peft", "accelerate", "numpy", "scipy")


@pytest.mark.parametrize(
    "code",
    [
        "import hf_ckpt",
        "import hf_ckpt; dir(hf_ckpt); hf_ckpt.__version__",
        "import hf_ckpt.lint; hf_ckpt.lint.check_source('x = 1')",
        "import hf_ckpt.errors",
        "import hf_ckpt.cli",
    ],
)
def test_no_torch(code, tmp_path):
    shown = f"{code}\nimport sys\nprint([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", shown], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("first", ["hf_ckpt.callbacks", "hf_ckpt.apply", "hf_ckpt.policy", "hf_ckpt.handle"])
def test_public_names_mean_the_same_whatever_was_imported_before(first, tmp_path, forked):
    script = tmp_path / "names.py"
    script.write_text(
        "import importlib, importlib.util, types, hf_ckpt\n"
        f"if importlib.util.find_spec({first!r}): importlib.import_module({first!r})\n"
        "print([n for n in hf_ckpt.__all__ if isinstance(getattr(hf_ckpt, n), types.ModuleType)])"
    )
    done = forked.run(script, folder=tmp_path)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
