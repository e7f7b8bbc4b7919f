"""The catalogue of measured pitfalls of activation checkpointing: which rules see each, or why none can.

The table in `rules/README.md` is made of it.
"""

from __future__ import annotations

from typing import NamedTuple


class Pitfall(NamedTuple):
    """One entry: ``rules`` see it, or it shows only while the program runs, for the reason ``at_run_time``."""

    code: str
    title: str
    rules: tuple[str, ...] = ()
    at_run_time: str = ""


PITFALLS: tuple[Pitfall, ...] = (
    Pitfall("CK01", "random state not restored", ("CKPT108", "CKPT109")),
    Pitfall("CK02", "an adapter saved through checkpoint wrappers", ("CKPT110",)),
    Pitfall("CK03", "old names written after construction", ("CKPT201",)),
    Pitfall("CK04", "a dict without `use_reentrant`", ("CKPT102", "CKPT103", "CKPT133")),
    Pitfall("CK05", "`use_reentrant` left open", ("CKPT101",)),
    Pitfall("CK06", "reentrant without an input that needs a gradient", ("CKPT104", "CKPT129")),
    Pitfall("CK07", "checkpointing in eval mode", ("CKPT203", "CKPT211")),
    Pitfall("CK08", "a key/value cache inside a checkpoint", ("CKPT111",)),
    Pitfall("CK09", "`generate()` in train mode", ("CKPT112",)),
    Pitfall("CK10", "side outputs of a reentrant checkpoint", ("CKPT113",)),
    Pitfall("CK11", "state changed between forward and backward", ("CKPT114",)),
    Pitfall("CK12", "late-binding closures", ("CKPT105",)),
    Pitfall("CK13", "reentrant under DDP", ("CKPT304",)),
    Pitfall("CK14", "randomness that is not torch's", ("CKPT115",)),
    Pitfall("CK15", "running statistics", ("CKPT106",)),
    Pitfall("CK16", "state that the forward pass updates and uses", ("CKPT107",)),
    Pitfall("CK17", "structured outputs under reentrant", ("CKPT116",)),
    Pitfall("CK18", "inputs changed in place", ("CKPT117",)),
    Pitfall("CK19", "hidden states by keyword", ("CKPT118",)),
    Pitfall("CK20", "a replaced `forward` of a layer", ("CKPT204",)),
    Pitfall("CK21", "`functional_call` around a checkpoint", ("CKPT119",)),
    Pitfall("CK22", "reentrant with FSDP", ("CKPT127", "CKPT302", "CKPT401")),
    Pitfall("CK23", "autograd's other entry points", ("CKPT120", "CKPT305")),
    Pitfall("CK24", "`module.forward` checkpointed", ("CKPT306",)),
    Pitfall("CK25", "keyword arguments under reentrant", ("CKPT301",)),
    Pitfall("CK26", "tensors with a graph in containers or closures", ("CKPT307",)),
    Pitfall("CK27", "flags and calls that transformers does not take", ("CKPT205", "CKPT214", "CKPT215", "CKPT308")),
    Pitfall("CK28", "`every_n_layers` and `offload` in the wrong place", ("CKPT206",)),
    Pitfall("CK29", "DeepSpeed's own section", ("CKPT207",)),
    Pitfall("CK30", "wrappers around nothing or everything", ("CKPT208", "CKPT404")),
    Pitfall("CK31", "useless regions", ("CKPT403",)),
    Pitfall("CK32", "every k-th layer taken for square-root segments", ("CKPT121", "CKPT408")),
    Pitfall("CK33", "checkpointed twice", ("CKPT402",)),
    Pitfall("CK34", "recomputing frozen layers", ("CKPT405",)),
    Pitfall("CK35", "misused selective checkpointing", ("CKPT126", "CKPT213", "CKPT309")),
    Pitfall(
        "CK36",
        "control flow that differs in the recomputation",
        at_run_time="which branch or expert is taken depends on values; what makes it differ is CKPT107 and CKPT115",
    ),
    Pitfall(
        "CK37",
        "side effects that happen twice",
        at_run_time="whether a count or a log line that comes twice is wrong, its readers know; compiled as one graph "
        "it raises (CKPT315)",
    ),
    Pitfall(
        "CK38",
        "hooks that run twice or keep activations",
        at_run_time="what a hook keeps, and for how long, shows when it runs; a loss made of it is CKPT113",
    ),
    Pitfall("CK39", "`checkpoint_sequential`", ("CKPT129", "CKPT134", "CKPT210", "CKPT310")),
    Pitfall("CK40", "a context around the forward pass only", ("CKPT311",)),
    Pitfall("CK41", "offloading inside a checkpoint", ("CKPT212",)),
    Pitfall("CK42", "checkpoints and `torch.compile`", ("CKPT315", "CKPT406")),
    Pitfall("CK43", "a seed inside a checkpoint", ("CKPT122",)),
    Pitfall("CK44", "a branch on the grad mode", ("CKPT132",)),
    Pitfall("CK45", "optimizer steps in hooks", ("CKPT135",)),
    Pitfall("CK46", "k-bit preparation after the adapter", ("CKPT123",)),
    Pitfall("CK47", "exception handlers inside a checkpoint", ("CKPT313",)),
    Pitfall("CK48", "a disabled determinism check", ("CKPT124",)),
    Pitfall("CK49", "iterators and popped entries", ("CKPT125",)),
    Pitfall("CK50", "prefix tuning", ("CKPT314",)),
    Pitfall("CK51", "names that a wrapper interrupts", ("CKPT131",)),
    Pitfall(
        "CK52",
        "a cache that needs a gradient, built in the first pass",
        at_run_time="whether what is cached needs a gradient depends on what it is built from",
    ),
    Pitfall(
        "CK53",
        "casts and autocast",
        at_run_time="autocast is harmless wherever it stands; a module cast before the backward pass raises at once",
    ),
    Pitfall(
        "CK54",
        "checkpoints where no gradient is computed",
        at_run_time="harmless: no effect but some microseconds a call",
    ),
    Pitfall(
        "CK55",
        "`detach` or `no_grad` inside a checkpoint",
        at_run_time="harmless, unless no output needs a gradient, which raises at once",
    ),
    Pitfall("CK56", "FSDP's and the Trainer's checkpointing together", ("CKPT303",)),
    Pitfall(
        "CK57",
        "NCCL, SyncBatchNorm, random state of other devices",
        at_run_time="needs several GPUs to show, and nothing of it stands in the source",
    ),
)


def table() -> str:
    """The catalogue as two Markdown tables."""
    seen = ["| pitfall | rules |", "|---|---|"]
    unseen = ["| pitfall | why no rule |", "|---|---|"]
    for pitfall in PITFALLS:
        if pitfall.rules:
            seen.append(f"| {pitfall.code} {pitfall.title} | {', '.join(pitfall.rules)} |")
        else:
            unseen.append(f"| {pitfall.code} {pitfall.title} | {pitfall.at_run_time} |")
    return "\n".join(
        [
            "## The measured pitfalls and the rules that see them",
            "",
            *seen,
            "",
            "## Pitfalls that show only at run time",
            "",
            "`hf-ckpt verify` compares loss and gradients with those of the uncheckpointed model.",
            "",
            *unseen,
            "",
        ]
    )
