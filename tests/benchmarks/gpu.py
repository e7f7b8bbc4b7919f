"""What only a card can answer, each part alone and the result written after each; under ten minutes on an H100.

    python -m tests.benchmarks.gpu [--only PART ...] [--rounds 3] [--out FILE]

Times are wall-clock seconds of a step that ends with a synchronisation, memory is that of torch's caching allocator.
``python -m tests.gpu_sim.simulated h100 -m tests.gpu_sim.run_scenario benchmark gpu`` rehearses it on a simulated card,
whose times and values say nothing. A part whose package is not installed says so. Exits 1 when a part failed, 2 without
a card.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import time
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM, DataCollatorWithFlattening, LlamaConfig

import hf_ckpt
from hf_ckpt.devices.cards import CARDS
from hf_ckpt.measuring.bench import bench
from hf_ckpt.measuring.peak import PeakMeter
from hf_ckpt.planner.calibration.calibrate import measure as measured_rates
from hf_ckpt.policy import parse_policy

from ..gpu_sim.models import in_four_bits, with_lora
from .device import deterministic, seconds
from .record import add_out, record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import nn

DEVICE = torch.device("cuda")
SHAPE = {"hidden_size": 2048, "intermediate_size": 5504, "num_attention_heads": 16, "vocab_size": 32000}
#: Decoder layers on cards of at least so many bytes.
DEPTHS = ((40e9, 24), (20e9, 12), (0, 6))
STEPS = 10
#: Lengths of the sequences that are packed into one, step by step.
PACKED = ((1900, 1200, 996), (700, 3396), (4096,), (512, 512, 2048, 1024), (3000, 500, 90, 90))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    add_out(parser)
    chosen = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("tests.benchmarks.gpu needs a GPU, and torch finds none here", file=sys.stderr)
        return 2
    result: dict[str, Any] = {}
    for name in chosen.only:
        start = time.perf_counter()
        result[name] = _answer(PARTS[name], chosen.rounds)
        result[name]["seconds_in_all"] = round(time.perf_counter() - start, 1)
        torch.cuda.empty_cache()
        record(result, chosen.out, DEVICE)
    return 1 if any("error" in part for part in result.values()) else 0


def _answer(part: Callable[[int], dict[str, Any]], rounds: int) -> dict[str, Any]:
    try:
        return part(rounds)
    except Exception as error:  # the other parts still have their answers
        return {"error": f"{type(error).__name__}: {str(error)[:500]}"}


def rates(rounds: int) -> dict[str, Any]:
    """Measured rates over those of the card's profile."""
    name, measured = torch.cuda.get_device_name(), measured_rates(DEVICE)
    profile = next((card.rates() for card in CARDS.values() if card.title.split()[-1] in name), None)
    found: dict[str, Any] = {"card": name, "measured": asdict(measured)}
    if profile is not None:
        pairs = {kind: (measured.matmul[kind], profile.matmul[kind]) for kind in profile.matmul}
        pairs["stream"] = (measured.stream, profile.stream)
        found["of_profile"] = {kind: round(ours / theirs, 3) for kind, (ours, theirs) in pairs.items()}
    return found


def policies(rounds: int) -> dict[str, Any]:
    """Step time and peak over those of no checkpointing, in turn, HF's own switch among them."""
    model, ids = _model(), _ids(2, 2048)
    ours = [parse_policy(text) for text in ("full", "dots_saveable", "budget=0.8", "budget=0.5", "budget=0.3")]
    rows = {row.policy: row for row in bench(model, ids, ours, rounds=rounds)}
    own = _own_switch(model, ids, rounds)
    none = rows["none"]
    table = {
        name: {"step": round(row.ratio, 4), "peak": round(row.peak_bytes / none.peak_bytes, 4),
               "held": round(row.held_bytes / none.held_bytes, 4)}
        for name, row in rows.items()
    }  # fmt: skip
    return {"of none": table | {"HF's own": own | {"peak": round(own["peak"] / none.peak_bytes, 4)}}}


def budgets(rounds: int) -> dict[str, Any]:
    """What the plan says of the whole card, and what the allocator took in AdamW training."""
    total = torch.cuda.mem_get_info()[1]
    texts = ["auto", *(f"budget={int(share * total)}B" for share in (0.9, 0.6))]
    return {text: _under(text, rows=16) for text in texts}


