"""What to do about the forecasts: the line to paste, what is missing, whether sharding would do better."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal

from ...planner.memory.setup import Spread
from ...policy import parse_policy
from .rows import fastest, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..study import Model
    from .rows import Row

#: Chunks of parts of layers, and of the loss head, that are tried where nothing fits without.
CHUNKS = 8
_ALL_PARTS = f"mlp({CHUNKS})+norm({CHUNKS})+attention({CHUNKS})"
#: What takes least memory of the device, without chunks and with them.
THRIFTIER = (
    "full",
    f"full+head({CHUNKS})",
    f"full+mlp({CHUNKS})",
    f"full+mlp({CHUNKS})+head({CHUNKS})",
    f"full+{_ALL_PARTS}+head({CHUNKS})",
)
#: What is tried where that does not fit, of a device with a link to host memory.
OFFLOADED = ("budget=auto+offload", f"budget=auto+offload+mlp({CHUNKS})", f"budget=auto+offload+{_ALL_PARTS}")


@dataclass(frozen=True, slots=True)
class Sharding:
    """What it would change to shard weights, gradients and optimizer over ``gpus`` cards.

    Attributes:
        gpus: Cards.
        frees_bytes: Bytes less on each card.
        moved_bytes: Bytes of weights and gradients that a card then receives in a step.
        policy: The least recomputing policy that fits then; None when none does.
        saves_seconds: What it saves of the recomputation of a step, before any waiting for the other cards.
    """

    gpus: int
    frees_bytes: int
    moved_bytes: int
    policy: str | None
    saves_seconds: float | None


def sharding(model: Model, rows: Sequence[Row]) -> Sharding | None:
    """Compare recomputing with sharding more; None where nothing recomputes, or no memory is known."""
    best = fastest(rows)
    if model.total is None or model.setup.in_turn or (best is not None and not best.added_seconds):
        return None
    setup = model.setup
    sharded = setup.spread is not None and setup.spread.gathers
    gpus = 2 * setup.gpus if sharded or setup.gpus == 1 else setup.gpus
    spread = setup.spread if sharded else Spread.FSDP
    then = model.standing_under(replace(setup, gpus=gpus, spread=spread))
    freed = _all_of(model.standing) - _all_of(then)
    known = [row for row in rows if row.error is None and row.total_bytes is not None]
    study, beside = model.study(rows[0].batch, rows[0].length), then.all_along
    fitting = [row for row in known if study.leaves_room((row.total_bytes or 0) - freed, beside)]
    least = min(fitting, key=lambda row: row.added_seconds or 0.0, default=None)
    if freed <= 0:
        return None
    saves = None
    if least is not None and best is not None:
        saves = (best.added_seconds or 0.0) - (least.added_seconds or 0.0)
    return Sharding(gpus, freed, then.moved, None if least is None else least.policy, saves)


def _all_of(standing: Any) -> int:
    total: int = standing.all_along + standing.in_backward
    return total


def lines(model: Model, rows: Sequence[Row]) -> Iterator[str]:
    """The advice for the rows of one size, a sentence each."""
    best = fastest(rows)
    if best is None:
        yield from _nothing_fits(model, rows)
        yield from _thriftier(model, rows)
    elif best.policy == "none":
        yield f"{best.batch} x {best.length} tokens fit without checkpointing."
    else:
        yield f'Fastest that fits at {best.batch} x {best.length} tokens: callbacks=[SelectiveCkpt("{best.policy}")]'
    found = sharding(model, rows)
    if found is not None:
        yield _of_sharding(found, best)


def _nothing_fits(model: Model, rows: Sequence[Row]) -> Iterator[str]:
    known = [row for row in rows if row.total_bytes is not None]
    if not known or model.total is None:
        yield "Nothing fits: use a smaller batch, shorter sequences, LoRA, or shard the model."
        return
    least = min(known, key=lambda row: row.total_bytes or 0)
    state = max((card.standing for card in model.cards), default=model.standing.all_along + model.standing.gradients)
    taken = decimal(least.total_bytes or 0)
    if least.tight:
        yield (
            f"`{least.policy}` is tight: {taken} are alive in {decimal(model.total)}, and torch's allocator takes more "
            "than that; it may run out of memory."
        )
    else:
        yield f"Nothing fits in {decimal(model.total)}: the least, `{least.policy}`, takes {taken}."
    if state > model.total:
        yield (
            f"Weights, gradients and optimizer alone take {decimal(state)}: use LoRA, an 8-bit optimizer, or shard the "
            "model."
        )
    else:
        yield "Use a smaller batch, shorter sequences, or `head(8)` where the peak is in the loss."


def _thriftier(model: Model, rows: Sequence[Row]) -> Iterator[str]:
    """What fits beyond the policies that do not: `full`, the MLPs and the loss head in chunks, or host memory."""
    if not any(row.fits is False for row in rows):
        return
    budgets = [row.policy for row in rows if row.fits is False and row.error is not None]
    asked = {row.policy for row in rows}
    names = (*THRIFTIER, *(f"{budget}+mlp({CHUNKS})" for budget in budgets if "mlp(" not in budget))
    link = model.rates.host_link is not None and not model.setup.in_turn
    for tried in (names, OFFLOADED if link else ()):
        more = [parse_policy(name) for name in tried if name not in asked]
        best = fastest(rows_of(model.study(rows[0].batch, rows[0].length), more))
        if best is None:
            continue
        chunks = "mlp(" in best.policy or "head(" in best.policy
        how = ", with saved tensors in host memory" if "offload" in best.policy else ""
        how += ", by running parts in chunks, equal up to rounding" if chunks else ""
        yield (
            f'This fits{how}: callbacks=[SelectiveCkpt("{best.policy}")], {decimal(best.total_bytes or 0)}, '
            f"{1000 * (best.added_seconds or 0.0):,.1f} ms more a step."
        )
        return


def _of_sharding(found: Sharding, best: Row | None) -> str:
    start = f"Sharding over {found.gpus} cards frees {decimal(found.frees_bytes)} on each"
    if found.policy is None:
        return f"{start}, which is not enough either."
    if best is None:
        return f"{start}: then `{found.policy}` fits."
    if not found.saves_seconds or found.saves_seconds <= 0:
        return f"{start} and changes nothing about the fastest policy."
    share = "" if not best.step_seconds else f" ({found.saves_seconds / best.step_seconds:.1%} of a step)"
    return (
        f"{start}: then `{found.policy}` fits, which saves {1000 * found.saves_seconds:,.1f} ms{share}, if "
        f"{decimal(found.moved_bytes)} a step over the link between the cards hide behind compute."
    )


def as_json(found: Sharding | None) -> dict[str, Any] | None:
    """The comparison with sharding as plain data."""
    return None if found is None else asdict(found)
