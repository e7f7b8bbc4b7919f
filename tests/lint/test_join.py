"""What the run of one file makes a mistake in another is reported there, when both are checked."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from command import ckpt_lint
from hf_ckpt.lint.analysis import check_files
from hf_ckpt.lint.analysis.check_files import check_paths
from hf_ckpt.lint.analysis.job import Job
from hf_ckpt.lint.project.baseline import compare
from hf_ckpt.lint.project.discover import discover
from hf_ckpt.lint.project.library_versions import project_ranges
from hf_ckpt.lint.project.settings import Settings

#: Under FSDP, several reentrant checkpoints in one unit are a mistake (CKPT302); alone they are none.
MODEL = """\
import torch.nn as nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(8, 2) for _ in range(4)])

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return x
"""
WRAP = "model = FullyShardedDataParallel(Net())\n"
TRAIN = f"""\
from torch.distributed.fsdp import FullyShardedDataParallel

from model import Net

{WRAP}"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(check_files, "CACHE_FROM", 0)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "model.py").write_text(MODEL)
    (tmp_path / "src" / "train.py").write_text(TRAIN)
    return tmp_path


def check(*paths, cache=None, **settings):
    project_ranges.cache_clear()
    chosen = Settings(root=os.getcwd(), **settings)
    return check_paths([Job(path, chosen) for path in discover(paths, lambda _: chosen).files], cache)


def found(results):
    return [(finding.filename, finding.span.line, finding.code) for result in results for finding in result.findings]


HERE = [("src/model.py", 12, "CKPT302")]


def test_it_is_reported_where_it_lies_and_only_in_files_that_are_checked(project):
    [finding] = [finding for result in check("src") for finding in result.findings]
    assert (finding.filename, finding.span.line, finding.code) == HERE[0]
    assert [(note.filename, note.span.line) for note in finding.notes] == [("src/train.py", 5)]
    assert found(check("src/train.py")) == []
    assert found(check("src/model.py")) == []
    assert found(check("src/train.py", "src/model.py")) == HERE
    (project / "src" / "again.py").write_text(TRAIN)
    assert found(check("src")) == HERE


def test_a_file_is_called_as_it_was_passed(project):
    absolute = str(project / "src" / "model.py")
    assert found(check("src/train.py", absolute)) == [(absolute, *HERE[0][1:])]
    assert found(check("./src")) == [("./src/model.py", *HERE[0][1:])]


def test_what_both_see_is_one_finding(project):
    text = MODEL.replace("self.layers = ", "self.norm = nn.BatchNorm1d(8)\n        self.layers = ")
    (project / "src" / "model.py").write_text(text.replace("checkpoint(layer", "checkpoint(self.norm"))
    assert found(check("src/model.py")) == [("src/model.py", 13, "CKPT106")]
    assert found(check("src")) == [("src/model.py", 13, "CKPT106"), ("src/model.py", 13, "CKPT302")]


def test_a_run_that_is_named_by_nothing_but_an_entry_point(project):
    (project / "src" / "wrap.py").write_text(
        "from torch.distributed.fsdp import FullyShardedDataParallel\n\n\n"
        "def wrap(model):\n    return FullyShardedDataParallel(model)\n"
    )
    (project / "src" / "train.py").write_text(
        "from model import Net\nfrom wrap import wrap\n\nif __name__ == '__main__':\n    wrap(Net())\n"
    )
    [finding] = [finding for result in check("src") for finding in result.findings]
    assert (finding.filename, finding.span.line, finding.code) == HERE[0]
    # The wrap decides; the script that brings the two together is said too.
    assert [(note.filename, note.span.line) for note in finding.notes] == [("src/wrap.py", 5), ("src/train.py", 1)]


@pytest.mark.parametrize("comment", ["# noqa: CKPT302", "# noqa", "# ckpt-lint: ignore[CKPT302] one step only"])
def test_a_comment_in_the_file_silences_it_and_is_not_unused(project, comment):
    (project / "src" / "model.py").write_text(MODEL.replace("=True)", f"=True)  {comment}"))
    assert found(check("src")) == []
    # Nor is it when a commit holds the file alone.
    assert found(check("src/model.py")) == []


def test_a_comment_in_the_script_does_not_silence_it(project):
    (project / "src" / "train.py").write_text("# ckpt-lint: ignore-file\n" + TRAIN)
    assert found(check("src")) == HERE


def test_the_settings_of_the_file_hold(project):
    assert found(check("src", per_file_ignores=(("src/model.py", ("CKPT302",)),))) == []
    assert found(check("src", per_file_ignores=(("src/train.py", ("CKPT302",)),))) == HERE
    assert found(check("src", ignore=("CKPT3",))) == []
    assert found(check("src", select=("CKPT302",))) == HERE
    assert found(check("src", exclude=("model.py",))) == []


def test_a_baseline_knows_it(project):
    assert found(compare("known.json", check("src"), write=True)) == []
    assert found(compare("known.json", check("src"), write=False)) == []


