"""How large a batch the memory takes, by what the steps that fitted took: pure arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..evidence import Evidence


def smaller_batch(evidence: Evidence) -> str | None:
    """The arguments of a batch that fits, to paste; None where no step with a known batch has fitted."""
    size, rate = evidence.size, _bytes_a_load(evidence)
    if size is None or not rate or evidence.room is None:
        return None
    fits = int(evidence.room / rate)
    rows, length = size.measures.get("rows", 0), size.measures.get("length", 0)
    if not rows or not length or fits >= size.load:
        return None
    told = f"By what the steps that fitted took, batches of {fits:,} tokens fit:"
    fewer = fits // length
    if fewer:
        more = -(-rows // fewer)
        return f"{told} per_device_train_batch_size={fewer}, and gradient_accumulation_steps {more} times what it is."
    return f"{told} cut examples to {fits // rows:,} tokens." if fits >= rows else None


def _bytes_a_load(evidence: Evidence) -> float | None:
    """Bytes that each token took at the peak; None where it is not known.

    A step's peak is that of the run so far, so it is the largest batch that is held against it.
    """
    taken = (
        step.peak - step.live
        for step in evidence.fitted
        if step.number > evidence.first and step.peak is not None and step.live is not None
    )
    load = max((step.largest.load for step in evidence.fitted if step.largest is not None), default=0)
    return max(taken, default=0) / load if load else None
