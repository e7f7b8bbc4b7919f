"""Wheel, sdist and editable install work in an empty virtual environment that has no torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Environment, environment

PACKAGES = ("hf_ckpt", "hf_ckpt.lint", "hf_ckpt.callbacks")
WHERE = f"import importlib.util as u; print(*(u.find_spec(n).origin for n in {PACKAGES}), sep='\\n')"
#: Names a user's own folder may well have.
LOOKALIKES = ("callbacks.py", "lint.py", "engine.py", "planner.py", "policy.py", "proof.py")


def works_without_torch(env: Environment) -> None:
    shown = env.run("ckpt-lint", "--help")
    assert shown.returncode == 0, shown.stderr
    assert "activation-checkpointing" in shown.stdout
    assert len(env.python(WHERE).splitlines()) == len(PACKAGES)
    assert env.python("import importlib.util as u; print(u.find_spec('torch'))") == "None"


def test_wheel(wheel_environment):
    works_without_torch(wheel_environment)


def test_the_command_reads_a_script(wheel_environment, tmp_path):
    (tmp_path / "train.py").write_text("import torch\n")
    done = wheel_environment.run("ckpt-lint", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "All checks passed!\n"), done.stderr


@pytest.mark.parametrize(
    "code",
    ["from hf_ckpt import SelectiveCkpt", "from hf_ckpt import apply", "from hf_ckpt.callbacks import SelectiveCkpt"],
)
def test_the_runtime_without_torch_says_what_to_install(wheel_environment, code):
    done = wheel_environment.run("python", "-c", code)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert "pip install 'hf-ckpt[train]'" in last
    assert "ImportError" in last or "MissingExtraError" in last


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--help",), "Forecast policies for a model"),
        (("plan", "--help"), "Name on the hub, or a folder with a config.json"),
        (("policies",), "dots_saveable"),
    ],
)
def test_what_hf_ckpt_can_do_without_torch(wheel_environment, arguments, says):
    done = wheel_environment.run("hf-ckpt", *arguments)
    assert done.returncode == 0, done.stderr
    assert says in " ".join(done.stdout.split())


@pytest.mark.parametrize("command", ["plan", "explain", "bench", "verify"])
def test_a_command_without_torch_says_what_to_install(wheel_environment, command):
    done = wheel_environment.run("hf-ckpt", command, "--model", "nowhere")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "pip install 'hf-ckpt[train]'" in line


def test_a_users_own_modules_do_not_shadow_ours(wheel_environment, tmp_path):
    for name in LOOKALIKES:
        (tmp_path / name).write_text("raise RuntimeError('the wrong module')\n")
    wheel_environment.python("import hf_ckpt, hf_ckpt.lint; hf_ckpt.lint.check_source", cwd=tmp_path)
    origins = wheel_environment.python(WHERE, cwd=tmp_path).splitlines()
    assert all("site-packages" in Path(origin).parts for origin in origins)
    done = wheel_environment.run("ckpt-lint", "--version", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_sdist(distributions, tmp_path):
    env = environment(tmp_path)
    env.install(str(distributions[0]))
    works_without_torch(env)


def test_editable(checkout, tmp_path):
    env = environment(tmp_path)
    env.install("--editable", str(checkout))
    works_without_torch(env)
    assert str(checkout) in env.python(WHERE)
    added = checkout / "lint" / "added_later.py"
    added.write_text("HERE = 1\n")
    try:
        assert env.python("from hf_ckpt.lint.added_later import HERE; print(HERE)") == "1"
    finally:
        added.unlink()
