"""A disk that is full or a process that dies while a file is written, and caches that hold anything."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from hf_ckpt.lint.__main__ import main as lint
from hf_ckpt.lint.analysis.check_files import CACHE_FROM

from hf_ckpt.planner.calibration import store
from hf_ckpt.planner.costs.roofline import Calibration
from hf_ckpt.whole_file import PREFIX

from .outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

_MISTAKE = "from torch.utils.checkpoint import checkpoint\n\n\ndef run(block, x):\n    return checkpoint(block, x)\n"
_SCRIPT = _MISTAKE + "".join(f"\n\ndef run{i}(block, x):\n    return checkpoint(block, x)\n" for i in range(60))


@dataclass(frozen=True, slots=True)
class Write:
    """Something that writes ``file`` in a folder; ``is_cache`` when nobody asked for the file, so it may be missing."""

    file: str
    run: Callable[[Path], None]
    is_cache: bool = False
    #: What there is before.
    files: tuple[tuple[str, str], ...] = (("train.py", _SCRIPT),)


def _lint(*arguments: str) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        sys.argv[:] = ["ckpt-lint", *arguments]
        lint()

    return run


def _calibration() -> Calibration:
    rates = {"half": 1.5e11, "single": 7.25e10}
    return Calibration(
        device="cpu of a test", matmul=rates, attention=rates, stream=1e10, special=rates, gather=1e10, random=1e9,
        per_op=1e-6, per_layer=1e-4, host_link=None, asynchronous=False,
    )  # fmt: skip


def _store(folder: Path) -> None:
    store.store(_calibration(), folder)


_OLD = tuple({"report.json": "[]\n", "known.json": '{"version": 1, "files": {}}\n'}.items())
#: As many as the linter keeps results of.
_MANY = tuple((f"train{number}.py", _MISTAKE if number < 5 else "") for number in range(CACHE_FROM))
_RESULTS = ".ckpt_lint_cache/results.json"
#: What a process that was killed cannot remove.
WRITES = (
    Write(_RESULTS, _lint("."), is_cache=True, files=_MANY),
    Write(_RESULTS, _lint("."), is_cache=True, files=(*_MANY, (_RESULTS, "{}"), (".ckpt_lint_cache/.gitignore", "*\n"))),
    Write("train.py", _lint("--fix", "--unsafe-fixes", "--no-cache", "train.py")),
    Write("known.json", _lint("--write-baseline", "--baseline", "known.json", "--no-cache", "train.py")),
    Write("known.json", _lint("--write-baseline", "--baseline", "known.json", "--no-cache", "train.py"),
          files=(("train.py", _SCRIPT), *_OLD)),
    Write("report.json", _lint("--output-format", "json", "--output-file", "report.json", "--no-cache", "train.py")),
    Write("report.json", _lint("--output-format", "sarif", "-o", "report.json", "--no-cache", "train.py"),
          files=(("train.py", _SCRIPT), *_OLD)),
    Write(store.file_name("cpu of a test"), _store, is_cache=True, files=()),
    Write(store.file_name("cpu of a test"), _store, is_cache=True, files=((store.file_name("cpu of a test"), "{}"),)),
)  # fmt: skip


def while_writing(rng: Random) -> Outcome:
    """The disk is full somewhere in a file, or the process is killed there."""
    return cut_off(rng.choice(WRITES), killed=rng.random() < 0.4, share=rng.random())


def cut_off(write: Write, *, killed: bool, share: float) -> Outcome:
    """One write that comes to its end after a ``share`` of its bytes."""
    ends, whole = _whole(WRITES.index(write))
    at = int(share * len(whole))
    outcome = Outcome(f"{'killed' if killed else 'full disk'} after {at} bytes of {write.file}")
    with tempfile.TemporaryDirectory() as name:
        folder = _prepared(write, name)
        before = _files(folder)
        status, said = in_a_child(write.run, folder, limit=at, killed=killed)
        after = _files(folder)
    if killed:
        outcome.check(status == -signal.SIGXFSZ, f"status {status}: {said}")
        after = {name: content for name, content in after.items() if not Path(name).name.startswith(PREFIX)}
    else:
        outcome.check(status == (ends if write.is_cache else 2), f"status {status}: {said}")
        outcome.check("Traceback" not in said, f"said {said}")
        outcome.check(write.is_cache or write.file in said, f"does not name the file: {said}")
    after.pop(".ckpt_lint_cache/.gitignore", None), before.pop(".ckpt_lint_cache/.gitignore", None)
    outcome.check(after == before, f"left {sorted(set(after.items()) ^ set(before.items()))[:2]}"[:300])
    return outcome


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _prepared(write: Write, name: str) -> Path:
    folder = Path(name).resolve()
    for file, text in write.files:
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text)
    return folder


@cache
def _whole(number: int) -> tuple[int, bytes]:
    """The exit status, and what the write leaves, when nothing goes wrong."""
    write = WRITES[number]
    with tempfile.TemporaryDirectory() as name:
        folder = _prepared(write, name)
        status, said = in_a_child(write.run, folder)
        assert status in (0, 1), said
        content = (folder / write.file).read_bytes()
        assert content != dict(write.files).get(write.file, "").encode(), said
        return status, content


def in_a_child(run: Callable[[Path], None], folder: Path, *, limit: int | None = None, killed: bool = False) -> tuple:
    """Exit status and what was said of ``run(folder)`` in a fork, whose files may grow to ``limit`` bytes."""
    said, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(said)
        _become(run, folder, write_end, limit, killed)
    os.close(write_end)
    with os.fdopen(said, "rb") as stream:
        text = stream.read().decode(errors="replace")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def _become(run: Callable[[Path], None], folder: Path, write_end: int, limit: int | None, killed: bool) -> None:
    status = 1
    try:
        os.dup2(write_end, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", buffering=1)
        os.chdir(folder)
        # The kernel's signal at the limit: Python ignores it, and the write is an error; unhandled, it kills.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if killed else signal.SIG_IGN)
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        run(folder)
        status = 0
    except SystemExit as leave:
        status = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def a_corrupt_calibration(rng: Random) -> Outcome:
    """Whatever stands in the place of a calibration, it is read as one, or measured anew and replaced."""
    found, device = _calibration(), "cpu of a test"
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, store.file_name(device))
        outcome = Outcome(f"calibration: {corrupt(rng, path, store.dumps(found))}")
        loaded = store.load(device, Path(name))
        outcome.check(loaded is None or _is_usable(loaded), f"loaded {loaded}")
        store.store(found, Path(name))
        if not path.is_dir() and not path.is_symlink():
            outcome.check(store.load(device, Path(name)) == found, "a new one is not stored over it")
        left = [file.name for file in Path(name).iterdir() if file != path]
        outcome.check(not left or left == ["there"], f"left {left}")
    return outcome


def _is_usable(calibration: Calibration) -> bool:
    rates = [value for value in asdict(calibration).values() if isinstance(value, int | float)]
    return all(torch.tensor(float(rate)).isfinite() and rate >= 0 for rate in rates)


def a_corrupt_cache_of_the_linter(rng: Random) -> Outcome:
    """Whatever stands in the place of the linter's results, a run reports what one without a cache reports."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        for file, text in _MANY:
            (folder / file).write_text(text)
        fresh = in_a_child(_linted("--no-cache", "."), folder)
        assert in_a_child(_linted("."), folder) == fresh
        stored = folder / _RESULTS
        text = stored.read_text()
        outcome = Outcome(f"results.json: {corrupt(rng, stored, text)}")
        for _ in range(2):
            found = in_a_child(_linted("."), folder)
            outcome.check(found == fresh, f"status {found[0]}: {found[1][-300:]}")
        left = {file.name for file in stored.parent.iterdir()} - {"results.json", ".gitignore", "there"}
        outcome.check(not left, f"left {left}")
    return outcome


