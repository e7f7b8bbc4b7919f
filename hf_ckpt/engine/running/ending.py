"""What one forward saves, beside what its trace says that the layer may save after its check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from .prepared import Prepared


class Ending:
    """Watches what is saved in one forward.

    A layer whose forward depends on state that nobody watches may save more because of that and not because of its
    check. So what it saves after all that is traced must be just what one of the answers saves, and then all before it
    must have the shapes of the trace, and share memory where that shares it.
    """

    __slots__ = ("_dtypes", "_last", "_prepared", "_saved")

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._saved: list[tuple[tuple[int, ...], bool]] = []
        self._dtypes: list[torch.dtype] = []
        self._last: torch.Tensor | None = None

    def watching(self, pack: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
        """``pack``, with what it is given noted."""

        def watched(tensor: torch.Tensor) -> Any:
            last = self._last
            shares = last is not None and last.untyped_storage()._cdata == tensor.untyped_storage()._cdata
            self._saved.append((tuple(tensor.shape), shares))
            self._dtypes.append(tensor.dtype)
            self._last = tensor  # held, so that no other storage gets its address
            return pack(tensor)

        return watched

    def problem(self, *, first: bool = False) -> str:
        """How that differs from the trace, "" if it does not. No more is watched.

        Where it is the ``first`` use, nothing may differ even if nothing is saved after the check.
        """
        self._last = None
        count = self._prepared.count
        after = tuple((shape, dtype, shares) for (shape, shares), dtype in zip(self._saved, self._dtypes, strict=True))
        after = after[count:]
        if len(self._saved) < count or (after and after not in self._prepared.endings):
            return f"it saved {len(self._saved)} tensors, and {count} when traced"
        if not after and not first:
            return ""
        traced = zip(self._prepared.shapes, self._prepared.shares, strict=True)
        for (shape, shares), (traced_shape, traced_shares) in zip(self._saved, traced, strict=False):
            if shape != traced_shape or traced_shares not in (None, shares):
                return "it saved other tensors before its check"
        return ""
