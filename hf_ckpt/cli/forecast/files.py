"""The files that `hf-ckpt plan`, `explain` and `verify` write: refused before anything is traced, and saved whole."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from ...errors import CkptError, MissingExtraError
from ...planner.explain.plot import SUFFIXES
from ...whole_file import write_whole

if TYPE_CHECKING:
    from pathlib import Path


def check_picture(path: Path | None) -> None:
    """Refuse a file that cannot be drawn before anything is traced. Raises BadParameter and MissingExtraError."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise click.BadParameter(f"the folder {path.parent} does not exist", param_hint="--plot")
    if path.suffix.lower() not in SUFFIXES:
        raise click.BadParameter(f"{path.name} ends with none of {', '.join(SUFFIXES)}", param_hint="--plot")
    if find_spec("matplotlib") is None:
        raise MissingExtraError("--plot needs matplotlib, which is not installed: run `pip install 'hf-ckpt[plot]'`")


def check_page(path: Path | None) -> None:
    """Refuse a page that cannot be written before anything is traced. Raises BadParameter."""
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"the folder {path.parent} does not exist", param_hint="--html")


def save_page(path: Path, html: str) -> None:
    """Write a page, whole or not at all. Raises CkptError."""
    try:
        write_whole(path, html.encode())
    except OSError as error:
        raise CkptError(f"{path} cannot be written: {error.strerror or error}") from error
