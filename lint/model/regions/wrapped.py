"""The classes of the file whose modules torch's checkpoint wrappers go around."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import Class, Instance, options
from ..events import ApplyCheckpointing
from ..types import unwrapped
from .region import classes_checked

if TYPE_CHECKING:
    from ..events import WrapperCheckpointing
    from ..history import History


def wrapped_classes(run: History, event: WrapperCheckpointing) -> list[Class]:
    """The classes that the check of ``event`` accepts, or those of the module that it wraps."""
    if isinstance(event, ApplyCheckpointing):
        return [cls for cls in classes_checked(event.check, run.bodies) if isinstance(cls, Class)]
    return [option.cls for option in options(unwrapped(event.module)) if isinstance(option, Instance)]
