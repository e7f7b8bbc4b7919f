"""A small model on padded batches of many lengths: how its layers run, by how many traces, and what attention runs."""

from __future__ import annotations

import json
from typing import Any

import torch

import hf_ckpt
from hf_ckpt.engine import clear_traces
from hf_ckpt.regions.traced import TracedRegion

from .. import stand_ins
from ..models import SMALL, causal_lm, token_ids


def main(arguments: list[str]) -> dict[str, Any]:
    """For every kind of model: the modes of its layers, and the traces of each kind of layer.

    ``arguments``: lengths as JSON, and the kinds.
    """
    stand_ins.install()
    lengths, found = json.loads(arguments[0]), {}
    for kind in arguments[1:]:
        clear_traces()
        model = causal_lm(SMALL, kind=kind, sliding_window=64) if kind == "mistral" else causal_lm(SMALL, kind=kind)
        handle = hf_ckpt.apply(model, "full")
        for length in lengths:
            ids = token_ids(2, length)
            model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids).loss.backward()
        regions = handle.installation.regions
        reports = [region.replay.report() for region in regions if isinstance(region, TracedRegion)]
        found[kind] = {
            "modes": sorted({report.mode for report in reports}),
            "traces": max(report.traces for report in reports),
        }
        handle.restore()
    return found
