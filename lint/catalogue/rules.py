"""Every rule there is, as data: what ``--select`` chooses from and what ``ckpt-lint rule`` prints."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from .. import rules, tool_rules
from ..finding import Severity

if TYPE_CHECKING:
    from types import ModuleType


class Rule(NamedTuple):
    """A rule as its users know it."""

    code: str
    name: str
    severity: Severity
    #: The page: the Markdown docstring of the rule's module.
    page: str
    default: bool = True

    @property
    def summary(self) -> str:
        """The mistake: the first line of the page."""
        return self.page.strip().partition("\n")[0]


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule, sorted by code."""
    modules = [*_modules(rules), *_modules(tool_rules)]
    return tuple(sorted((_rule(module) for module in modules), key=lambda rule: rule.code))


def _modules(package: ModuleType) -> list[ModuleType]:
    names = sorted(name[:-3] for name in os.listdir(package.__path__[0]) if name.endswith(".py") and name[0] != "_")
    return [import_module(f".{name}", package.__name__) for name in names]


def _rule(module: ModuleType) -> Rule:
    return Rule(
        module.CODE,
        module.NAME,
        Severity(module.SEVERITY),
        module.__doc__ or "",
        getattr(module, "DEFAULT", True),
    )


def find_rule(code_or_name: str) -> Rule | None:
    """The rule with that code or name (case does not matter), or None."""
    wanted = code_or_name.casefold()
    return next((rule for rule in all_rules() if wanted in (rule.code.casefold(), rule.name)), None)
