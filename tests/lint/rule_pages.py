"""The code blocks of the rules' pages, which are examples, tests and evidence at once."""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import NamedTuple

from hf_ckpt.lint.rules import Rule, load_rules

_BLOCK = re.compile(r"^```(python|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: What a block of each language is called when it is checked.
_FILES = {"python": "example.py", "yaml": "example.yaml"}
_ERROR = re.compile(r"#\s*error(?::\s*(?P<codes>CKPT\d{3}(?:,\s*CKPT\d{3})*))?\s*$")


class Example(NamedTuple):
    rule: Rule
    section: str
    code: str
    index: int
    filename: str = "example.py"

    @property
    def id(self) -> str:
        return f"{self.rule.code}-{self.section.lower()}-{self.index}"

    @property
    def expected(self) -> list[tuple[int, str]]:
        """(line, code) of every finding the block announces: `# error` is the rule's own code."""
        found = []
        for number, line in enumerate(self.code.splitlines(), 1):
            match = _ERROR.search(line)
            if match:
                codes = match["codes"] or self.rule.code
                found += [(number, code.strip()) for code in codes.split(",")]
        return found


def page(rule: Rule) -> dict[str, str]:
    """The sections of the rule's docstring by heading."""
    return _sections(sys.modules[rule.check.__module__].__doc__ or "")


@cache
def _sections(text: str) -> dict[str, str]:
    head, *sections = re.split(r"^## +(.+)$", text, flags=re.MULTILINE)
    return {"": head} | dict(zip(sections[::2], sections[1::2], strict=True))


def examples(section: str) -> list[Example]:
    return [
        Example(rule, section, code, index, _FILES[language])
        for rule in load_rules()
        for index, (language, code) in enumerate(_BLOCK.findall(page(rule).get(section, "")))
    ]