def bitwise(rounds: int) -> dict[str, Any]:
    """Whether loss and gradients equal those of no checkpointing, under deterministic algorithms."""
    model, ids = _model(dropout=0.1), _ids(1, 1024)
    with deterministic():
        plain = _gradients(model, ids)
        return {text: _equal(plain, model, ids, text) for text in ("full", "balanced", "budget=0.5", "segments(2)")}


def offload(rounds: int) -> dict[str, Any]:
    """A budget with and without host memory, in turn, over no checkpointing."""
    ids = _ids(4, 2048)
    room = _peak(_model(), ids) // 2 + torch.cuda.memory_allocated()
    model = _model()
    texts = (f"budget={room}B+head(8)", f"budget={room}B+head(8)+offload")
    rows = bench(model, ids, [parse_policy(text) for text in texts], rounds=rounds)
    return {row.policy: {"step": round(row.ratio, 4), "peak_bytes": row.peak_bytes} for row in rows}


def long_context(rounds: int) -> dict[str, Any]:
    """One sequence: the peak of ``full`` and of what goes below it."""
    model, ids = _model(layers=4), _ids(1, 32768)
    rows = bench(
        model, ids, [parse_policy(t) for t in ("full", "full+head(16)", "full+head(16)+mlp(8)")], rounds=rounds
    )
    return {row.policy: {"step": round(row.ratio, 4), "peak_bytes": row.peak_bytes} for row in rows[1:]}


def host(rounds: int) -> dict[str, Any]:
    """Layers that wait for the host: step time over no checkpointing at 64 tokens."""
    rows = bench(_model(), _ids(1, 64), [parse_policy(t) for t in ("full", "dots_saveable")], rounds=5 * rounds)
    return {row.policy: round(row.ratio, 4) for row in rows}


def flash_attention(rounds: int) -> dict[str, Any]:
    """Packed sequences of other lengths in every step, through flash-attn: layers' modes, bytes held, equal gradients."""
    if not importlib.util.find_spec("flash_attn"):
        return {"skipped": "flash-attn is not installed"}
    os.environ["FLASH_ATTENTION_DETERMINISTIC"] = "1"  # transformers hands it on; torch's switch is not flash-attn's
    model = _model(layers=6, attention="flash_attention_2")
    with deterministic():
        return _on_packed(model, [_packed(lengths) for lengths in PACKED])


def qlora(rounds: int) -> dict[str, Any]:
    """A model in bitsandbytes' 4 bit with adapters: step time, peak and equal gradients."""
    if not importlib.util.find_spec("bitsandbytes"):
        return {"skipped": "bitsandbytes is not installed"}
    model, ids = with_lora(in_four_bits(_model(layers=6))), _ids(2, 2048)
    texts = ("full", "budget=0.5", "budget=0.3")
    with deterministic():
        plain = _gradients(model, ids)
        equal = {text: _equal(plain, model, ids, text) for text in texts}
    none, *rows = bench(model, ids, [parse_policy(text) for text in texts], rounds=rounds)
    return {
        row.policy: {
            "step": round(row.ratio, 4),
            "peak": round(row.peak_bytes / none.peak_bytes, 4),
            "equal": equal[text],
        }
        for text, row in zip(texts, rows, strict=True)
    }


PARTS: dict[str, Callable[[int], dict[str, Any]]] = {
    part.__name__: part
    for part in (policies, budgets, bitwise, offload, long_context, host, rates, flash_attention, qlora)
}


def _model(*, layers: int | None = None, dropout: float = 0.0, attention: str = "sdpa") -> nn.Module:
    total = torch.cuda.mem_get_info()[1]
    depth = layers or next(depth for least, depth in DEPTHS if total >= least)
    torch.manual_seed(0)
    config = LlamaConfig(**SHAPE, num_hidden_layers=depth, use_cache=False, attention_dropout=dropout)
    config.max_position_embeddings = 32768
    with DEVICE:
        model: nn.Module = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation=attention)
    return model.train()


def _ids(rows: int, length: int) -> torch.Tensor:
    return torch.randint(0, SHAPE["vocab_size"], (rows, length), device=DEVICE)


