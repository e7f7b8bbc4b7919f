"""Raise at the n-th op, at the n-th call of the package's functions, or at the n-th call of one module."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import hf_ckpt

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_PACKAGE = str(Path(hf_ckpt.__file__).parent)


class AtOp(TorchDispatchMode):
    """Raises ``error`` in place of op number ``at`` of forward, backward, replay or benchmark; counts them in ``seen``.

    Only ops that make tensors count: that is where memory is asked for. Others are questions (``prim.device`` of a fake
    tensor), which torch asks where no error may come through (``device_custom``, c10/core/TensorImpl.h, ends the process).
    """

    def __init__(self, at: int | None, error: BaseException) -> None:
        super().__init__()
        self.at = at
        self.error = error
        self.seen = 0

    @property
    def met(self) -> bool:
        """Whether it has raised."""
        return self.at is not None and self.seen > self.at

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _makes_tensors(func):
            self.seen += 1
            if self.at is not None and self.seen == self.at + 1:
                raise self.error
        return func(*args, **(kwargs or {}))


@cache
def _makes_tensors(func: Any) -> bool:
    return any("Tensor" in str(result.type) for result in func._schema.returns)


class AtCall:
    """Raises ``error`` as call number ``at`` of a function of hf_ckpt begins, as an interrupt from the keyboard may."""

    def __init__(self, at: int | None, error: BaseException) -> None:
        self.at = at
        self.error = error
        self.seen = 0
        #: The function that was interrupted.
        self.place = ""

    @property
    def met(self) -> bool:
        """Whether it has raised."""
        return bool(self.place)

    def __enter__(self) -> AtCall:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not frame.f_code.co_filename.startswith(_PACKAGE) or self.met:
            return
        self.seen += 1
        if self.at is not None and self.seen == self.at + 1:
            self.place = frame.f_code.co_qualname
            raise self.error


class AtUse:
    """A hook, or any other function of the user's, that raises ``error`` when it is called for the ``at``-th time.

    ``inner`` is what it does at other times.
    """

    def __init__(self, at: int | None, error: BaseException, inner: Callable[..., Any] | None = None) -> None:
        self.at = at
        self.error = error
        self.inner = inner
        self.seen = 0
        self.armed = True

    @property
    def met(self) -> bool:
        """Whether it has raised."""
        return self.at is not None and self.seen > self.at

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.armed:
            self.seen += 1
            if self.at is not None and self.seen == self.at + 1:
                raise self.error
        return None if self.inner is None else self.inner(*args, **kwargs)


def out_of_memory() -> torch.OutOfMemoryError:
    """As a device raises it."""
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB (injected)")
