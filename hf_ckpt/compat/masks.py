"""transformers' attention masks, where a model runs on fake tensors."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from transformers import masking_utils

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def no_packed_sequences() -> Iterator[None]:
    """Say that no sequences are packed into a row, as transformers finds in a real batch of whole rows.

    It cannot see that on fake tensors and builds a mask for the packed case, which a real run would not hold.
    """
    asked = getattr(masking_utils, "find_packed_sequence_indices", None)
    if asked is None:
        yield
        return
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = asked
