"""The linter practises what it preaches."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_our_own_repository_is_clean():
    command = [sys.executable, "-m", "hf_ckpt.lint", ".", "--no-cache"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (0, "All checks passed!\n"), process.stdout + process.stderr
