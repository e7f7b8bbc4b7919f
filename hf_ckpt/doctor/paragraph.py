"""An out-of-memory error in one paragraph: what held the memory, what changed, what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.filesize import decimal

from .census.census import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .cause import Found
    from .evidence import Evidence

#: Kinds below this share of what is used are added up as the rest.
_SMALL = 0.01


def paragraph(evidence: Evidence, found: Sequence[Found], remedies: Sequence[str] = ()) -> str:
    """The paragraph.

    Args:
        evidence: What is known.
        found: The causes, the one that explains most first.
        remedies: What would have fitted, a sentence each.
    """
    return " ".join([_where(evidence), _held(evidence), *_causes(evidence, found), *remedies])


def _where(evidence: Evidence) -> str:
    step = "" if evidence.step is None else f" of step {evidence.step.number}"
    card = f" on {evidence.card}" if evidence.card else ""
    asked = "" if evidence.asked is None else f", which asked for {decimal(evidence.asked)}"
    return f"Out of memory in the {evidence.phase}{step}{card}{asked}."


def _held(evidence: Evidence) -> str:
    usage = evidence.usage
    used = usage.live + usage.unused + usage.others
    of = "" if usage.total is None else f" of {decimal(usage.total)}"
    return f"In use were {decimal(used)}{of}: {', '.join(_parts(evidence))}."


def _parts(evidence: Evidence) -> Iterator[str]:
    bytes_of = evidence.census.bytes_of
    least = _SMALL * evidence.usage.live
    shown = [kind for kind in Kind if bytes_of.get(kind, 0) > least and kind is not Kind.NAMED]
    for kind in shown:
        yield f"{kind} {decimal(bytes_of[kind])}"
    named = [held for held in evidence.census.holdings if held.nbytes > least]
    for held in named:
        yield f"`{held.name}` {decimal(held.nbytes)}"
    rest = sum(bytes_of.values()) - sum(bytes_of[kind] for kind in shown) - sum(held.nbytes for held in named)
    if rest > 0:
        yield f"other {decimal(rest)}"
    if evidence.usage.unused > least:
        yield f"reserved but unused {decimal(evidence.usage.unused)}"
    if evidence.usage.others > least:
        yield f"other processes and the driver {decimal(evidence.usage.others)}"


def _causes(evidence: Evidence, found: Sequence[Found]) -> Iterator[str]:
    if not found:
        yield "No step has fitted yet." if not evidence.fitted else "Nothing that was measured sets this step apart."
    yield from causes_in_words(found)


def causes_in_words(found: Sequence[Found]) -> Iterator[str]:
    """A sentence for each cause, and one for what to do about it."""
    for number, cause in enumerate(found):
        at = "" if cause.place is None else f" ({cause.place})"
        yield f"{'Cause' if number == 0 else 'Also'}: {cause.what}{at}." + (
            f" To do: {cause.remedy}." if cause.remedy else ""
        )
