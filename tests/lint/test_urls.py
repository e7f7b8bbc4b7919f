"""Every rule has a page that its findings link to."""

import json
from pathlib import Path

import pytest
from hf_ckpt.lint import check_source
from hf_ckpt.lint.analysis.result import FileResult
from hf_ckpt.lint.catalogue.rules import all_rules
from hf_ckpt.lint.catalogue.urls import page_file, page_url
from hf_ckpt.lint.output.formats import render
from hf_ckpt.lint.output.report import build_report

ROOT = Path(__file__).parents[2]
CODE = "from torch.utils.checkpoint import checkpoint\n\ny = checkpoint(f, x)\nz = checkpoint(f, y)\n"


@pytest.fixture
def report():
    return build_report([FileResult("a.py", tuple(check_source(CODE, "a.py")))], (("a.py", CODE.encode()),))


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_the_url_of_a_rule_leads_to_its_page(rule):
    url = page_url(rule.code)
    path = url[url.index("lint/") :]
    assert (ROOT / path).samefile(page_file(rule.code))
    assert f'"{rule.code}"' in (ROOT / path).read_text()


def test_a_code_that_is_no_rule_has_no_page():
    assert page_url("CKPT000") is None


def test_findings_carry_the_url_of_their_rule(report):
    url = page_url("CKPT101")
    assert {item["url"] for item in json.loads(render(report, "json"))} == {url}
    [run] = json.loads(render(report, "sarif"))["runs"]
    assert run["tool"]["driver"]["rules"][0]["helpUri"] == url
    assert run["tool"]["driver"]["informationUri"].endswith("lint/README.md")
    assert all(url in issue["content"]["body"] for issue in json.loads(render(report, "gitlab")))


def test_sarif_tells_equal_findings_apart_and_survives_moves(report):
    def prints(report):
        results = json.loads(render(report, "sarif"))["runs"][0]["results"]
        return [result["partialFingerprints"]["ckptLint/v1"] for result in results]

    moved = "\n\n\n" + CODE
    after = build_report([FileResult("a.py", tuple(check_source(moved, "a.py")))], (("a.py", moved.encode()),))
    assert len(set(prints(report))) == 2
    assert prints(after) == prints(report)
