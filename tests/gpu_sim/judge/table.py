"""The page of all cells. Pure, no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .subjects import ALIKE, ALL_KEPT, LEAST_ROOM, MOST_STEPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    #: Cells of one training on one card, by label.
    _Group = Mapping[str, Mapping[str, Any]]

GIB = 1 << 30
#: How far what is reserved may be from the plan and what it leaves to the allocator, as a share of the plan.
TOLERANCE = 0.03

_HEAD = """# Budgets on simulated cards

Written by `{command}`; every number is simulated (what that is and is not: [README.md](README.md)). Real are torch's
CUDA dispatch and its caching allocator, which reserves these bytes on a card of this size.

Batches of sequences of 2048 tokens, AdamW (fused); steps until {alike} in a row are alike under the same plan, {most} at most,
the last one is shown. GiB of the whole card, the CUDA context included. `auto` and `0.9 of the card` get batches that
would take about 1.5 times the room of the card without checkpointing, everything else 0.7 times. **planned** is what
the plan says is alive at the peak and what it leaves to the allocator; **reserved** is what the card had to give (in any
step: **ever**). **off** is reserved against planned, of shares, which bound what layers hold and not what the card gives,
allocated against planned. A cell misses when a step ran out of memory, when it is more than {tolerance:.0%} off, when the
card gave more than the budget, or when the last step waited for the card more often than under `HF's own` or asked it
for memory. A model that waits by itself (experts one by one, by tokens counted on the host) waits under all of them.
Where the card gives more than the budget under `full` too, no plan can help, and the product has to say so: then the
cell is **told**, which counts as neither planned nor missed; where it does not say so, it misses.

{summary}
"""
_COLUMNS = (
    "budget", "rows", "end of forward: planned", "allocated", "peak: planned", "allocated", "reserved", "off", "ever",
    "launches", "layers run", "",
)  # fmt: skip


_NO_ROOM = """{count} tables have no cell: the card has less than {least:.0%} of its memory beside the weights, their gradients, the
optimizer and what FSDP2 gathers. That is too little for the smallest step: with Llama 8B under FSDP2 on 24 GiB torch's
default allocator asks the card for memory in every step, even of 256 tokens that are all recomputed.

