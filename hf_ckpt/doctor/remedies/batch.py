"""How large a batch the memory takes, by what the steps that fitted took: pure arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..evidence import Evidence
    from ..history import Step


def smaller_batch(evidence: Evidence) -> str | None:
    """The arguments of a batch that fits, to paste; None where no step with a known batch has fitted."""
    size = evidence.size
    rates = [rate for step in evidence.fitted if (rate := _bytes_a_load(step, evidence.first)) is not None]
    if size is None or not rates or evidence.room is None:
        return None
    fits = int(evidence.room / max(rates))
    rows, length = size.measures.get("rows", 0), size.measures.get("length", 0)
    if not rows or not length or fits >= size.load:
        return None
    told = f"By what the steps that fitted took, batches of {fits:,} tokens fit:"
    fewer = fits // length
    if fewer:
        more = -(-rows // fewer)
        return f"{told} per_device_train_batch_size={fewer}, and gradient_accumulation_steps {more} times what it is."
    return f"{told} cut examples to {fits // rows:,} tokens." if fits >= rows else None


def _bytes_a_load(step: Step, first: int) -> float | None:
    """Bytes that each token of a step took at its peak; None where it is not known."""
    largest = step.largest
    if step.number == first or largest is None or step.live is None or step.peak is None or not largest.load:
        return None
    return (step.peak - step.live) / largest.load
