"""Every rule's page holds what it shows: bad is reported, good is not, fixes do what they should."""

from __future__ import annotations

import io
import re
import tokenize
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hf_ckpt.lint import rules
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.configs import PROGRAM, is_config, is_settings
from hf_ckpt.lint.configs.check import check_in_runs
from hf_ckpt.lint.configs.reading import parses
from hf_ckpt.lint.configs.yaml_text import comments_in
from hf_ckpt.lint.fix.apply import MAX_ROUNDS, compatible
from hf_ckpt.lint.prefilter.candidates import mentions_api
from hf_ckpt.lint.rules import RuleError, load_rules
from hf_ckpt.lint.sources.edits import apply_edits
from hf_ckpt.lint.sources.source import Source
from rule_pages import Example, examples, page

if TYPE_CHECKING:
    from hf_ckpt.lint.finding import Finding

HEADINGS = ("What it does", "Why is this bad?", "Bad", "Good", "Evidence", "References")
BAD, GOOD = examples("Bad"), examples("Good")


ON_BY_DEFAULT = {rule.code for rule in load_rules() if rule.default}


def found(example: Example) -> list[Finding]:
    """The findings under the rules that are on by default and the example's own."""
    return _found(example.code, example.filename, example.rule.code)


@cache
def _found(code: str, filename: str, rule: str) -> list[Finding]:
    wanted = ON_BY_DEFAULT.union({rule}).__contains__
    if is_config(filename):
        return check_in_runs(Source(filename, code), (), wanted, {}, reported=lambda file: False)
    return check_source(code, filename, select=wanted)


def fixable(example: Example) -> bool:
    """Whether anything is fixed in it; nothing is where the page has no word on that."""
    return "Fix safety" in page(example.rule) and any(finding.fix and finding.fix.edits for finding in found(example))


def fixed(example: Example) -> Example:
    """``example`` after all fixes of its rule, safe or not."""
    for _ in range(MAX_ROUNDS):
        own = [finding for finding in found(example) if finding.code == example.rule.code]
        chosen = compatible(own, unsafe=True)
        if not chosen:
            return example
        example = example._replace(code=apply_edits(example.code, [edit for _, fix in chosen for edit in fix.edits]))
        if is_config(example.filename):
            assert parses(example.filename, example.code)
        else:
            compile(example.code, "fixed.py", "exec")
    pytest.fail("the fixes do not converge")


def comments(example: Example) -> Counter[str]:
    if is_config(example.filename):
        return Counter(text for _, text in comments_in(example.code))
    tokens = tokenize.generate_tokens(io.StringIO(example.code).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


def test_a_code_that_stands_twice_is_named_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    files = rules.rule_files()
    monkeypatch.setattr(rules, "rule_files", lambda: [*files, files[3]])
    code = rules.load_rule(files[3]).code
    with pytest.raises(RuleError, match=f"^two rules share a code: {code}$"):
        load_rules.__wrapped__()


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.code)
def test_page_has_every_section(rule):
    sections = page(rule)
    assert re.match(r"(?!Allow )[A-Z`]", sections[""]), "the first line of a page is the mistake"
    assert [heading for heading in HEADINGS if heading not in sections] == []
    has_fix = any(finding.fix for example in BAD if example.rule is rule for finding in found(example))
    assert has_fix == ("Fix safety" in sections)


@pytest.mark.parametrize("example", BAD, ids=lambda example: example.id)
def test_bad_is_reported_at_its_lines_and_nowhere_else(example):
    assert example.expected
    assert mentions_api(PROGRAM + example.code if is_settings(example.filename) else example.code)
    assert [(finding.span.line, finding.code) for finding in found(example)] == example.expected


@pytest.mark.parametrize("example", GOOD, ids=lambda example: example.id)
def test_good_is_silent_under_all_rules(example):
    assert [(finding.span.line, finding.code, finding.message) for finding in found(example)] == []


@pytest.mark.parametrize("example", [example for example in BAD if fixable(example)], ids=lambda example: example.id)
def test_fix_removes_the_finding_and_nothing_else(example):
    after = fixed(example)
    left = [finding for finding in found(after) if finding.code == example.rule.code]
    assert not any(finding.fix for finding in left if finding.fix and finding.fix.applicability != "display")
    assert fixed(after) == after
    lost = comments(example) - comments(after)
    assert not lost, f"comments lost: {lost}"
    new = {finding.code for finding in found(after)} - {finding.code for finding in found(example)}
    assert not new, f"the fix brings in {new}"
