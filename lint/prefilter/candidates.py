"""Which files, and in them which rules, are worth a look: plain text search, far cheaper than parsing."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING

from ..rules import Rule, load_rule, load_rules
from . import triggers
from .rule_files import rule_files
from .words import ANY, STEM, Words

if TYPE_CHECKING:
    from collections.abc import Iterable


def mentions_api(text: str) -> bool:
    """False only when no rule can have anything to say about ``text``."""
    words = Words(text)
    return any(words.contains(trigger) for rule in load_rules() for trigger in rule.triggers)


def candidates(text: str, every: bool = True) -> list[Rule]:
    """The rules that can have something to say about ``text``; no others are loaded.

    Without ``every`` those that are off by default are left out.
    """
    words = Words(text)
    return [
        load_rule(file)
        for file, rule_triggers in _triggers_by_file()
        if (every or file not in triggers.OFF) and any(words.contains(trigger) for trigger in rule_triggers)
    ]


def named_in_part(text: str) -> frozenset[str]:
    """The codes of the rules of whose triggers only parts stand in ``text``: other files may give the rest."""
    words = Words(text)
    return frozenset(
        file[: len("ckpt101")].upper()
        for file, rule_triggers in _triggers_by_file()
        if not any(words.contains(trigger) for trigger in rule_triggers)
        and any(words.contains(part) for trigger in rule_triggers if not isinstance(trigger, str) for part in trigger)
    )


@cache
def _triggers_by_file() -> tuple[tuple[str, tuple[str | tuple[str, ...], ...]], ...]:
    if rule_files() == triggers.FILES:
        return tuple(zip(triggers.FILES, triggers.BY_FILE, strict=True))
    # A rule is being written: `python -m hf_ckpt.lint.generate` has not been run yet.
    return tuple((file, load_rule(file).triggers) for file in rule_files())


def without_implied(rules: Iterable[Rule]) -> tuple[tuple[str, ...], ...]:
    """The triggers of ``rules``, without those that others imply."""
    found = {(t,) if isinstance(t, str) else t for rule in rules for t in rule.triggers}
    kept: list[tuple[str, ...]] = []
    for trigger in sorted(found):
        if not any(_implies(trigger, other) for other in kept):
            kept = [other for other in kept if not _implies(other, trigger)] + [trigger]
    return tuple(kept)


def _implies(trigger: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether every text with the parts of ``trigger`` has those of ``other``."""
    return all(any(_holds(mine, part) for mine in trigger) for part in other)


def _holds(word: str, part: str) -> bool:
    """Whether every text with ``word`` has ``part``: one of several words may be there without what is in another."""
    return (part in word and ANY not in word) or part == word


def in_search_order(triggers: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    """``triggers`` with the word first that is found fast or that most of them ask for: where there is none, none fits.

    A word that stands in others counts for them: where there is no `checkpointing`, there is no `checkpointing_enable`.
    """
    asked = _asked(triggers)
    often = Counter(word for wanted in asked for word in wanted)

    def rank(word: str) -> tuple[bool, int, str]:
        return STEM not in word, -often[word], word

    return tuple(
        tuple(sorted({*trigger, min(wanted, key=rank)}, key=rank))
        for trigger, wanted in zip(triggers, asked, strict=True)
    )


def by_frequency(rules: Iterable[Rule]) -> tuple[tuple[str | tuple[str, ...], ...], ...]:
    """The triggers of each of ``rules``, in each the part first that is found fast or that most triggers ask for."""
    found = [rule.triggers for rule in rules]
    every = tuple((it,) if isinstance(it, str) else it for triggers in found for it in triggers)
    often = Counter(word for wanted in _asked(every) for word in wanted)
    return tuple(
        tuple(
            it if isinstance(it, str) else tuple(sorted(it, key=lambda word: (STEM not in word, -often[word])))
            for it in triggers
        )
        for triggers in found
    )


def _asked(triggers: tuple[tuple[str, ...], ...]) -> list[set[str]]:
    """The words that must stand in a text for each of ``triggers``, those inside of others too."""
    words = {part for trigger in triggers for part in trigger}
    return [{word for word in words if any(_holds(part, word) for part in trigger)} for trigger in triggers]