def test_processes_change_nothing(project, monkeypatch):
    alone = check("src")
    monkeypatch.setattr(check_files, "POOL_FROM", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert check("src") == alone


def test_a_cached_run_reports_what_a_fresh_one_would(project):
    choose = random.Random(0)
    models = (MODEL, MODEL.replace("=True", "=False"), MODEL.replace("=True)", "=True)  # noqa: CKPT302"), "", "def (")
    scripts = (TRAIN, TRAIN.replace("model import", "other import"), "import model\n", f"from model import *\n{TRAIN}")
    passed = (["src"], ["src/train.py"], ["src/model.py"], ["src/train.py", "src/model.py"])
    for _ in range(40):
        name, texts = choose.choice((("model.py", models), ("train.py", scripts), ("other.py", models)))
        (project / "src" / name).write_text(choose.choice(texts))
        paths = choose.choice(passed)
        assert check(*paths, cache="cache") == check(*paths)


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("import model", "model.Net()"),
        ("import model as m", "m.Net()"),
        ("from model import Net as N", "N()"),
        ("from model import *", "Net()"),
        ("from model import (\n    Net,  # the network\n)", "Net()"),
        ("from package import model", "model.Net()"),
        ("from package import Net", "Net()"),
        ("from package.model import Net", "Net()"),
        ("import package.model", "package.model.Net()"),
        ("import package.model as m", "m.Net()"),
        ("from .model import Net", "Net()"),
        ("from . import model", "model.Net()"),
        ("from inner.model import Net", "Net()"),
        ("if True:\n    from model import Net", "Net()"),
        ("try:\n    from model import Net\nexcept ImportError:\n    raise", "Net()"),
        ("def main():\n    from model import Net\n    return Net()", "main()"),
    ],
)
def test_ways_to_import(project, line, call):
    for folder, init in (("package", "from .model import Net\n"), ("inner", None)):
        (project / "src" / folder).mkdir()
        (project / "src" / folder / "model.py").write_text(MODEL)
        if init is not None:
            (project / "src" / folder / "__init__.py").write_text(init)
    head = "from torch.distributed.fsdp import FullyShardedDataParallel\n"
    (project / "src" / "train.py").write_text(f"{head}{line}\nFullyShardedDataParallel({call})\n")
    assert [code for _, _, code in found(check("src"))] == ["CKPT302"]


def test_what_runs_only_as_a_script_does_not_run_when_it_is_imported(project):
    (project / "src" / "model.py").write_text(
        MODEL + "\n\nif __name__ == '__main__':\n    from torch.distributed.fsdp import FullyShardedDataParallel\n"
        "    FullyShardedDataParallel(Net())\n"
    )
    (project / "src" / "train.py").write_text("from model import Net\nmodel = Net()\nmodel(x).backward()\n")
    assert found(check("src/model.py")) == HERE
    other = MODEL.replace("reentrant=True", "reentrant=MODE").replace("class", "MODE = False\n\n\nclass")
    (project / "src" / "model.py").write_text(f"{other}\n\nif __name__ == '__main__':\n    MODE = True\n")
    (project / "src" / "train.py").write_text(TRAIN)
    assert found(check("src")) == []


def run(*arguments):
    return ckpt_lint(*arguments, cwd=Path.cwd())


def test_fixes_are_made_where_the_finding_lies(project):
    model = project / "src" / "model.py"
    diff = run("--diff", "--unsafe-fixes", "src")
    assert diff.returncode == 1
    assert "+            x = checkpoint(layer, x, use_reentrant=False)" in diff.stdout
    assert model.read_text() == MODEL
    kept = run("--fix", "src")
    assert kept.returncode == 1
    assert "CKPT302" in kept.stdout
    assert model.read_text() == MODEL
    process = run("--fix", "--unsafe-fixes", "src")
    assert (process.returncode, model.read_text()) == (0, MODEL.replace("=True", "=False"))
    assert (project / "src" / "train.py").read_text() == TRAIN
    assert found(check("src")) == []


def test_fixes_of_both_kinds_are_made_in_one_go(project):
    model = project / "src" / "model.py"
    model.write_text(
        MODEL + "\n\ndef late(layers, x):\n    for layer in layers:\n"
        "        x = checkpoint(lambda h: layer(h), x, use_reentrant=False)\n    return x\n"
    )
    assert {code for _, _, code in found(check("src"))} == {"CKPT105", "CKPT302"}
    assert run("--fix", "--unsafe-fixes", "src").returncode == 0
    assert found(check("src")) == []


def test_it_can_be_silenced_by_the_command(project):
    process = run("--add-ignore=measured", "src")
    assert process.returncode == 0
    assert "Silenced 1 in 1 file." in process.stderr
    line = "            x = checkpoint(layer, x, use_reentrant=True)  # ckpt-lint: ignore[CKPT302] measured\n"
    assert line in (project / "src" / "model.py").read_text()
    assert found(check("src")) == []


def test_model_arguments_and_script_in_three_files(project):
    (project / "src" / "model.py").write_text(
        "from transformers import AutoModelForCausalLM\n\n\ndef build(name):\n"
        "    model = AutoModelForCausalLM.from_pretrained(name)\n"
        '    model.gradient_checkpointing_enable({"use_reentrant": True})\n    return model\n'
    )
    (project / "src" / "arguments.py").write_text(
        "from transformers import TrainingArguments\n\n\ndef arguments():\n"
        '    return TrainingArguments("out", activation_checkpointing=True)\n'
    )
    (project / "src" / "train.py").write_text(
        "from arguments import arguments\nfrom model import build\nfrom transformers import Trainer\n\n"
        'Trainer(model=build("m"), args=arguments()).train()\n'
    )
    [finding] = [finding for result in check("src") for finding in result.findings]
    assert (finding.filename, finding.span.line, finding.code) == ("src/model.py", 6, "CKPT202")
    assert [(note.filename, note.span.line) for note in finding.notes] == [("src/arguments.py", 5), ("src/train.py", 5)]
    assert found(check("src/model.py", "src/arguments.py")) == []
