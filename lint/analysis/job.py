"""What is to be checked, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..configs.run_files import RunFiles
    from ..project.settings import Settings


#: The name of standard input on the command line.
STDIN = "-"


class Job(NamedTuple):
    """A file to check."""

    path: str
    settings: Settings
    #: The runs that the file belongs to, as the command line says; empty when it is checked by itself.
    runs: tuple[RunFiles, ...] = ()
    #: The command line names it, and not only a folder that it is in: no Python is never passed over without a word.
    named: bool = False

    @property
    def is_joined(self) -> bool:
        """Whether what other files say about it may make a mistake of what is none by itself."""
        return any(not run.is_plain for run in self.runs)
