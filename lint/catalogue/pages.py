"""Rule pages: the Markdown docstring of each rule, and the table of all rules."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from .urls import page_url

if TYPE_CHECKING:
    from .rules import Rule

_GROUPS = {
    "CKPT1": "Wrong gradients or lost training",
    "CKPT2": "Settings without effect",
    "CKPT3": "Crash or hang",
    "CKPT4": "Waste",
    "CKPT5": "Migration",
    "CKPT9": "The tool itself",
}


def page(rule: Rule) -> str:
    """The page of one rule as Markdown."""
    default = "" if rule.default else " Off by default: select it to use it."
    return f"# {rule.name} ({rule.code})\n\nSeverity: {rule.severity}.{default}\n\n{rule.page.strip()}\n"


def table(rules: tuple[Rule, ...]) -> str:
    """All rules as Markdown tables, one for each block of codes."""
    parts: list[str] = []
    for prefix, title in _GROUPS.items():
        group = [rule for rule in rules if rule.code.startswith(prefix)]
        if group:
            parts.append(f"## {prefix}xx: {title}\n\n{_rows(group)}")
    return "\n".join(parts)


def _rows(group: list[Rule]) -> str:
    lines = ["| code | name | severity | what it is about |", "|---|---|---|---|"]
    for rule in group:
        summary = rule.summary.replace("|", "\\|")
        default = "" if rule.default else " (off by default)"
        lines.append(f"| {rule.code} | `{rule.name}` | {rule.severity}{default} | {summary} |")
    return "\n".join(lines) + "\n"


def show(markdown: str) -> None:
    """Print Markdown: rendered on a terminal, as it is elsewhere."""
    if not sys.stdout.isatty():
        print(markdown, end="")
        return
    # Start-up: only a terminal shows pages in colours.
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(markdown))


def as_json(rules: tuple[Rule, ...], many: bool) -> str:
    """The rules as JSON: an array when ``many``, else one object."""
    records = [
        {
            "code": rule.code,
            "name": rule.name,
            "severity": str(rule.severity),
            "summary": rule.summary,
            "url": page_url(rule.code),
            "default": rule.default,
            "explanation": rule.page.strip(),
        }
        for rule in rules
    ]
    return json.dumps(records if many else records[0], indent=2)
