"""Shared by all tests: quiet libraries, one thread, no network."""

from __future__ import annotations

import gc
import os

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def pytest_collection_finish() -> None:
    """Leave what the libraries made at import out of every later collection: the Trainer collects after each training,
    and with torch, transformers and peft loaded one collection takes half a second."""
    gc.collect()
    gc.freeze()
