"""The command as users run it: real processes, real files, real findings."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool

import pytest
from command import ckpt_lint as lint

MISTAKE = """\
from torch.utils.checkpoint import checkpoint


def forward(block, x):
    return checkpoint(block, x)
"""
CLEAN = MISTAKE.replace("x)\n", "x, use_reentrant=False)\n", 2).replace("block, x, use_reentrant=False):", "block, x):")
BROKEN = "from torch.utils.checkpoint import checkpoint\ndef f(:\n"


def started(*arguments, cwd, **environment):
    """The command as `ckpt_lint` runs it, but with Python's own start under variables that only this reads."""
    command, env = [sys.executable, "-m", "hf_ckpt.lint", *arguments], {**os.environ, **environment}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env=env)


def records(process):
    return json.loads(process.stdout)


@pytest.fixture
def project(tmp_path):
    (tmp_path / "bad.py").write_text(MISTAKE)
    (tmp_path / "good.py").write_text(CLEAN)
    return tmp_path


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    """The code of the rule that finds MISTAKE."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "bad.py").write_text(MISTAKE)
    [found] = records(lint("bad.py", "--output-format", "json", cwd=folder))
    return found["code"]


def test_a_clean_file(project):
    process = lint("good.py", cwd=project)
    assert (process.returncode, process.stdout, process.stderr) == (0, "All checks passed!\n", "")


def test_a_mistake_is_shown_where_it_is(project, code):
    process = lint("bad.py", cwd=project)
    assert process.returncode == 1
    assert f"[{code}]" in process.stdout
    assert " --> bad.py:5:" in process.stdout
    assert "5 |     return checkpoint(block, x)" in process.stdout
    assert "Found 1 mistake." in process.stdout


@pytest.mark.parametrize("arguments", [["."], [], ["check"], ["check", "."], ["check", "bad.py", "good.py"]])
def test_ways_to_say_the_same(project, arguments):
    if not arguments:
        assert "Usage: ckpt-lint" in lint(cwd=project).stdout
        return
    process = lint(*arguments, "--output-format", "concise", cwd=project)
    assert process.returncode == 1
    assert len(process.stdout.splitlines()) == 2


def test_fast_path_and_option_parser_agree(project):
    fast = lint("bad.py", "good.py", "--force-exclude", cwd=project)
    slow = lint("bad.py", "good.py", "--force-exclude", "--output-format", "full", cwd=project)
    assert (fast.returncode, fast.stdout, fast.stderr) == (slow.returncode, slow.stdout, slow.stderr)


def test_exit_zero(project):
    assert lint("bad.py", "--exit-zero", cwd=project).returncode == 0


def test_select_and_ignore(project, code):
    assert lint("bad.py", "--select", code, cwd=project).returncode == 1
    assert lint("bad.py", "--select", f"CKPT9,{code[:5]}", cwd=project).returncode == 1
    assert lint("bad.py", "--select", "CKPT9", cwd=project).returncode == 0
    assert lint("bad.py", "--ignore", code, cwd=project).returncode == 0
    assert lint("bad.py", "--ignore", code[:5], "--select", code, cwd=project).returncode == 1
    [found] = records(lint("bad.py", "--output-format", "json", cwd=project))
    assert lint("bad.py", "--ignore", found["name"], cwd=project).returncode == 0


@pytest.mark.parametrize("option", ["--select", "--ignore"])
def test_an_unknown_rule_is_an_error_even_without_findings(project, option):
    process = lint("good.py", option, "CKPT9999", cwd=project)
    assert process.returncode == 2
    assert "no rule matches `CKPT9999`" in process.stderr


def test_settings_from_pyproject(project, code):
    (project / "pyproject.toml").write_text(f'[tool.ckpt-lint]\nper-file-ignores = {{"bad*" = ["{code}"]}}\n')
    assert lint(".", cwd=project).returncode == 0
    (project / "pyproject.toml").write_text('[tool.ckpt-lint]\nexclude = ["bad.py"]\n')
    assert lint(".", cwd=project).returncode == 0
    assert lint("bad.py", cwd=project).returncode == 1
    assert lint("bad.py", "--force-exclude", cwd=project).returncode == 0
    (project / "pyproject.toml").write_text("[tool.ckpt-lint]\nselectt = []\n")
    process = lint("good.py", cwd=project)
    assert process.returncode == 2
    assert "did you mean `select`?" in process.stderr


def test_settings_hold_per_folder(project, code):
    (project / "quiet").mkdir()
    (project / "quiet" / "bad.py").write_text(MISTAKE)
    (project / "quiet" / "pyproject.toml").write_text(f'[tool.ckpt-lint]\nignore = ["{code}"]\n')
    process = lint(".", "--output-format", "concise", cwd=project)
    assert [line.split(":")[0] for line in process.stdout.splitlines()[:-1]] == ["bad.py"]


def test_config_and_show_settings(project, code):
    (project / "other.toml").write_text(f'ignore = ["{code}"]\n')
    assert lint("bad.py", "--config", "other.toml", cwd=project).returncode == 0
    shown = lint(".", "--config", "other.toml", "--show-settings", cwd=project)
    assert shown.returncode == 0
    assert f"ignore: {code}" in shown.stdout


def test_a_file_that_does_not_parse_is_one_finding_and_the_rest_go_on(project, code):
    (project / "broken.py").write_text(BROKEN)
    (project / "latin.py").write_bytes(b"from torch.utils.checkpoint import checkpoint\nx = '\xfc'\n")
    found = records(lint(".", "--output-format", "json", cwd=project))
    by_file = {os.path.basename(item["filename"]): item for item in found}
    assert by_file["bad.py"]["code"] == code
    assert by_file["broken.py"]["code"] == "CKPT903"
    assert by_file["broken.py"]["location"]["row"] == 2
    assert by_file["latin.py"]["code"] == "CKPT903"
    assert len(found) == 3


def test_a_named_file_without_a_word_of_ours_must_be_python_too(project):
    (project / "broken.py").write_text("def broken(:\n    pass\n")
    (project / "plain.py").write_text("print('\\d')\n")
    [found] = records(lint("broken.py", "plain.py", "--output-format", "json", cwd=project))
    assert (found["code"], found["location"]["row"]) == ("CKPT903", 1)
    assert lint("broken.py", "--ignore", "CKPT903", cwd=project).returncode == 0
    piped = lint("-", "--output-format", "json", cwd=project, stdin="x = (\n")
    assert [item["code"] for item in records(piped)] == ["CKPT903"]
    assert "broken.py" not in lint(".", cwd=project).stdout


def test_a_named_file_without_an_extension_is_python_only_where_its_first_line_says_so(project):
    (project / "Makefile").write_text("train:\n\tpython train.py --gradient_checkpointing\n")
    (project / "run").write_text("#!/bin/bash\necho torch.utils.checkpoint $1\n")
    (project / "tool").write_text("#!/usr/bin/env python3\nx = (\n")
    [found] = records(lint("Makefile", "run", "tool", "--output-format", "json", cwd=project))
    assert (found["code"], os.path.basename(found["filename"])) == ("CKPT903", "tool")
    version = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    assert version in found["message"]


def test_missing_and_unreadable_paths_are_failures_and_the_rest_go_on(project):
    process = lint("nope.py", "bad.py", cwd=project)
    assert process.returncode == 2
    assert "nope.py: no such file or folder" in process.stderr
    assert "bad.py:5" in process.stdout


def test_nothing_to_check_is_said(tmp_path):
    process = lint(".", cwd=tmp_path)
    assert process.returncode == 0
    assert "nothing to check (Python, notebooks, configurations, launch scripts)" in process.stderr
    assert "passed" not in process.stdout


def test_standard_input(project):
    process = lint("-", "--stdin-filename", "src/a.py", cwd=project, stdin=MISTAKE)
    assert process.returncode == 1
    assert "src/a.py:5:" in process.stdout
    assert "5 |     return checkpoint(block, x)" in process.stdout
    assert lint("-", cwd=project, stdin=CLEAN).returncode == 0


def test_standard_input_is_checked_alone_and_not_written_to(project):
    for arguments in (("-", "bad.py"), ("--add-ignore", "-"), ("--watch", "-")):
        process = lint(*arguments, cwd=project, stdin=MISTAKE)
        assert (process.returncode, process.stdout) == (2, "")
        assert process.stderr.count("Error: ") == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_output_that_cannot_be_written_is_one_sentence(project):
    for name in ("bad.py", "good.py"):
        with open("/dev/full", "w") as full:
            command = [sys.executable, "-m", "hf_ckpt.lint", name]
            process = subprocess.run(command, cwd=project, stdout=full, stderr=subprocess.PIPE, text=True)
        expected = "error: the output cannot be written: No space left on device\n"
        assert (process.returncode, process.stderr) == (2, expected)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_python_in_utf_16_is_not_called_clean(project, encoding):
    (project / "wide.py").write_bytes(
        ("" if encoding == "utf-16" else "\ufeff").encode(encoding) + CLEAN.encode(encoding)
    )
    [found] = records(lint("wide.py", "--output-format", "json", cwd=project))
    assert (found["code"], found["location"]["row"]) == ("CKPT903", 1)
    assert "UTF-16" in found["message"]
    (project / "wide.yaml").write_bytes("seed: 1".encode("utf-16"))
    assert lint("wide.yaml", cwd=project).returncode == 0


@pytest.mark.parametrize(("cookie", "is_good"), [("utf-8", True), ("UTF_8", True), ("latin-1", False), ("nope", False)])
def test_the_mark_of_utf_8_and_another_encoding_contradict(project, cookie, is_good):
    (project / "bad.py").write_bytes(b"\xef\xbb\xbf# coding: " + cookie.encode() + b"\n" + MISTAKE.encode())
    before = (project / "bad.py").read_bytes()
    [found] = records(lint("bad.py", "--output-format", "json", cwd=project))
    assert (found["code"] != "CKPT903") == is_good
    lint("bad.py", "--fix", "--unsafe-fixes", cwd=project)
    assert ((project / "bad.py").read_bytes() != before) == is_good


def test_suppressions(project, code):
    line = "    return checkpoint(block, x)"
    for comment in (f"  # noqa: {code}", "  # noqa", f"  # ckpt-lint: ignore[{code}] reason"):
        (project / "bad.py").write_text(MISTAKE.replace(line, line + comment))
        assert lint("bad.py", cwd=project).returncode == 0, comment
    (project / "bad.py").write_text(MISTAKE.replace(line, f"    # ckpt-lint: ignore[{code}]\n{line}"))
    assert lint("bad.py", cwd=project).returncode == 0
    (project / "bad.py").write_text("# ckpt-lint: ignore-file\n" + MISTAKE)
    assert lint("bad.py", cwd=project).returncode == 0


def test_an_unused_suppression_is_reported_and_removed(project, code):
    (project / "good.py").write_text(CLEAN.replace("=False)", f"=False)  # noqa: {code}"))
    [found] = records(lint("good.py", "--output-format", "json", cwd=project))
    assert found["code"] == "CKPT901"
    assert lint("good.py", "--fix", cwd=project).returncode == 0
    assert (project / "good.py").read_text() == CLEAN
    (project / "plain.py").write_text(f"x = 1  # ckpt-lint: ignore[{code}]\n")
    assert lint("plain.py", cwd=project).returncode == 1
    assert lint("plain.py", "--select", "CKPT9", cwd=project).returncode == 0


def test_add_ignore(project, code):
    assert lint(".", "--add-ignore", cwd=project).returncode == 0
    assert (project / "bad.py").read_text().endswith(f"checkpoint(block, x)  # ckpt-lint: ignore[{code}]\n")
    assert (project / "good.py").read_text() == CLEAN
    (project / "bad.py").write_text(MISTAKE)
    lint("--add-ignore=known since 2024", "bad.py", cwd=project)
    assert (project / "bad.py").read_text().endswith(f"# ckpt-lint: ignore[{code}] known since 2024\n")
    assert lint(".", cwd=project).returncode == 0


@pytest.mark.parametrize("comment", ["ignore[]", "ignore[ ]", "ignore[NOPE]", "ignore-file[NOPE]", "ignore[] why"])
def test_add_ignore_where_a_comment_silences_nothing(project, code, comment):
    line = f"checkpoint(block, x)  # ckpt-lint: {comment}"
    (project / "bad.py").write_text(MISTAKE.replace("checkpoint(block, x)", line))
    process = lint("bad.py", "--add-ignore", cwd=project)
    assert (process.returncode, process.stderr) == (0, "Silenced 1 in 1 file.\n")
    once = (project / "bad.py").read_text()
    assert once.count("ignore[") == 1
    assert code in once
    assert lint("bad.py", "--add-ignore", cwd=project).stderr == "Silenced 0 in 0 files.\n"
    assert (project / "bad.py").read_text() == once


def test_baseline_reports_only_what_is_new_and_shrinks(project):
    assert lint(".", "--baseline", "known.json", cwd=project).returncode == 2
    assert lint(".", "--baseline", "known.json", "--write-baseline", cwd=project).returncode == 0
    known = (project / "known.json").read_text()
    assert lint(".", "--baseline", "known.json", cwd=project).returncode == 0
    (project / "bad.py").write_text("import os\n\n" + MISTAKE)  # moved, not new
    assert lint(".", "--baseline", "known.json", cwd=project).returncode == 0
    assert (project / "known.json").read_text() == known
    (project / "new.py").write_text(MISTAKE)
    process = lint(".", "--baseline", "known.json", "--output-format", "concise", cwd=project)
    assert process.returncode == 1
    assert [line.split(":")[0] for line in process.stdout.splitlines()[:-1]] == ["new.py"]
    (project / "bad.py").write_text(CLEAN)
    lint(".", "--baseline", "known.json", cwd=project, CI="true")
    assert (project / "known.json").read_text() == known  # a CI only reads
    lint(".", "--baseline", "known.json", cwd=project, CI="")
    assert json.loads((project / "known.json").read_text())["files"] == {}


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"version": 1, "files": []}', '{"version": 9, "files": {}}', "[" * 100_000]
)
def test_a_bad_baseline_is_one_sentence(project, content):
    (project / "known.json").write_text(content)
    process = lint(".", "--baseline", "known.json", cwd=project)
    assert process.returncode == 2
    assert process.stderr.startswith("error: known.json: ")
    assert process.stderr.count("\n") == 1


def test_statistics(project, code):
    process = lint(".", "--statistics", cwd=project)
    assert process.returncode == 1
    assert process.stdout.startswith(f"1  {code}  ")
    [row] = json.loads(lint(".", "--statistics", "--output-format", "json", cwd=project).stdout)
    assert (row["code"], row["count"]) == (code, 1)


def test_rule_pages(project, code):
    one = lint("rule", code, cwd=project).stdout
    assert one.startswith("# ")
    assert f"({code})" in one
    assert "## What it does" in one
    every = lint("rule", "--all", cwd=project).stdout
    assert one in every
    assert "CKPT901" in every
    as_json = json.loads(lint("rule", code.lower(), "--output-format", "json", cwd=project).stdout)
    assert as_json["code"] == code
    assert lint("rule", "CKPT000", cwd=project).returncode == 2
    assert lint("rule", cwd=project).returncode == 2


@pytest.mark.parametrize(
    "arguments", [["--nope"], ["good.py", "--output-format", "x"], ["--write-baseline", "good.py"]]
)
def test_a_wrong_command_line_is_exit_status_2(project, arguments):
    assert lint(*arguments, cwd=project).returncode == 2


def test_version_and_help(project):
    assert lint("--version", cwd=project).stdout.startswith("ckpt-lint, version ")
    assert "--select" in lint("check", "--help", cwd=project).stdout


def test_a_reader_that_leaves_early_is_no_error(project):
    for number in range(50):
        (project / f"bad{number}.py").write_text(MISTAKE)
    command = f"{sys.executable} -m hf_ckpt.lint . | head -n 1"
    process = subprocess.run(["bash", "-c", command], cwd=project, capture_output=True, text=True)
    assert process.stderr == ""


def test_output_that_the_terminal_cannot_show(project):
    (project / "bad.py").write_text(MISTAKE.replace("x)\n", "x)  # größe\n"), encoding="utf-8")
    process = started("bad.py", cwd=project, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert process.returncode == 1
    assert "gr\\xf6\\xdfe" in process.stdout


def test_pythons_remarks_on_the_code_are_not_printed(project):
    (project / "good.py").write_text(CLEAN + 'pattern = "\\d"\n')
    assert started("good.py", cwd=project, PYTHONWARNINGS="default").stderr == ""


def test_many_files_in_a_pool_give_what_one_process_gives(project, monkeypatch):
    from hf_ckpt.lint.analysis import check_files
    from hf_ckpt.lint.analysis.job import Job
    from hf_ckpt.lint.project.settings import Settings

    for number in range(20):
        (project / f"bad{number}.py").write_text("\n" * number + MISTAKE)
    (project / "broken.py").write_text(BROKEN)
    (project / "latin.py").write_bytes(b"import torch.utils.checkpoint\nx = '\xfc'\n")
    monkeypatch.chdir(project)
    jobs = [Job(name, Settings(root=str(project))) for name in sorted(os.listdir(project))]
    alone = check_files.check_paths(jobs)
    monkeypatch.setattr(check_files, "POOL_FROM", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert check_files.check_paths(jobs) == alone
    assert sum(len(result.findings) for result in alone) == 23


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a worker does not see what is patched here")
def test_a_worker_that_is_killed_ends_the_run(project, monkeypatch):
    from hf_ckpt.lint.analysis import check_files
    from hf_ckpt.lint.analysis.job import Job
    from hf_ckpt.lint.project.settings import Settings

    monkeypatch.chdir(project)
    jobs = [Job(name, Settings(root=str(project))) for name in sorted(os.listdir(project)) * 3]
    monkeypatch.setattr(check_files, "POOL_FROM", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(check_files, "check_path", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(BrokenProcessPool):
        check_files.check_paths(jobs)


def test_an_internal_error_is_one_line_and_the_other_files_go_on(project, monkeypatch, capsys):
    from hf_ckpt.lint.__main__ import _run
    from hf_ckpt.lint.analysis import check_text as check

    real = check.check_source

    def fail_on_bad(text, filename, **options):
        if filename == "bad.py":
            raise RuntimeError("two\nlines")
        return real(text, filename, **options)

    (project / "also.py").write_text(MISTAKE)
    monkeypatch.chdir(project)
    monkeypatch.setattr(check, "check_source", fail_on_bad)
    assert _run(["bad.py", "also.py"]) == 2
    output = capsys.readouterr()
    assert output.err == (
        "error: bad.py: not checked, internal error of ckpt-lint (RuntimeError: two lines); please report it\n"
    )
    assert "also.py:5:" in output.out


@contextlib.contextmanager
def watching(project, *arguments):
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "hf_ckpt.lint", "--watch", *arguments, "--output-format", "concise"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process.stdout
    finally:
        process.terminate()
        process.wait()


def test_watch_checks_again_after_a_change(project):
    with watching(project, "bad.py") as output:
        assert output.readline().startswith("bad.py:5:")
        assert output.readline().startswith("Found 1")
        (project / "bad.py").write_text(CLEAN)
        assert output.readline() == "All checks passed!\n"


def test_watch_follows_a_module_that_a_script_imports(project):
    (project / "train.py").write_text(
        "from factory import build\n\nmodel = build()\nmodel.eval()\nmodel.gradient_checkpointing_enable()\n"
        "for batch in batches:\n    model(**batch).loss.backward()\n"
    )
    with watching(project, "train.py") as output:
        assert output.readline() == "All checks passed!\n"
        (project / "factory.py").write_text(
            "from transformers import AutoModelForCausalLM\n\n\n"
            "def build():\n    return AutoModelForCausalLM.from_pretrained('gpt2')\n"
        )
        assert output.readline().startswith("train.py:")


def test_the_functions_do_what_the_command_does(project, code):
    from hf_ckpt.lint import check_paths, check_source

    [found] = check_source(MISTAKE, "bad.py")
    assert found.code == code
    [same] = check_paths([project])
    assert same._replace(filename="bad.py") == found
    assert check_source(MISTAKE, ignore=[code]) == []
    with pytest.raises(FileNotFoundError):
        check_paths([project / "nope.py"])
