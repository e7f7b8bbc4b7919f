"""Where injections happen: caches of their own, and no word from the libraries."""

from __future__ import annotations

import gc
import logging
import os
import tempfile
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def own_caches() -> Iterator[None]:
    """One thread, and the user's cache folder is one that goes away."""
    before, threads = os.environ.get("XDG_CACHE_HOME"), torch.get_num_threads()
    log = logging.getLogger("hf_ckpt")
    level = log.level
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # a collection looks at all that the libraries made at import, half a second
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.environ["XDG_CACHE_HOME"] = folder
        log.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            log.setLevel(level)
            torch.set_num_threads(threads)
            if before is None:
                del os.environ["XDG_CACHE_HOME"]
            else:
                os.environ["XDG_CACHE_HOME"] = before
