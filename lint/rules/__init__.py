"""The rules, one a file. A new file in this folder is a new rule: there is no list to add it to.

A rule module defines ``CODE``, ``NAME``, ``SEVERITY``, ``TRIGGERS`` and ``check(run)``, may define ``VERSIONS`` and
``DEFAULT``, and its docstring is its page. A file that does not fit fails when the rules are loaded.
"""

from __future__ import annotations

import os
import re
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ..finding import Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType

    from ..model.report import Report
    from ..model.run import Run

_FILE = re.compile(r"ckpt(\d{3})_[a-z0-9_]+\Z")
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)+\Z")
_REQUIRED = ("CODE", "NAME", "SEVERITY", "TRIGGERS", "check")


class Rule(NamedTuple):
    """A rule as the analysis runs it."""

    code: str
    name: str
    severity: Severity
    #: Texts of which at least one stands in every file the rule can report on; a tuple stands for all of its texts.
    triggers: tuple[str | tuple[str, ...], ...]
    check: Callable[[Run], Iterable[Report]]
    #: The library versions the claim holds for: {"transformers": ">=5.23,<6"}.
    versions: Mapping[str, str]
    default: bool


class RuleError(Exception):
    """A file in this folder is not a rule."""


@cache
def load_rules() -> tuple[Rule, ...]:
    """All rules, sorted by code. Raises RuleError for a file that is none."""
    rules = tuple(load_rule(file) for file in rule_files())
    for field in ("code", "name"):
        values = [getattr(rule, field) for rule in rules]
        if len(set(values)) < len(values):
            raise RuleError(f"two rules share a {field}: {sorted(values)}")
    return rules


@cache
def rule_files() -> tuple[str, ...]:
    """The names of the files in this folder that are rules, sorted."""
    files = os.listdir(os.path.dirname(__file__))
    return tuple(sorted(file for file in files if file.endswith(".py") and file[0] != "_"))


@cache
def load_rule(file: str) -> Rule:
    """The rule in ``file``. Raises RuleError for a file that is none."""
    name = file.removesuffix(".py")
    return _rule(import_module(f".{name}", __name__), name)


def _rule(module: ModuleType, file: str) -> Rule:
    match = _FILE.match(file)
    missing = [name for name in _REQUIRED if not hasattr(module, name)]
    if match is None or missing:
        problem = f"lacks {', '.join(missing)}" if missing else "is not named like ckpt101_some_name.py"
        raise RuleError(f"lint/rules/{file}.py {problem}")
    if f"CKPT{match[1]}" != module.CODE or not _NAME.match(module.NAME):
        raise RuleError(f"lint/rules/{file}.py: code {module.CODE!r} or name {module.NAME!r} does not fit")
    if not module.__doc__ or not isinstance(module.TRIGGERS, tuple):
        raise RuleError(f"lint/rules/{file}.py: the docstring is the rule's page, TRIGGERS is a tuple of texts")
    return Rule(
        module.CODE,
        module.NAME,
        Severity(module.SEVERITY),
        module.TRIGGERS,
        module.check,
        getattr(module, "VERSIONS", {}),
        getattr(module, "DEFAULT", True),
    )
