"""The page of :mod:`.long`, from what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .judge.table import TOLERANCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    #: What ran under each policy, length by length.
    _Rows = Mapping[str, Sequence[Mapping[str, Any]]]

GIB = 2**30
#: The CUDA context, which plans leave out and the card has (README.md).
CONTEXT = 500 << 20
#: Targets: of the copies, hidden behind compute; of the peak inside a layer, less with eight pieces; of gradients, off.
HIDDEN, LESS, OFF = 0.95, 0.6, 1e-6
PIECES = 8
TITLES = {
    "lora": "LoRA (rank 16 on q_proj and v_proj, float32 as PEFT makes it), weights in bfloat16, on one card",
    "fsdp": "All weights trained, sharded in float32 by FSDP2 over 8 cards (torch's `fake` process group)",
}
_HEAD = """# Long sequences on a simulated H100

Written by `python -m tests.gpu_sim.long` (part of `make sim`); every number of a card is simulated (what that is and is
not: [README.md](README.md)). Real are torch's CUDA dispatch, its FlashAttention's buffers, its caching allocator with
default settings on a card of 80 GiB (79.11 GiB usable), and the order of streams.

Llama 8B with all 32 layers, one sequence, AdamW (fused), FlashAttention. GiB of the whole card, the CUDA context of 0.49
GiB included. **planned** is the peak by `hf-ckpt plan`; under a budget **in the run** is what the plan in force says is
alive; **off** is allocated against that, or else against planned. **copies** are the seconds that copies to host memory and
back take at the link's rate, **hidden** the share of them that a step does not take more than with a link that copies in no
time, **host** pinned memory at its peak. Steps until three are alike, 16 at most, a process for each row. Targets: 500,000
tokens fit, {hidden:.0%} hidden, within {tolerance:.0%} of planned.

{summary}
"""
_COLUMNS = (
    "tokens",
    "policy",
    "planned",
    "in the run",
    "allocated",
    "off",
    "reserved",
    "step",
    "copies",
    "hidden",
    "host",
    "",
)
_INSIDE = """## The peak inside a layer

By how much the allocated bytes of the card rise in the backward of one layer of {length:,} tokens, its replay included, in
bfloat16 with all weights trained (`full+head(64)` with the parts in pieces); and the largest relative difference of a
parameter's gradient to the step without checkpointing, in float32 on the CPU, with real values ({shape}). Targets with {pieces}
pieces: {less:.0%} less, within {off:g}.

