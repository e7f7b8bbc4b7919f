"""Notebooks through the command: cells in the output, fixes and comments in the right cell."""

import json

import pytest
from command import ckpt_lint as lint
from test_cli import records
from test_notebook import notebook

IMPORT = "%pip install torch\nfrom torch.utils.checkpoint import checkpoint"
CALL = "!nvidia-smi\ny = checkpoint(block, x)"


@pytest.fixture
def project(tmp_path):
    (tmp_path / "train.ipynb").write_bytes(notebook(IMPORT, "markdown:# Train", CALL))
    return tmp_path


def cells(project):
    document = json.loads((project / "train.ipynb").read_text())
    return ["".join(cell["source"]) for cell in document["cells"]]


def test_a_finding_names_cell_and_line(project):
    process = lint(".", cwd=project)
    assert process.returncode == 1
    assert " --> train.ipynb:cell 3:2:5" in process.stdout
    assert "2 | y = checkpoint(block, x)" in process.stdout
    [found] = records(lint(".", "--output-format", "json", cwd=project))
    assert (found["cell"], found["location"], found["noqa_row"]) == (3, {"row": 2, "column": 5}, 2)


def test_a_fix_changes_its_cell_only(project):
    before = cells(project)
    assert lint("train.ipynb", "--fix", "--unsafe-fixes", cwd=project).returncode == 0
    after = cells(project)
    assert after[:2] == before[:2]
    assert after[2] == "!nvidia-smi\ny = checkpoint(block, x, use_reentrant=False)"


def test_diff_and_standard_input(project):
    process = lint("train.ipynb", "--diff", "--unsafe-fixes", cwd=project)
    assert '+    "y = checkpoint(block, x, use_reentrant=False)"' in process.stdout
    text = (project / "train.ipynb").read_text()
    process = lint("-", "--stdin-filename", "a.ipynb", "--output-format", "concise", cwd=project, stdin=text)
    assert process.stdout.startswith("a.ipynb:cell 3:2:5: CKPT101 ")


def test_suppressions_and_add_ignore(project):
    (project / "train.ipynb").write_bytes(notebook(IMPORT, CALL + "  # noqa: CKPT101"))
    assert lint(".", cwd=project).returncode == 0
    (project / "train.ipynb").write_bytes(notebook(IMPORT, CALL))
    assert lint(".", "--add-ignore", cwd=project).returncode == 0
    assert cells(project) == [IMPORT, CALL + "  # ckpt-lint: ignore[CKPT101]"]
    (project / "train.ipynb").write_bytes(notebook("# ckpt-lint: ignore-file", IMPORT, CALL))
    assert lint(".", cwd=project).returncode == 0


def test_a_broken_cell_is_reported_and_the_others_are_checked(project):
    (project / "train.ipynb").write_bytes(notebook(IMPORT, "def f(:", CALL))
    found = records(lint(".", "--output-format", "json", cwd=project))
    assert [(item["code"], item["cell"]) for item in found] == [("CKPT903", 2), ("CKPT101", 3)]


def test_what_is_no_notebook_is_one_finding(project):
    (project / "train.ipynb").write_text('{"utils.checkpoint": 1')
    [found] = records(lint(".", "--output-format", "json", cwd=project))
    assert found["code"] == "CKPT903"
    assert found["message"].startswith("not a notebook: ")


@pytest.mark.parametrize("text", ["", "[]", '{"cells": 3}', "{}", '{"cells": [', '{"cells": []} x'])
def test_what_no_rule_would_read_must_be_a_notebook_too(project, text):
    (project / "train.ipynb").write_text(text)
    [found] = records(lint("train.ipynb", "--output-format", "json", cwd=project))
    assert (found["code"], found["message"].partition(":")[0]) == ("CKPT903", "not a notebook")
    (project / "train.ipynb").write_text('{"cells": [], "metadata": {}}\n')
    assert lint("train.ipynb", cwd=project).returncode == 0


def test_what_it_imports_may_be_what_makes_a_rule_speak(tmp_path):
    (tmp_path / "presets.py").write_text('SMALL = {"gradient_checkpointing_kwargs": {"use_reentrant": False}}\n')
    train = "from transformers import Trainer, TrainingArguments\nfrom presets import SMALL"
    build = 'args = TrainingArguments("out", **SMALL)\nTrainer(model, args=args).train()'
    for name, source in (("lines", lambda cell: cell.splitlines(keepends=True)), ("one", lambda cell: cell)):
        document = json.loads(notebook(train, build))
        for cell, text in zip(document["cells"], (train, build), strict=True):
            cell["source"] = source(text)
        (tmp_path / f"{name}.ipynb").write_text(json.dumps(document, indent=1))
    found = {
        record["filename"].rpartition("/")[2] for record in records(lint(".", "--output-format", "json", cwd=tmp_path))
    }
    assert found == {"lines.ipynb", "one.ipynb"}
