"""Options and comments that users of ruff expect."""

import json
import os
import subprocess
import sys

import pytest
from hf_ckpt.lint.cli.parser import run_cli

MISTAKE = "from torch.utils.checkpoint import checkpoint\n\n\ndef f(block, x):\n    return checkpoint(block, x)\n"
FIXED = MISTAKE.replace("(block, x)\n", "(block, x, use_reentrant=False)\n")


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    (tmp_path / "a.py").write_text(MISTAKE)
    return tmp_path


def codes(capsys, *arguments):
    run_cli([*arguments, "--output-format", "json", "--no-cache"])
    return sorted({item["code"] for item in json.loads(capsys.readouterr().out)})


def off_by_default():
    from hf_ckpt.lint.catalogue.rules import all_rules

    return next(rule for rule in all_rules() if not rule.default)


def test_extend_select_adds_to_the_default_rules(project, capsys):
    from hf_ckpt.lint.project.selection import enabled_codes
    from hf_ckpt.lint.project.settings import Settings, load_settings

    rule = off_by_default()
    assert rule.code not in enabled_codes(Settings())
    assert enabled_codes(Settings(extend_select=(rule.code,))) == enabled_codes(Settings()) | {rule.code}
    assert enabled_codes(Settings(select=("CKPT101",), extend_select=(rule.name,))) == {"CKPT101", rule.code}
    (project / "pyproject.toml").write_text(f'[tool.ckpt-lint]\nextend-select = ["{rule.code}"]\n')
    assert load_settings("pyproject.toml").extend_select == (rule.code,)
    assert codes(capsys, "a.py", "--extend-select", rule.code) == ["CKPT101"]
    assert run_cli(["a.py", "--extend-select", "CKPT999"]) == 2
    assert "no rule matches `CKPT999`" in capsys.readouterr().err


def test_quiet_prints_findings_and_nothing_else(project, capsys):
    assert run_cli(["-q", "--output-format", "concise", "a.py"]) == 1
    assert capsys.readouterr().out.count("\n") == 1
    (project / "a.py").write_text(FIXED)
    assert run_cli(["--quiet", "a.py"]) == 0
    (project / "empty").mkdir()
    assert run_cli(["--quiet", "empty"]) == 0
    assert capsys.readouterr() == ("", "")


def test_the_report_goes_to_a_file(project, capsys):
    assert run_cli(["a.py", "--output-format", "json", "-o", "report.json"]) == 1
    assert capsys.readouterr().out == ""
    assert json.loads((project / "report.json").read_text())[0]["code"] == "CKPT101"
    assert run_cli(["a.py", "-o", "no/such/folder.txt"]) == 2
    assert "no/such/folder.txt: cannot be written" in capsys.readouterr().err


def test_isolated_reads_no_settings(project, capsys):
    (project / "pyproject.toml").write_text('[tool.ckpt-lint]\nignore = ["CKPT101"]\n')
    assert codes(capsys, "a.py") == []
    assert codes(capsys, "a.py", "--isolated") == ["CKPT101"]


def test_show_files_prints_what_would_be_checked(project, capsys):
    (project / "notes.txt").write_text("no code")
    (project / "b.ipynb").write_text("{}")
    assert run_cli([".", "--show-files"]) == 0
    assert capsys.readouterr().out.split() == ["a.py", "b.ipynb"]


def test_ignore_noqa_reports_what_comments_silence(project, capsys):
    (project / "a.py").write_text(MISTAKE.replace("(block, x)\n", "(block, x)  # noqa: CKPT101\n"))
    assert codes(capsys, "a.py") == []
    assert codes(capsys, "a.py", "--ignore-noqa") == ["CKPT101"]


def test_fix_only_repairs_and_reports_nothing(project, capsys):
    assert run_cli(["a.py", "--fix-only"]) == 0
    assert (project / "a.py").read_text() == MISTAKE
    assert run_cli(["a.py", "--fix-only", "--unsafe-fixes"]) == 0
    assert "CKPT101" not in capsys.readouterr().out
    assert (project / "a.py").read_text() == FIXED


def test_a_fix_can_be_told_by_the_exit_status(project):
    assert run_cli(["a.py", "--fix", "--unsafe-fixes", "--exit-non-zero-on-fix"]) == 1
    assert run_cli(["a.py", "--fix", "--unsafe-fixes", "--exit-non-zero-on-fix"]) == 0


def test_color_can_be_forced_and_forbidden(project, capsys, monkeypatch):
    run_cli(["a.py", "--color", "always"])
    assert "\033[" in capsys.readouterr().out
    monkeypatch.setenv("FORCE_COLOR", "1")
    run_cli(["a.py", "--color", "never"])
    assert "\033[" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "is_reported"),
    [
        ("torch=1.10", False),
        ("torch>=1.8,<1.11", False),
        ("torch=2.4", True),
        ("torch==2.4.1", True),
        ("transformers=4.51", True),
    ],
)
def test_versions_on_the_command_line(project, capsys, given, is_reported):
    (project / "requirements.txt").write_text("torch==2.5.1\n")
    assert codes(capsys, "a.py", "--versions", given, "--versions", "peft=0.17") == ["CKPT101"] * is_reported


def test_a_version_that_is_none_is_refused(project, capsys):
    for wrong in ("transformers", "=4.51", "transformers=new"):
        assert run_cli(["a.py", "--versions", wrong]) == 2
        assert "such as transformers=4.51" in capsys.readouterr().err


@pytest.mark.parametrize("comment", ["# ruff: noqa", "# ruff: noqa: CKPT101", "# ruff: noqa: E501, CKPT101"])
def test_ruffs_comment_silences_a_file(project, capsys, comment):
    (project / "a.py").write_text(f"{comment}\n{MISTAKE}")
    assert codes(capsys, "a.py") == []


def test_ruffs_comment_behind_code_silences_its_line(project, capsys):
    call = "checkpoint(block, x)\n"
    text = (
        MISTAKE.replace(call, f"{call.rstrip()}  # ruff: noqa: CKPT101\n")
        + "\n\ndef g(block, x):\n    return checkpoint(block, x)\n"
    )
    (project / "a.py").write_text(text)
    run_cli(["a.py", "--output-format", "json", "--no-cache"])
    assert [item["location"]["row"] for item in json.loads(capsys.readouterr().out)] == [9]


def test_an_unused_comment_of_ruff_is_told(project, capsys):
    (project / "a.py").write_text(f"# ruff: noqa: CKPT101, E501\n{FIXED}")
    assert codes(capsys, "a.py") == ["CKPT901"]
    run_cli(["a.py", "--fix", "--no-cache"])
    assert (project / "a.py").read_text() == f"# ruff: noqa: E501\n{FIXED}"


@pytest.mark.parametrize("arguments", ["a.py", "--output-format json a.py", "--statistics a.py"])
def test_a_closed_output_is_no_internal_error(project, arguments):
    command = f"{sys.executable} -m hf_ckpt.lint {arguments}"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for closing, status in ((">&-", 1), ("| head -0", 0), ("2>&- >&-", 1)):
        ended = subprocess.run(f"{command} {closing}", shell=True, cwd=project, capture_output=True, text=True, env=env)
        assert (ended.returncode, ended.stderr) == (status, ""), closing