| pieces | `mlp` | less | gradients | `mlp`, `norm` and `attention` | less | gradients | |
|---:|---:|---:|---:|---:|---:|---:|---|
"""
_NOT_ALONE = """
The MLP alone in {pieces} pieces takes {less:.0%} off: then the backward of a norm that computes in float32 is the peak, which
no number of its pieces lowers.
"""


def page(
    rows: Mapping[str, _Rows],
    plans: Mapping[str, Mapping[str, Mapping[str, Any]]],
    cut: Mapping[int, Mapping[str, str]],
    inside: Mapping[str, int],
    gradients: Mapping[str, float],
) -> str:
    """The whole page.

    Args:
        rows: What ran, by setup, then by policy.
        plans: What `hf-ckpt plan` says, by setup, length and policy.
        cut: The policies of the second table, by number of pieces and name of the part.
        inside: Bytes by these policies.
        gradients: Relative differences by these policies.

    Returns:
        Markdown.
    """
    tables = [_table(setup, rows[setup], plans[setup]) for setup in plans]
    head = _HEAD.format(hidden=HIDDEN, tolerance=TOLERANCE, summary=_summary(rows))
    return "\n".join([head, *tables, _inside(cut, inside, gradients)])


def misses(row: Mapping[str, Any]) -> str:
    """What a row misses of the targets; empty where it misses none."""
    if row.get("failed"):
        return str(row["failed"]).partition(";")[0].partition("\n")[0]
    if row["out_of_memory"]:
        return f"{row['out_of_memory']} of {row['steps']} steps ran out of memory"
    share = hidden(row)
    found = [f"{share:.1%} hidden"] if share is not None and share < HIDDEN else []
    found += [f"{row['device_allocations']} allocations of the card a step"] if row["device_allocations"] else []
    return "; ".join(found)


def hidden(row: Mapping[str, Any]) -> float | None:
    """The share of its copies that hides behind compute; None where it copies nothing."""
    if not row.get("copies"):
        return None
    return 1.0 - max(0.0, row["seconds"] - row["seconds_at_once"]) / row["copies"]


def fits(row: Mapping[str, Any]) -> bool:
    """Whether no step ran out of memory."""
    return not row.get("failed") and not row["out_of_memory"]


def _summary(rows: Mapping[str, _Rows]) -> str:
    ran = {setup: [row for each in found.values() for row in each] for setup, found in rows.items()}
    each = [row for found in ran.values() for row in found]
    copying = [share for row in each if fits(row) and (share := hidden(row)) is not None]
    longest = {setup: max((row["length"] for row in found if fits(row)), default=0) for setup, found in ran.items()}
    ended = ", ".join(f"{length:,} tokens ({setup})" for setup, length in longest.items())
    return (
        f"{len(each)} rows, {sum(map(fits, each))} within the card's memory; the longest that are: {ended}. Of the "
        f"copies at least {min(copying, default=0):.2%} are hidden."
    )


def _table(setup: str, rows: _Rows, plans: Mapping[str, Any]) -> str:
    lines = [f"## {TITLES[setup]}\n", "| " + " | ".join(_COLUMNS) + " |", "|---:|---|" + "---:|" * 9 + "---|"]
    found = [(policy, row) for policy, each in rows.items() for row in each]
    for policy, row in sorted(found, key=lambda entry: entry[1]["length"]):
        lines.append("| " + " | ".join(_row(policy, row, plans[str(row["length"])][policy])) + " |")
    return "\n".join(lines) + "\n"


def _row(policy: str, row: Mapping[str, Any], plan: Mapping[str, Any]) -> Iterator[str]:
    said, share, ran = plan.get("total_bytes"), hidden(row), fits(row)
    alive, off = row.get("planned"), _off(row, plan)
    yield f"{row['length']:,}"
    yield f"`{policy}`"
    yield "" if said is None else _gib(said + CONTEXT)
    yield "" if alive is None else _gib(alive)
    yield _gib(row["allocated"]) if ran else ""
    yield f"{off:+.1%}" if ran and off is not None else ""
    yield _gib(row["reserved"]) if ran else ""
    yield f"{row['seconds']:.1f} s" if ran else ""
    yield f"{row['copies']:.2f} s" if ran and share is not None else ""
    yield f"{share:.2%}" if ran and share is not None else ""
    yield _gib(row["pinned"]) if ran and share is not None else ""
    far = [f"{off:+.1%} from planned"] if ran and off is not None and abs(off) > TOLERANCE else []
    yield "; ".join(filter(None, [misses(row), *far]))


def _off(row: Mapping[str, Any], plan: Mapping[str, Any]) -> float | None:
    """By which share the allocated bytes differ from the plan in force, which is `hf-ckpt plan`'s without a budget."""
    said = plan.get("total_bytes")
    planned = row.get("planned") or (None if said is None else said + CONTEXT)
    return None if planned is None else row["allocated"] / planned - 1


def _inside(cut: Mapping[int, Mapping[str, str]], inside: Mapping[str, int], gradients: Mapping[str, float]) -> str:
    from .chunked_gradients import SHAPE, TOKENS

    shape = f"hidden size {SHAPE['hidden_size']}, {TOKENS:,} tokens"
    text = _INSIDE.format(length=131072, shape=shape, pieces=PIECES, less=LESS, off=OFF)
    whole = inside[cut[1]["all"]]
    for pieces, policies in cut.items():
        cells = [str(pieces)]
        for policy in policies.values():
            cells += [_gib(inside[policy]), f"{1 - inside[policy] / whole:.0%}", f"{gradients[policy]:.1e}"]
        text += "| " + " | ".join([*cells, _verdict(pieces, policies, inside, gradients, whole)]) + " |\n"
    return text + _NOT_ALONE.format(pieces=PIECES, less=1 - inside[cut[PIECES]["mlp"]] / whole)


def _verdict(
    pieces: int,
    policies: Mapping[str, str],
    inside: Mapping[str, int],
    gradients: Mapping[str, float],
    whole: int,
) -> str:
    found = [f"gradients of `{name}` miss {OFF:g}" for name, policy in policies.items() if gradients[policy] > OFF]
    if pieces >= PIECES:
        found += [
            f"`{name}` misses {LESS:.0%}" for name, policy in policies.items() if inside[policy] > (1 - LESS) * whole
        ]
    return "; ".join(found)


def _gib(nbytes: float) -> str:
    return f"{nbytes / GIB:.2f}"
