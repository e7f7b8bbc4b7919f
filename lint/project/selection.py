"""``--select`` and ``--ignore``: selectors to the codes that are reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..catalogue.rules import Rule, all_rules
from .discover import excluded
from .settings import Settings, SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: A selector that names one rule beats every prefix.
_EXACT = 1000


def enabled_codes(settings: Settings, relative: str | None = None) -> frozenset[str]:
    """The codes that are reported in a file.

    As in ruff, the more specific selector wins (``select = ["CKPT1"], ignore = ["CKPT101"]``), and of two equally
    specific ones ``ignore`` does.

    Args:
        settings: The settings that hold for the file.
        relative: Its path from the root of the settings; None to leave ``per-file-ignores`` out.

    Raises:
        SettingsError: A selector means no rule.
    """
    where = settings.origin or "the command line"
    selected = _specificity((*(settings.select or ()), *settings.extend_select), where)
    ignored = _specificity(settings.ignore, where)
    if settings.per_file_ignores and relative is not None:
        for pattern, selectors in settings.per_file_ignores:
            if excluded(relative, [pattern]):
                ignored |= dict.fromkeys(_specificity(selectors, where), _EXACT + 1)
    return frozenset(rule.code for rule in all_rules() if _is_on(rule, settings, selected, ignored))


def check_selectors(settings: Settings) -> None:
    """Raise SettingsError if a selector of ``settings`` means no rule."""
    where = settings.origin or "the command line"
    lists = [
        settings.select or (),
        settings.extend_select,
        settings.ignore,
        *(selectors for _, selectors in settings.per_file_ignores),
    ]
    for selectors in lists:
        _specificity(selectors, where)


def _is_on(rule: Rule, settings: Settings, selected: dict[str, int], ignored: dict[str, int]) -> bool:
    default = 0 if settings.select is None and rule.default else -1
    return selected.get(rule.code, default) > ignored.get(rule.code, -1)


def _specificity(selectors: Iterable[str], where: str) -> dict[str, int]:
    """How specifically each code is meant by ``selectors``."""
    found: dict[str, int] = {}
    for selector in selectors:
        meant = {rule.code: weight for rule in all_rules() if (weight := _weight(selector, rule)) is not None}
        if not meant:
            raise SettingsError(f"no rule matches `{selector}` (from {where}){_suggestion(selector)}")
        for code, weight in meant.items():
            found[code] = max(weight, found.get(code, 0))
    return found


def _weight(selector: str, rule: Rule) -> int | None:
    wanted = selector.strip()
    if wanted.upper() == "ALL":
        return 1
    if wanted.upper() == rule.code or wanted.lower() == rule.name:
        return _EXACT
    return len(wanted) if wanted and rule.code.startswith(wanted.upper()) else None


def _suggestion(selector: str) -> str:
    import difflib  # start-up: only a misspelt code needs it

    known = [word for rule in all_rules() for word in (rule.code, rule.name)]
    close = difflib.get_close_matches(selector, known, 1)
    return f"; did you mean `{close[0]}`?" if close else "; `ckpt-lint rule --all` lists them"
