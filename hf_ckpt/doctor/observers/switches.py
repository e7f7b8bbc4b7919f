"""Notes the lines that switch the mode of a module or an adapter in the steps that are checked."""

from __future__ import annotations

import functools
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer

from ..place import waiting_place

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..place import Place


class Switches:
    """What was noted between :meth:`start` and :meth:`stop`.

    Attributes:
        mode: The line that switched a module's mode last, since the latest forward.
        adapter: The line that switched an adapter last, since the latest forward.
        eval_mode: The line that put a module into eval mode last.
    """

    def __init__(self) -> None:
        self.mode: Place | None = None
        self.adapter: Place | None = None
        self.eval_mode: Place | None = None
        self._undo = ExitStack()

    def start(self) -> None:
        """Take notes from here on; what was noted before is forgotten."""
        self.stop()
        self.begin_forward()
        self.eval_mode = None
        self._stand_as(torch.nn.Module, "train", self._note_mode)
        for name in ("set_adapter", "enable_adapters"):
            self._stand_as(BaseTunerLayer, name, self._note_adapter)

    def begin_forward(self) -> None:
        """Forget what was noted before the latest forward."""
        self.mode = self.adapter = None

    def stop(self) -> None:
        """Leave torch and PEFT as they were; calling it again does nothing."""
        self._undo.close()

    def _stand_as(self, owner: type, name: str, note: Callable[..., None]) -> None:
        method = vars(owner)[name]

        @functools.wraps(method)
        def noted(module: Any, *args: Any, **kwargs: Any) -> Any:
            note(module, *args, **kwargs)
            return method(module, *args, **kwargs)

        setattr(owner, name, noted)
        self._undo.callback(setattr, owner, name, method)

    def _note_mode(self, module: torch.nn.Module, mode: bool = True) -> None:
        if module.training != mode:
            self.mode = waiting_place(sys._getframe(2))
            self.eval_mode = self.eval_mode if mode else self.mode

    def _note_adapter(self, *_: Any, **__: Any) -> None:
        self.adapter = waiting_place(sys._getframe(2))
