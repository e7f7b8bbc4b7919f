"""Every rule's page holds what it shows: bad is reported, good is not, fixes do what they should."""

from __future__ import annotations

import io
import tokenize
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hf_ckpt.lint.apply import MAX_ROUNDS, apply_edits, compatible
from hf_ckpt.lint.check import check_source
from hf_ckpt.lint.prefilter import mentions_api
from hf_ckpt.lint.rules import Rule, load_rules
from rule_pages import Example, examples, page

if TYPE_CHECKING:
    from hf_ckpt.lint.finding import Finding

HEADINGS = ("What it does", "Why is this bad?", "Bad", "Good", "Evidence", "References")
BAD, GOOD = examples("Bad"), examples("Good")


ON_BY_DEFAULT = {rule.code for rule in load_rules() if rule.default}


def found(code: str, rule: Rule) -> list[Finding]:
    """The findings under the rules that are on by default and ``rule``."""
    return check_source(code, "example.py", select=ON_BY_DEFAULT.union({rule.code}).__contains__)


def fixable(example: Example) -> list[Finding]:
    return [finding for finding in found(example.code, example.rule) if finding.fix and finding.fix.edits]


def fixed(code: str, rule: Rule) -> str:
    """``code`` after all fixes of one rule, safe or not."""
    for _ in range(MAX_ROUNDS):
        chosen = compatible([finding for finding in found(code, rule) if finding.code == rule.code], unsafe=True)
        if not chosen:
            return code
        code = apply_edits(code, [edit for _, fix in chosen for edit in fix.edits])
        compile(code, "fixed.py", "exec")
    pytest.fail("the fixes do not converge")


def comments(code: str) -> Counter[str]:
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    return Counter(token.string for token in tokens if token.type == tokenize.COMMENT)


@pytest.mark.parametrize("rule", load_rules(), ids=lambda rule: rule.code)
def test_page_has_every_section(rule):
    sections = page(rule)
    assert sections[""].startswith("Allow "), "names read as 'allow <name>', and so does the first line"
    assert [heading for heading in HEADINGS if heading not in sections] == []
    has_fix = any(
        finding.fix for example in BAD if example.rule is rule for finding in found(example.code, example.rule)
    )
    assert has_fix == ("Fix safety" in sections)


@pytest.mark.parametrize("example", BAD, ids=lambda example: example.id)
def test_bad_is_reported_at_its_lines_and_nowhere_else(example):
    assert example.expected
    assert mentions_api(example.code.encode())
    assert [(finding.span.line, finding.code) for finding in found(example.code, example.rule)] == example.expected


@pytest.mark.parametrize("example", GOOD, ids=lambda example: example.id)
def test_good_is_silent_under_all_rules(example):
    assert [(finding.span.line, finding.code, finding.message) for finding in found(example.code, example.rule)] == []


@pytest.mark.parametrize("example", [example for example in BAD if fixable(example)], ids=lambda example: example.id)
def test_fix_removes_the_finding_and_nothing_else(example):
    after = fixed(example.code, example.rule)
    left = [finding for finding in found(after, example.rule) if finding.code == example.rule.code]
    assert not any(finding.fix for finding in left if finding.fix and finding.fix.applicability != "display")
    assert fixed(after, example.rule) == after
    lost = comments(example.code) - comments(after)
    assert not lost, f"comments lost: {lost}"
    new = {finding.code for finding in found(after, example.rule)} - {
        finding.code for finding in found(example.code, example.rule)
    }
    assert not new, f"the fix brings in {new}"
