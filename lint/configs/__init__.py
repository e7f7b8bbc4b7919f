"""Configuration files as parts of a run: what they say becomes the calls that a script would make.

A file in ``kinds/`` is a kind of configuration; there is no list to add it to.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Files of TOML with settings of tools, which no training reads.
TOOL_FILES = ("pyproject.toml", "Cargo.toml")
#: Files that may be configurations of training, and scripts of the shell or of make that may start one.
CONFIG_SUFFIXES = (".yaml", ".yml", ".json")
LAUNCH_SUFFIXES = (".sh", ".bash", ".zsh", ".sbatch", ".slurm", ".pbs", ".mk", "Makefile", "makefile")
#: Words of the program that a configuration stands for: triggers of rules are made of them.
PROGRAM = "from trl import TrainingArguments, Config, FullyShardedDataParallelPlugin; axolotl, torchtune, swift\n"


def is_config(filename: str) -> bool:
    """Whether ``filename`` is read as a configuration."""
    return filename.endswith(CONFIG_SUFFIXES)


def is_launch(filename: str) -> bool:
    """Whether ``filename`` is read as a script that starts runs."""
    return filename.endswith(LAUNCH_SUFFIXES)


def is_settings(filename: str) -> bool:
    """Whether ``filename`` is no Python: it says with what a script is run."""
    return is_config(filename) or is_launch(filename)


def may_join(files: Iterable[str]) -> bool:
    """Whether one of ``files`` may say with which files, or how, a script is run, or has settings in TOML beside it."""
    folders = {os.path.dirname(file) or "." for file in files if file.endswith(".py")}
    return any(map(is_settings, files)) or any(map(_has_toml, folders))


def _has_toml(folder: str) -> bool:
    places = (folder, *(os.path.join(folder, name) for name in ("conf", "config", "configs")))
    names = (name for place in places if os.path.isdir(place) for name in os.listdir(place))
    return any(name.endswith(".toml") and name not in TOOL_FILES for name in names)