{names}"""


def page(cells: Sequence[Mapping[str, Any]], command: str, missing: int, roomless: Sequence[Sequence[str]]) -> str:
    """The whole page.

    Args:
        cells: What ``on_card`` printed, with ``card`` and ``allocator``.
        command: The command that made them.
        missing: How many tables were not run.
        roomless: Card, allocator, subject and setup of those that have no room.

    Returns:
        Markdown.
    """
    groups: dict[tuple[str, str, str, str], dict[str, Mapping[str, Any]]] = {}
    for cell in cells:
        names = (cell["card"], cell["allocator"], cell["subject"], cell["setup"])
        groups.setdefault(names, {})[cell["label"]] = cell
    parts = [
        _HEAD.format(
            command=command, most=MOST_STEPS, alike=ALIKE, tolerance=TOLERANCE, summary=_summary(groups.values())
        )
    ]
    if missing:
        parts.append(f"Tables that are not here yet, of other cards, models and allocators: {missing}.\n")
    if roomless:
        parts.append(_without_room(roomless))
    parts += [_told(groups), _by_cause(groups)]
    title = None
    for (card, allocator, subject, setup), group in groups.items():
        if title != (card, allocator):
            title = (card, allocator)
            total = next(iter(group.values()))["total"]
            parts.append(f"## {card} ({total / GIB:.2f} GiB), {allocator or 'default allocator'}\n")
        parts.append(f"{subject}, {setup}:\n\n{_table(group)}\n")
    return "\n".join(parts)


def _without_room(roomless: Sequence[Sequence[str]]) -> str:
    trainings: dict[str, dict[str, None]] = {}
    for card, _, subject, setup in roomless:
        trainings.setdefault(card, {})[f"{subject}, {setup}"] = None
    names = "".join(f"- {card}: {'; '.join(found)}\n" for card, found in trainings.items())
    return _NO_ROOM.format(least=LEAST_ROOM, count=len(roomless), names=names)


def _summary(groups: Iterable[_Group]) -> str:
    judged = [(cell, group) for group in groups for cell in group.values() if is_planned(cell)]
    planned, missed = [cell for cell, _ in judged], sum(bool(misses(*pair)) for pair in judged)
    told = sum(is_told(*pair) and not misses(*pair) for pair in judged)
    ran_out = sum(bool(cell.get("out_of_memory")) for cell in planned)
    fitting = [cell for cell in planned if not cell.get("out_of_memory") and not cell.get("failed")]
    off = max((abs(cell_off(cell) or 0.0) for cell in fitting), default=0.0)
    return (
        f"{len(planned)} cells with a budget, {len(planned) - missed - told} as planned, {told} told, {missed} miss; "
        f"{ran_out} ran out of memory; the rest is at most {off:.1%} off."
    )


def is_planned(cell: Mapping[str, Any]) -> bool:
    """Whether the cell has a budget."""
    return cell["label"][0].isdigit() or cell["label"] == "auto"


def cell_off(cell: Mapping[str, Any]) -> float | None:
    """By which share the card's bytes differ from planned; None where nothing was planned.

    Of a share of the saved tensors the plan says what is allocated; of bytes of the card what is reserved.
    """
    planned = cell.get("planned")
    if not planned or not cell.get("reserved"):
        return None
    bounds_card = cell["label"] in ALL_KEPT
    return (cell["reserved"] if bounds_card else cell["allocated"]) / (planned + cell["spare"]) - 1


def is_told(cell: Mapping[str, Any], others: _Group) -> bool:
    """Whether no plan keeps the card within the budget, which ``full`` shows, and the product said so."""
    return bool(cell.get("told")) and _is_hopeless(cell, others)


def _is_hopeless(cell: Mapping[str, Any], others: _Group) -> bool:
    full = others.get("full")
    if full is None or full.get("failed"):
        return False
    return bool(full["rows"] <= cell["rows"] and full["reserved"] > _given_at_most(cell))


def misses(cell: Mapping[str, Any], others: _Group) -> list[str]:
    """What is wrong with a cell that has a budget, beside those of the same training under other labels, by these."""
    if cell.get("failed"):
        return [cell["failed"]]
    if (cell["planned"] or 0) > cell["total"]:
        return []
    found = []
    if cell["out_of_memory"]:
        found.append(f"{cell['out_of_memory']} of {cell['steps']} steps ran out of memory")
    off = cell_off(cell)
    if off is None:
        found.append("no plan")
    elif abs(off) > TOLERANCE:
        found.append(f"{off:+.1%} from planned")
    if cell["label"] == "0.9 of the card" and cell["reserved"] > _given_at_most(cell) and not is_told(cell, others):
        found.append("over the budget")
    own_waits = others.get("HF's own", {}).get("synchronisations", 0)
    if cell["synchronisations"] > own_waits:
        found.append(f"{cell['synchronisations']} waits for the card, {own_waits} under HF's own")
    if cell["device_allocations"]:
        found.append(f"{cell['device_allocations']} allocations of the card")
    return found


def cause(cell: Mapping[str, Any], others: _Group) -> str:
    """Why a cell misses, from its figures and those of the same training under other labels, by these."""
    off, full = cell_off(cell), others.get("full")
    if full is not None and full.get("failed"):
        full = None
    if full is not None and (full["device_allocations"] or full["out_of_memory"]):
        return "the card is full under `full` too, which asks it for memory in its last step: no plan takes less"
    if _is_hopeless(cell, others):
        return "the card gives more than the budget under `full` too: no plan takes less"
    if cell["out_of_memory"]:
        return "a step ran out of memory"
    if off is None:
        return "no plan"
    if abs(cell["allocated"] / cell["planned"] - 1) > TOLERANCE:
        return "what is alive at the peak is not what is planned"
    if off < -TOLERANCE and cell["retries"]:
        return "plans leave more to the allocator than it takes: under those that leave less the card had nothing left"
    if off < -TOLERANCE:
        return "plans leave more to the allocator than it takes: the first step of a plan takes more than later ones"
    if cell["device_allocations"]:
        return f"the allocator's cache still grew in the last of {cell['steps']} steps"
    return "steps are alike, and the allocator takes more than the plan leaves to it"


def _given_at_most(cell: Mapping[str, Any]) -> float:
    return (0.9 if cell["label"] == "0.9 of the card" else 1.0) * float(cell["total"])


def _by_cause(groups: Mapping[tuple[str, str, str, str], _Group]) -> str:
    found: dict[str, list[str]] = {}
    for names, group in groups.items():
        for cell in group.values():
            if is_planned(cell) and misses(cell, group):
                why = "it failed" if cell.get("failed") else cause(cell, group)
                found.setdefault(why, []).append(", ".join(filter(None, (*names, cell["label"]))))
    if not found:
        return ""
    lines = [f"- {why} ({len(cells)}):\n" + "".join(f"  - {cell}\n" for cell in cells) for why, cells in found.items()]
    return "What misses, by cause:\n\n" + "".join(lines)


def _told(groups: Mapping[tuple[str, str, str, str], _Group]) -> str:
    found = [
        ", ".join(filter(None, (*names, cell["label"])))
        for names, group in groups.items()
        for cell in group.values()
        if is_planned(cell) and is_told(cell, group) and not misses(cell, group)
    ]
    return "Told that no plan takes less:\n\n" + "".join(f"- {cell}\n" for cell in found) if found else ""


def _table(group: _Group) -> str:
    lines = ["| " + " | ".join(_COLUMNS) + " |", "|" + "---|" * len(_COLUMNS)]
    lines += ["| " + " | ".join(_row(cell, group)) + " |" for cell in group.values()]
    return "\n".join(lines) + "\n"


def _row(cell: Mapping[str, Any], group: _Group) -> list[str]:
    if cell.get("failed"):
        return [cell["label"], str(cell["rows"]), *["" for _ in _COLUMNS[3:]], cell["failed"].partition(";")[0]]
    off, wrong = cell_off(cell), misses(cell, group) if is_planned(cell) else []
    if (cell["planned"] or 0) > cell["total"]:
        wrong = ["the plan says that it does not fit the card"]
    if not wrong and is_planned(cell) and is_told(cell, group):
        wrong = ["told: no plan takes less"]
    if not is_planned(cell) and cell["out_of_memory"]:
        wrong = [f"{cell['out_of_memory']} of {cell['steps']} steps ran out of memory"]
    planned = cell["planned"]
    return [
        cell["label"],
        str(cell["rows"]),
        _gib(cell["planned_held"]),
        _gib(cell["held"]),
        "" if planned is None else _gib(planned + cell["spare"]),
        _gib(cell["allocated"]),
        _gib(cell["reserved"]),
        "" if off is None else f"{off:+.1%}",
        _gib(cell["ever"]),
        str(cell["launches"]),
        ", ".join(mode or "as they are" for mode in cell["modes"]),
        "; ".join(wrong),
    ]


def _gib(nbytes: int | None) -> str:
    return "" if nbytes is None else f"{nbytes / GIB:.2f}"
