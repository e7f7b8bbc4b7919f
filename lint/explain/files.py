"""Files to explanations, printed; a file that cannot be read or parsed is one line, the others go on."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, TypeAlias

from ..analysis.deep import with_any_depth
from ..configs import is_config, is_launch
from ..configs.check import read_run
from ..configs.kinds import load_kinds
from ..configs.nodes import ConfigError
from ..configs.reading import read_config
from ..configs.run_files import RunFiles
from ..configs.runs import runs_of
from ..output.print_report import CLEAN, FAILURE
from ..project.library_versions import versions_of
from ..project.settings import SettingsError, find_settings
from ..sources.error import SourceError
from ..sources.notebook import cell_at
from ..sources.source import read_source
from .run import explain_program

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..sources.notebook import Notebook
    from ..sources.source import Source
    from .state import Explanation, Verdict, Where


#: An explanation, with the notebook whose cells its lines are counted in.
_Explained: TypeAlias = "tuple[Explanation, Notebook | None]"


class _UnknownFileError(Exception):
    """A file that says nothing which could be explained; ``str()`` tells why."""


def explain_files(paths: Iterable[str], output_format: str, configs: tuple[str, ...] = ()) -> int:
    """Print the explanation of each file, run with ``configs``, and return the exit status.

    Args:
        paths: Files to explain.
        output_format: `json`, or anything else for text.
        configs: Configuration files that every script is run with.
    """
    explained: list[_Explained] = []
    status = CLEAN
    for path in paths:
        try:
            explained += _explain_file(path, configs)
        except (OSError, SourceError, SettingsError, _UnknownFileError) as error:
            print(f"error: {path}: {error}", file=sys.stderr)
            status = FAILURE
        except SyntaxError as error:
            print(f"error: {path}:{error.lineno}: not valid Python ({error.msg})", file=sys.stderr)
            status = FAILURE
    if output_format == "json":
        print(json.dumps([as_record(explanation, notebook) for explanation, notebook in explained], indent=2))
    elif explained:
        print("\n\n".join(as_text(explanation, notebook) for explanation, notebook in explained))
    return status


def _explain_file(path: str, configs: tuple[str, ...]) -> list[_Explained]:
    """The explanations of the runs that a script, a configuration or a launch script stands for."""
    with open(path, "rb") as file:
        source = read_source(path, file.read())
    return [_explain_run(source, run) for run in _runs(source, configs)]


def _runs(source: Source, configs: tuple[str, ...]) -> list[RunFiles]:
    path = source.filename
    if is_launch(path):
        started = runs_of([path], configs)
        if not started:
            raise _UnknownFileError("starts no script and gives no configuration of training that is there")
        return started
    if not is_config(path):
        return [RunFiles(path, configs)]
    try:
        known = read_config(path, source.text)
    except ConfigError as error:
        raise _UnknownFileError(f"cannot be read ({error})") from error
    if known is None:
        labels = ", ".join(kind.label for kind in load_kinds())
        raise _UnknownFileError(f"no configuration of training that ckpt-lint knows ({labels})")
    return [RunFiles(None, (path, *configs))]


def _explain_run(source: Source, run: RunFiles) -> _Explained:
    settings = find_settings(os.path.dirname(source.filename) or ".", {})
    versions = {**versions_of(source.text, source.filename), **dict(settings.versions)}
    told = with_any_depth(lambda: explain_program(read_run(source, run).program, versions))
    return told, source.notebook if run.script == source.filename else None


def as_text(explanation: Explanation, notebook: Notebook | None = None) -> str:
    """The explanation for people: line by line, then what holds."""
    name = explanation.filename
    if not explanation.steps:
        return f"{name}: nothing in this file has to do with activation checkpointing."
    places = [_short(step.where, notebook) for step in explanation.steps]
    width = max(map(len, places))
    parts = [f"{name}\n"]
    for place, step in zip(places, explanation.steps, strict=True):
        parts.append(f"  {place:>{width}} | {step.code}\n  {'':>{width}} = {step.effect}\n")
    parts += [_verdict_text(name, verdict, notebook) for verdict in explanation.verdicts]
    return "\n".join(parts)


def _verdict_text(name: str, verdict: Verdict, notebook: Notebook | None) -> str:
    text = f"{verdict.model}: {verdict.state}"
    known = verdict.state.on is not None
    if verdict.decided is not None:
        text += f"; {'decided' if known else 'left open'} by {_long(verdict.decided, name, notebook)}"
    if verdict.overwritten and known:
        text += f", overwrites {', '.join(_long(where, name, notebook) for where in verdict.overwritten)}"
    return f"{text}\n  but {verdict.caveat}" if verdict.caveat else text


def _short(where: Where, notebook: Notebook | None) -> str:
    cell, row = _cell_and_row(where, notebook)
    file = f"{where.file}:" if where.file is not None else ""
    return f"{file}{row}" if cell is None else f"cell {cell}:{row}"


def _long(where: Where, name: str, notebook: Notebook | None) -> str:
    short = _short(where, notebook)
    return short if where.file is not None else f"{name}:{short}"


def _cell_and_row(where: Where, notebook: Notebook | None) -> tuple[int | None, int]:
    """A line of the analysed text as the user counts it: within its cell in a notebook."""
    if notebook is None or where.file is not None:
        return None, where.line
    cell = cell_at(notebook, where.line)
    return cell.number, where.line - cell.start


def as_record(explanation: Explanation, notebook: Notebook | None = None) -> dict[str, Any]:
    """The explanation as a JSON object."""

    def place(where: Where) -> dict[str, Any]:
        cell, row = _cell_and_row(where, notebook)
        return {"filename": where.file or explanation.filename, "cell": cell, "row": row}

    return {
        "filename": explanation.filename,
        "steps": [
            {"location": place(step.where), "code": step.code, "effect": step.effect} for step in explanation.steps
        ],
        "models": [
            {
                "model": verdict.model,
                "on": verdict.state.on,
                "reentrant": verdict.state.reentrant,
                "state": str(verdict.state),
                "caveat": verdict.caveat or None,
                "decided": None if verdict.decided is None else place(verdict.decided),
                "overwritten": [place(where) for where in verdict.overwritten],
            }
            for verdict in explanation.verdicts
        ],
    }
