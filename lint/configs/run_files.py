"""Which files make one run, as data."""

from __future__ import annotations

from typing import NamedTuple


class RunFiles(NamedTuple):
    """The files of one run."""

    #: The script that trains; None when there are only configurations.
    script: str | None
    configs: tuple[str, ...]
    #: The launch script that starts it, and which of its commands does.
    launch: str | None = None
    command: int = 0
    #: The words of the command, and of its environment, that decide about checkpointing.
    said: tuple[str, ...] = ()
    #: Files of settings that the script may read itself.
    read: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(file for file in (self.script, *self.configs, *self.read, self.launch) if file is not None)
