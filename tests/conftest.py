"""Shared by all tests: quiet libraries, one thread, no network."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest

from .forked import Forked

if TYPE_CHECKING:
    from collections.abc import Iterator

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


@pytest.fixture(scope="session")
def forked() -> Iterator[Forked]:
    """Runs scripts, alone or as ranks, with torch, transformers, peft and accelerate loaded already."""
    for library in ("torch", "transformers", "peft", "accelerate"):
        pytest.importorskip(library)
    forked = Forked()
    yield forked
    forked.close()


def pytest_collection_finish() -> None:
    """Leave what the libraries made at import out of every later collection: the Trainer collects after each training,
    and with torch, transformers and peft loaded one collection takes half a second."""
    gc.collect()
    gc.freeze()
