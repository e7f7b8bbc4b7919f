"""A Trainer that finds two cards and no launcher."""

from __future__ import annotations

import tempfile
from typing import Any

from transformers import Trainer, TrainingArguments

from hf_ckpt import SelectiveCkpt

from ..models import SMALL, causal_lm


def main(arguments: list[str]) -> dict[str, Any]:
    """What the Trainer counts, and what SelectiveCkpt says."""
    told = TrainingArguments(output_dir=tempfile.mkdtemp(), report_to=[])
    try:
        Trainer(causal_lm(SMALL), told, callbacks=[SelectiveCkpt("full")])
    except Exception as error:
        return {"gpus": told.n_gpu, "error": f"{type(error).__name__}: {error}"}
    return {"gpus": told.n_gpu, "error": ""}