def _linted(*arguments: str) -> Callable[[Path], None]:
    """A run that prints what it reports where its errors go."""

    def run(folder: Path) -> None:
        os.dup2(2, 1)
        sys.stdout = os.fdopen(1, "w")
        _lint("--output-format", "concise", *arguments)(folder)

    return run


def a_corrupt_baseline(rng: Random) -> Outcome:
    """A baseline that is none is one clear error, and stays as it is."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "train.py").write_text(_SCRIPT)
        in_a_child(_lint("--write-baseline", "--baseline", "known.json", "train.py", "--no-cache"), folder)
        path = folder / "known.json"
        outcome = Outcome(f"baseline: {corrupt(rng, path, path.read_text())}")
        before = path.read_bytes() if path.is_file() else None
        status, said = in_a_child(_lint("--baseline", "known.json", "train.py", "--no-cache"), folder)
        outcome.check(status in (0, 1, 2), f"status {status}")
        outcome.check("Traceback" not in said, f"said {said[-300:]}")
        outcome.check("internal error" not in said, f"said {said[-300:]}")
        if status == 2:
            outcome.check("known.json" in said, f"does not name the file: {said}")
            outcome.check((path.read_bytes() if path.is_file() else None) == before, "the baseline was changed")
    return outcome


def corrupt(rng: Random, path: Path, text: str) -> str:
    """Put something else than ``text`` at ``path``; returns what."""
    kind = rng.choice(
        [
            "truncated",
            "empty",
            "a word changed",
            "binary",
            "another type",
            "nested",
            "a directory",
            "a loop",
            "nobody's",
        ]
    )
    if path.exists():
        path.unlink()
    match kind:
        case "truncated":
            path.write_text(text[: rng.randrange(len(text))])
        case "empty":
            path.write_text("")
        case "a word changed":
            path.write_text(_changed(rng, text))
        case "binary":
            path.write_bytes(rng.randbytes(rng.randrange(1, 2000)))
        case "another type":
            path.write_text(rng.choice(["[]", "null", "3", '"text"', "{}", "NaN", '{"version": 6}', "[[1], {}]"]))
        case "nested":
            path.write_text(rng.choice(["[", '{"a":']) * 100_000)
        case "a directory":
            path.mkdir()
        case "a loop":
            path.symlink_to(path)
        case "nobody's":
            path.symlink_to(path.with_name("there") / "nothing")
    return kind


def _changed(rng: Random, text: str) -> str:
    """The JSON text with another value in one place."""
    document = json.loads(text)
    holder, key = document, rng.choice(list(document))
    while isinstance(holder[key], dict | list) and holder[key] and rng.random() < 0.7:
        holder = holder[key]
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
    holder[key] = rng.choice([None, [], {}, -1, 0, "x", True, float("nan"), float("inf"), 10**400, [[]], {"a": 1}])
    return json.dumps(document)


def standard_output_is_full(rng: Random) -> Outcome:
    """`> /dev/full`: one sentence, and exit status 2."""
    name, arguments = rng.choice(
        [("ckpt-lint", ["--no-cache", "train.py"]), ("ckpt-lint", ["rule", "CKPT101"]), ("hf-ckpt", ["policies"])]
    )

    def run(folder: Path) -> None:
        from hf_ckpt.cli import main as cli

        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        sys.argv[:] = [name, *arguments]
        (lint if name == "ckpt-lint" else cli)()

    outcome = Outcome(f"{name} {' '.join(arguments)}")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(_SCRIPT)
        status, said = in_a_child(run, Path(folder))
    outcome.check(status == 2, f"status {status}")
    outcome.check(
        "the output cannot be written: No space left on device" in said and said.count("\n") == 1, said[-400:]
    )
    return outcome