def _packed(lengths: Sequence[int]) -> dict[str, Any]:
    """Sequences of these lengths in one row, without padding, as transformers' collator packs them."""
    texts = [{"input_ids": _ids(1, length)[0].tolist()} for length in lengths]
    batch = DataCollatorWithFlattening(return_flash_attn_kwargs=True)(texts)
    return {name: value.to(DEVICE) if isinstance(value, torch.Tensor) else value for name, value in batch.items()}


def _step(model: nn.Module, batch: torch.Tensor | Mapping[str, Any]) -> torch.Tensor:
    """Forward and backward on token ids, which are the labels too, or on all that a collator made."""
    inputs = {"input_ids": batch, "labels": batch} if isinstance(batch, torch.Tensor) else batch
    loss: torch.Tensor = model(**inputs, use_cache=False).loss
    loss.backward()
    return loss.detach()


def _own_switch(model: Any, ids: torch.Tensor, rounds: int) -> dict[str, float]:
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(rounds + 1):
        for on, found in times.items():
            if on:
                model.gradient_checkpointing_enable({"use_reentrant": False})
            found.append(_seconds(model, ids))
            model.gradient_checkpointing_disable()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    peak = _peak(model, ids)
    model.gradient_checkpointing_disable()
    ratios = [own / plain for own, plain in zip(times[True], times[False], strict=True)]
    return {"step": round(median(ratios[1:]), 4), "peak": peak}


def _seconds(model: nn.Module, ids: torch.Tensor) -> float:
    model.zero_grad()
    return seconds(lambda: _step(model, ids), DEVICE)


def _peak(model: nn.Module, ids: torch.Tensor) -> int:
    model.zero_grad()
    with PeakMeter(DEVICE) as meter:
        _step(model, ids)
    return meter.peak_bytes


def _under(text: str, *, rows: int) -> dict[str, Any]:
    """Steps of AdamW under a budget on so many rows."""
    torch.cuda.empty_cache()
    model, ids = _model(), _ids(rows, 2048)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    handle = hf_ckpt.apply(model, text if text.startswith("budget") else f"budget={text}", optimizer=optimizer)
    ran_out = 0
    for _ in range(STEPS):
        torch.cuda.reset_peak_memory_stats()
        try:
            _step(model, ids)
            optimizer.step()
        except torch.OutOfMemoryError:
            ran_out += 1
        optimizer.zero_grad()
    planner = handle.planner
    planned = planner.current.alive if planner is not None and planner.current is not None else None
    found = {
        "planned_bytes": planned,
        "allocated_bytes": torch.cuda.max_memory_allocated(),
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "card_bytes": torch.cuda.mem_get_info()[1],
        "ran_out": ran_out,
    }
    handle.restore()
    return found


def _gradients(model: nn.Module, batch: torch.Tensor | Mapping[str, Any]) -> list[torch.Tensor]:
    """The loss and all gradients."""
    model.zero_grad()
    torch.manual_seed(1)
    loss = _step(model, batch)
    return [loss, *(weight.grad.clone() for weight in model.parameters() if weight.grad is not None)]


def _equal(plain: list[torch.Tensor], model: nn.Module, ids: torch.Tensor, text: str) -> bool:
    handle = hf_ckpt.apply(model, text)
    try:
        _gradients(model, ids)  # a first step traces, and a budget plans
        return all(map(torch.equal, _gradients(model, ids), plain))
    finally:
        handle.restore()


def _on_packed(model: nn.Module, batches: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Each batch under policies: whether it is as without one, how layers ran, and what they held at the last."""
    found: dict[str, Any] = {}
    plain = [_gradients(model, batch) for batch in batches]
    for text in ("none", "full", "budget=0.5"):
        handle = hf_ckpt.apply(model, text)
        equal = [
            all(map(torch.equal, _gradients(model, batch), expected))
            for batch, expected in zip(batches, plain, strict=True)
        ]
        with handle.measure():
            _gradients(model, batches[0])
        layers = handle.report().layers
        modes = sorted({f"{layer.mode} {layer.reason or ''}".strip() for layer in layers})
        found[text] = {"equal": equal, "modes": modes, "held_bytes": sum(layer.held_bytes or 0 for layer in layers)}
        handle.restore()
    return found


if __name__ == "__main__":
    sys.exit(main())
