"""The command in a process of its own, a fork of one that has the linter loaded: starting Python takes longer."""

from __future__ import annotations

from functools import cache
from subprocess import CompletedProcess

from tests.forked import Forked


def ckpt_lint(*arguments: object, cwd, stdin: str | None = None, **environment: str) -> CompletedProcess[str]:
    """What ``ckpt-lint`` with ``arguments`` does in the folder ``cwd``."""
    words = [str(argument) for argument in arguments]
    run = _forked().run("-m", "hf_ckpt.lint", *words, folder=cwd, stdin=stdin or "", **environment)
    assert "Traceback" not in run.stderr
    return CompletedProcess(words, run.status, run.stdout, run.stderr)


@cache
def _forked() -> Forked:
    return Forked("linting")
