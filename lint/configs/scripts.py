"""Which script of the project a command of a launch script starts: `torchrun train.py`, `python -m package.train`."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .shell.commands import Word

#: Programs that start Python, or are it.
_STARTERS = re.compile(
    r"(?:\S*/)?(?:python[\d.]*|torchrun|accelerate|deepspeed|colossalai|composer|horovodrun|mpirun|mpiexec|srun|uv|poetry)\Z"
)
#: Modules that start the script behind them.
_LAUNCHERS = re.compile(r"(?:torch\.distributed|accelerate|deepspeed|debugpy|pdb|horovod|cProfile|coverage|xformers)\b")
_MODULE = ("-m", "--module")
_SAYING = ("echo", "printf", "alias")


class Script(NamedTuple):
    """A script that a command starts."""

    path: str
    #: The number of the first word behind it.
    argument: int
    #: Whether the command surely runs it, and does not only name it.
    is_run: bool


def script_started(words: Sequence[Word], launch: str, folder: str | None) -> Script | None:
    """The script of the project that a command of the file ``launch`` starts; None when it names none.

    Args:
        words: The command.
        launch: The launch script.
        folder: Where the commands before it went; None where they stayed.
    """
    said = [word.text or "" for word in words]
    is_started = False
    for number, word in enumerate(said):
        before = said[number - 1] if number else ""
        if before in _MODULE and not _LAUNCHERS.match(word):
            path = _module(word, launch, folder)
            is_started = is_started and path is not None  # `python -m black train.py` runs something else
            if path is not None:
                return Script(path, number + 1, is_started and said[0] not in _SAYING)
        elif word.endswith(".py") and (path := existing(word, launch, folder)) is not None:
            return Script(path, number + 1, (is_started or word == said[0]) and said[0] not in _SAYING)
        is_started = is_started or words[number].text is None or _STARTERS.match(word) is not None
    return None


def folder_entered(commands: Sequence[Sequence[Word]]) -> str | None:
    """The folder that the last `cd` of ``commands`` goes to, where that is written."""
    entered = [command[1].text for command in commands if len(command) == 2 and command[0].text == "cd"]
    return entered[-1] if entered else None


def _module(name: str, launch: str, folder: str | None) -> str | None:
    path = name.replace(".", "/")
    found = (existing(file, launch, folder) for file in (f"{path}.py", f"{path}/__main__.py"))
    return next((file for file in found if file is not None), None)


def existing(word: str | None, launch: str, folder: str | None = None) -> str | None:
    """The file that a word of a command means: from here, from beside the launch script, or from above it."""
    if word is None:
        return None
    word = word.partition("=")[2] if word.startswith("--") else word
    if not word.endswith((".py", ".yaml", ".yml", ".json", ".toml")):
        return None
    inner = existing(os.path.join(folder, word), launch) if folder is not None else None
    return inner or _found(word, launch)


def _found(word: str, launch: str) -> str | None:
    if os.path.isfile(word):
        return os.path.normpath(word)
    folder = os.path.dirname(os.path.abspath(launch))
    while True:
        path = os.path.join(folder, word)
        if os.path.isfile(path):
            return os.path.relpath(path)
        if os.path.dirname(folder) == folder or os.path.isdir(os.path.join(folder, ".git")):
            return None
        folder = os.path.dirname(folder)
