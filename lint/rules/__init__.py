"""The rules, one a file. A new file in this folder is a new rule: there is no list to add it to.

A rule module defines ``CODE``, ``NAME``, ``SEVERITY``, ``NEEDS`` and ``check(run)``, may define ``VERSIONS``,
``DEFAULT``, ``RAISES``, ``STOPS_TRAINER`` and ``MAY_BE_MEANT``, and its docstring is its page. A file that does not fit
fails when the rules are loaded.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from ..finding import Finding, Severity
from ..prefilter.rule_files import rule_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType

    from ..finding import Fix, Note, Span
    from ..model.events import Trigger
    from ..model.needs import Needs
    from ..model.report import Report
    from ..model.run import Run

_REQUIRED = ("CODE", "NAME", "SEVERITY", "NEEDS", "check")


class Rule(NamedTuple):
    """A rule as the analysis runs it."""

    code: str
    name: str
    severity: Severity
    #: What at least one of is in every file the rule can report on: events, and words of its own.
    needs: tuple[Needs, ...]
    check: Callable[[Run], Iterable[Report]]
    #: The library versions the claim holds for: {"transformers": ">=5.23,<6"}.
    versions: Mapping[str, str]
    default: bool
    #: Whether the call that it reports raises itself, so that nothing after it runs.
    raises: bool
    #: Whether the Trainer that gets the arguments which it reports raises when it is built.
    stops_trainer: bool
    #: Whether it is about something that is off: where only the arguments of one command say so, they are meant.
    may_be_meant: bool

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        """Texts of which at least one is in every file the rule can report on; a tuple stands for all of its texts."""
        from ..model.needs import triggers  # start-up: the prefilter's generated table has them

        return triggers(self.needs)

    def finding(
        self, report: Report, filename: str, span: Span, notes: tuple[Note, ...] = (), fix: Fix | None = None
    ) -> Finding:
        """What the rule reports, confirmed at ``span``."""
        versions = report.versions or ", ".join(f"{library}{spec}" for library, spec in self.versions.items()) or None
        severity, condition = report.severity or self.severity, report.condition
        return Finding(
            self.code, self.name, severity, report.message, filename, span, notes, fix, versions, condition=condition
        )


class RuleError(Exception):
    """A file in this folder is not a rule."""


@cache
def load_rules() -> tuple[Rule, ...]:
    """All rules, sorted by code.

    Raises:
        RuleError: A file of the folder is no rule.
    """
    rules = tuple(load_rule(file) for file in rule_files())
    for field in ("code", "name"):
        counts = Counter(getattr(rule, field) for rule in rules)
        if shared := [value for value, count in counts.items() if count > 1]:
            raise RuleError(f"two rules share a {field}: {', '.join(shared)}")
    return rules


@cache
def load_rule(file: str) -> Rule:
    """The rule in ``file``.

    Raises:
        RuleError: The file is no rule.
    """
    name = file.removesuffix(".py")
    return _rule(import_module(f".{name}", __name__), name)


def _rule(module: ModuleType, file: str) -> Rule:
    missing = [name for name in _REQUIRED if not hasattr(module, name)]
    if missing or not _is_rule_file(file):
        problem = f"lacks {', '.join(missing)}" if missing else "is not named like ckpt101_some_name.py"
        raise RuleError(f"lint/rules/{file}.py {problem}")
    if f"CKPT{file[4:7]}" != module.CODE or not _is_rule_name(module.NAME):
        raise RuleError(f"lint/rules/{file}.py: code {module.CODE!r} or name {module.NAME!r} does not fit")
    if not module.__doc__ or not isinstance(module.NEEDS, tuple):
        raise RuleError(f"lint/rules/{file}.py: the docstring is the rule's page, NEEDS is a tuple of events and texts")
    return Rule(
        module.CODE,
        module.NAME,
        Severity(module.SEVERITY),
        module.NEEDS,
        module.check,
        getattr(module, "VERSIONS", {}),
        getattr(module, "DEFAULT", True),
        getattr(module, "RAISES", False),
        getattr(module, "STOPS_TRAINER", False),
        getattr(module, "MAY_BE_MEANT", False),
    )


def _is_rule_file(file: str) -> bool:
    """Whether it is named like ``ckpt101_some_name``; a regular expression costs more than a rule to load."""
    code, _, name = file.partition("_")
    return code.startswith("ckpt") and len(code) == 7 and code[4:].isdigit() and _is_lower(name.replace("_", ""))


def _is_rule_name(name: str) -> bool:
    words = name.split("-")
    return len(words) > 1 and all(map(_is_lower, words)) and name[0].isalpha()


def _is_lower(word: str) -> bool:
    return word.isascii() and word.isalnum() and word == word.lower()
