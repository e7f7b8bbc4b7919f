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
    #: The number of the first word of the command behind the script.
    argument: int = 0
    #: These words as far as they are known, for a parser of the script; None where no command surely runs it.
    words: tuple[str, ...] | None = None
    #: Nothing in the command speaks of checkpointing: it counts for what such a parser makes of it alone.
    is_plain: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(file for file in (self.script, *self.configs, *self.read, self.launch) if file is not None)

    @property
    def without_words(self) -> RunFiles:
        """The same for a script that reads no words itself: commands that differ in others alone are one run."""
        return self._replace(launch=None, command=0, argument=0, words=None)
