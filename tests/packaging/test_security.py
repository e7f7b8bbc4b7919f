"""What SECURITY.md promises, each as something that is watched while it happens."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
_SOURCES = [path for top in ("hf_ckpt", "lint", "callbacks") for path in sorted((ROOT / top).rglob("*.py"))]
#: Modules that run what they read.
_RUNS_WHAT_IT_READS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}

#: Runs ckpt-lint and prints what it does beside reading: Python calls an audit hook at each of these events (PEP 578).
_AUDITED = """
import sys
from hf_ckpt.lint.__main__ import main
import hf_ckpt.lint.cli.parser, hf_ckpt.lint.cli.command

folder = sys.argv.pop(1)
quiet = []

def watch(event, arguments):
    if quiet:
        return
    quiet.append(1)
    try:
        if event == "exec" and arguments[0].co_filename.startswith(folder):
            print("ran", arguments[0].co_filename, file=sys.__stderr__)
        if event == "import" and str(arguments[1] or "").startswith(folder):
            print("imported", arguments[0], file=sys.__stderr__)
        if event.startswith(("socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "pickle.", "urllib.")):
            print("did", event, arguments, file=sys.__stderr__)
    finally:
        quiet.pop()

sys.addaudithook(watch)
main()
"""
_EFFECT = "from pathlib import Path\nPath('EFFECT').write_text('ran')\n"
_USES = "from torch.utils.checkpoint import checkpoint\nfrom helper import KW\n\n\ndef run(f, x):\n    return checkpoint(f, x, **KW)\n"
_YAML = "a: !!python/object/apply:os.system ['touch EFFECT']\ngradient_checkpointing: true\nfsdp_config: {}\n"
FILES = {
    "train.py": _EFFECT + _USES,
    "helper.py": _EFFECT + "KW = {'use_reentrant': eval(\"Path('EFFECT').write_text('x')\")}\n",
    "conftest.py": _EFFECT,
    "setup.py": _EFFECT,
    "sitecustomize.py": _EFFECT,
    "torch/__init__.py": _EFFECT,
    "transformers.py": _EFFECT,
    "pyproject.toml": "[project]\nname = 'x'\ndependencies = ['torch>=2']\n[tool.setuptools.dynamic]\nversion = {attr = 'helper.KW'}\n",
    "accelerate.yaml": _YAML,
    "axolotl.yml": "base_model: x\n" + _YAML,
    "bomb.yaml": "a: &a [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1 if i else ''}, *a{i - 1 if i else ''}]\n" for i in range(60)),
    "launch.sh": "touch EFFECT\naccelerate launch --config_file accelerate.yaml train.py $(touch EFFECT)\n",
    "note.ipynb": json.dumps(
        {"cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": "!touch EFFECT\n" + _EFFECT + _USES}],
         "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    ),
    "README.md": f"```python\n{_EFFECT}{_USES}```\n",
}  # fmt: skip


@pytest.mark.parametrize(
    "arguments", [[], ["--fix", "--unsafe-fixes"], ["--add-ignore"]], ids=["check", "fix", "ignore"]
)
def test_the_linter_runs_nothing_of_what_it_reads(tmp_path: Path, arguments: list[str]) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-c", _AUDITED, str(tmp_path), ".", "train.py", *arguments]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, env={}, check=False)
    assert not list(tmp_path.rglob("EFFECT"))
    assert not [line for line in process.stderr.splitlines() if line.startswith(("ran ", "imported ", "did "))]
    assert process.returncode in (0, 1, 2)
    assert "internal error" not in process.stderr


@pytest.mark.parametrize("path", _SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_read_by_what_runs_it(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & _RUNS_WHAT_IT_READS
        elif isinstance(node, ast.ImportFrom) and not node.level:
            assert (node.module or "").split(".")[0] not in _RUNS_WHAT_IT_READS
        elif isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in (
                "torch.load",
                "numpy.load",
                "np.load",
                "yaml.load",
                "yaml.unsafe_load",
            )
            trusted = [keyword.value for keyword in node.keywords if keyword.arg == "trust_remote_code"]
            assert all(isinstance(value, ast.Constant) and value.value is False for value in trusted)


def test_the_command_line_runs_no_code_of_a_model(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from hf_ckpt.cli import command
    from hf_ckpt.errors import CkptError

    auto = {"AutoConfig": "configuration.Own", "AutoModelForCausalLM": "modeling.Own"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": auto}))
    for name in ("configuration.py", "modeling.py"):
        (tmp_path / name).write_text(f"open({str(tmp_path / 'EFFECT')!r}, 'w')\n")
    found = CliRunner().invoke(command, ["plan", "--model", str(tmp_path)], input="y\n")
    assert isinstance(found.exception, CkptError)
    assert "brings code of its own, which hf-ckpt does not run" in str(found.exception)
    assert not (tmp_path / "EFFECT").exists()


def test_links_lead_to_no_file_twice_and_large_files_are_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "nowhere.py").symlink_to("nothing.py")
    (tmp_path / "zero.py").symlink_to("/dev/zero")
    (tmp_path / "up").symlink_to("..")
    (tmp_path / "large.py").write_text("x = 1\n" * 5_000_000)
    (tmp_path / "large.yaml").write_text("gradient_checkpointing: true\n" * 1_000_000)
    (tmp_path / "bad.py").write_text(_USES)
    command = [sys.executable, "-m", "hf_ckpt.lint", ".", "--no-cache", "--output-format", "concise"]
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert process.returncode in (0, 1), process.stderr
    assert all(line.startswith("bad.py") for line in process.stdout.splitlines()[:-1])
