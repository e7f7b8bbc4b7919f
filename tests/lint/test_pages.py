import re
from pathlib import Path

import pytest
from hf_ckpt.lint import check_source, generate
from hf_ckpt.lint.catalogue.pages import as_json, page
from hf_ckpt.lint.catalogue.pitfalls import PITFALLS
from hf_ckpt.lint.catalogue.rules import all_rules, find_rule
from hf_ckpt.lint.sources.edits import apply_edits

HINT = "run `python -m hf_ckpt.lint.generate`"


def test_what_is_generated_from_the_rules_is_up_to_date():
    text = Path(generate.README).read_text("utf-8")
    assert generate.readme(text) == text, HINT
    assert Path(generate.TRIGGERS).read_text("utf-8") == generate.triggers_module(), HINT


def test_codes_and_names_are_unique_and_found_by_either():
    rules = all_rules()
    assert len({rule.code for rule in rules}) == len({rule.name for rule in rules}) == len(rules)
    for rule in rules:
        assert find_rule(rule.code.lower()) is find_rule(rule.name) is rule


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_every_page_renders_and_says_what_and_why(rule, capsys):
    from rich.console import Console
    from rich.markdown import Markdown

    text = page(rule)
    assert text.startswith(f"# {rule.name} ({rule.code})\n")
    assert re.match(r"(?!Allow )[A-Z`]", rule.summary), "the first line of a page is the mistake"
    assert rule.summary.endswith(".")
    for heading in ("## What it does", "## Why is this bad?", "## Bad", "## Good"):
        assert heading in text
    Console(width=100).print(Markdown(text))
    assert "What it does" in capsys.readouterr().out
    assert rule.code in as_json((rule,), many=False)


def test_every_measured_pitfall_has_a_rule_or_a_reason():
    assert [pitfall.code for pitfall in PITFALLS] == [f"CK{number:02}" for number in range(1, 58)]
    unseen = {pitfall.code for pitfall in PITFALLS if not pitfall.rules}
    assert unseen == {"CK36", "CK37", "CK38", "CK52", "CK53", "CK54", "CK55", "CK57"}
    for pitfall in PITFALLS:
        assert bool(pitfall.rules) != bool(pitfall.at_run_time)
        assert all(find_rule(code) is not None for code in pitfall.rules)


def blocks(text, heading):
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return section.partition("```python\n")[2].partition("```")[0]


@pytest.mark.parametrize("code", ["CKPT901", "CKPT903"])
def test_the_examples_of_the_tools_own_rules(code):
    text = page(find_rule(code))
    bad, good = blocks(text, "Bad"), blocks(text, "Good")
    [found] = check_source(bad)
    assert found.code == code
    assert check_source(good) == []
    if found.fix is not None:
        assert check_source(apply_edits(bad, found.fix.edits)) == []
