"""Lint pinned public packages and compare the findings with the reviewed golden file.

``python tests/ecosystem/collect.py`` downloads the wheels of ``packages.txt`` (``pip download --no-deps``) into a cache
folder, lints every Python file under the rules that are on by default, for the library versions that each package
itself asks for, and prints the figures and what differs from ``golden.jsonl``. ``--write`` stores the findings;
verdicts that are there already stay, new findings get the verdict null until somebody has read them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple, TypedDict

from hf_ckpt.lint import InternalError, Settings, check_paths

HERE = Path(__file__).parent
PACKAGES = HERE / "packages.txt"
GOLDEN = HERE / "golden.jsonl"
#: The libraries whose versions decide whether a finding holds.
LIBRARIES = ("torch", "transformers", "peft", "accelerate")


class Entry(TypedDict):
    """One line of ``golden.jsonl``: a finding, and what its reader says about it."""

    package: str
    file: str
    line: int
    code: str
    message: str
    #: Whether the finding is true; None as long as nobody has read it.
    verdict: bool | None
    #: One sentence: why.
    why: str


class DownloadError(Exception):
    """A pinned package cannot be had; ``str()`` is one line."""


class Corpus(NamedTuple):
    """What one pass over the packages gave."""

    entries: list[Entry]
    #: Crashes of the linter, one line each.
    failures: list[str]
    packages: int
    files: int
    lines: int


def pins() -> list[str]:
    """The ``name==version`` lines of ``packages.txt``."""
    lines = (line.partition("#")[0].strip() for line in PACKAGES.read_text().splitlines())
    return [line for line in lines if line]


def read_golden() -> list[Entry]:
    """The reviewed findings."""
    return [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def key(entry: Entry) -> tuple[str, str, int, str, str]:
    """What makes two entries the same finding."""
    return entry["package"], entry["file"], entry["line"], entry["code"], entry["message"]


def default_cache() -> Path:
    """Where wheels and sources are kept; outside the repository, whose settings must not reach them."""
    return Path(os.environ.get("CKPT_LINT_ECOSYSTEM", Path(tempfile.gettempdir()) / "ckpt-lint-ecosystem"))


def fetch(pin: str, cache: Path) -> Path:
    """The folder with the Python files of the wheel ``pin``. Raises DownloadError."""
    folder = cache / "sources" / pin
    if folder.is_dir():
        return folder
    wheels = cache / "wheels" / pin
    wheels.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d"]
    command += [str(wheels), pin]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = sorted(wheels.glob("*.whl"))
    if done.returncode or not found:
        raise DownloadError(f"{pin} cannot be downloaded: {' '.join(done.stderr.split())[-200:]}")
    partial = folder.with_name(f"{pin}.partial")
    with zipfile.ZipFile(found[0]) as wheel:
        names = [name for name in wheel.namelist() if name.endswith((".py", ".ipynb", ".dist-info/METADATA"))]
        wheel.extractall(partial, names)
    return partial.rename(folder)


def versions(folder: Path) -> tuple[tuple[str, str], ...]:
    """The ranges in which the unconditional requirements of the wheel allow the libraries."""
    metadata = next(folder.glob("*.dist-info/METADATA")).read_text(encoding="utf-8")
    found = re.findall(r"^Requires-Dist: ([\w.-]+)(?:\[[^]]*\])? *\(?([<>=!~][^;)\n]*)\)?[ ]*$", metadata, re.MULTILINE)
    return tuple((name.lower(), spec.strip()) for name, spec in found if name.lower() in LIBRARIES)


def lint(pin: str, folder: Path, settings: Settings) -> tuple[list[Entry], list[str]]:
    """The findings in the sources of ``pin``, and the crashes of the linter on them."""
    try:
        findings = check_paths([folder], settings=settings)
    except InternalError as error:
        return [], str(error).split("; ")
    entries = [
        Entry(
            package=pin,
            file=Path(finding.filename).relative_to(folder).as_posix(),
            line=finding.span.line,
            code=finding.code,
            message=finding.message,
            verdict=None,
            why="",
        )
        for finding in findings
    ]
    return entries, []


def collect(cache: Path, chosen: list[str]) -> Corpus:
    """Lint the ``chosen`` packages. Raises DownloadError."""
    entries: list[Entry] = []
    failures: list[str] = []
    files = lines = 0
    for pin in chosen:
        folder = fetch(pin, cache)
        sources = [path for path in folder.rglob("*.py") if path.is_file()]
        files += len(sources)
        lines += sum(path.read_bytes().count(b"\n") for path in sources)
        found, crashed = lint(pin, folder, Settings(versions=versions(folder)))
        entries += found
        failures += crashed
    return Corpus(sorted(entries, key=key), failures, len(chosen), files, lines)


def differences(entries: list[Entry], golden: list[Entry]) -> list[str]:
    """One line for each finding that is new (+) or gone (-)."""
    found, known = {key(entry) for entry in entries}, {key(entry) for entry in golden}
    gone = [f"- {' '.join(map(str, each))}" for each in sorted(known - found)]
    return gone + [f"+ {' '.join(map(str, each))}" for each in sorted(found - known)]


def with_verdicts(entries: list[Entry], golden: list[Entry]) -> list[Entry]:
    """``entries`` with the verdicts that ``golden`` has for them."""
    known = {key(entry): entry for entry in golden}
    return [known.get(key(entry), entry) for entry in entries]


def precision(golden: list[Entry]) -> tuple[int, int]:
    """How many of the reviewed findings are true, and how many there are."""
    verdicts = [entry["verdict"] for entry in golden if entry["verdict"] is not None]
    return sum(verdicts), len(verdicts)


def main() -> int:
    """Print the figures and the differences; 1 when there are any, or a crash."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where wheels and sources are kept")
    parser.add_argument("--write", action="store_true", help="store the findings in golden.jsonl, keeping verdicts")
    options = parser.parse_args()
    golden = read_golden() if GOLDEN.exists() else []
    try:
        corpus = collect(options.cache, pins())
    except DownloadError as error:
        print(error, file=sys.stderr)
        return 2
    if options.write:
        golden = with_verdicts(corpus.entries, golden)
        GOLDEN.write_text("".join(json.dumps(entry, ensure_ascii=False) + "\n" for entry in golden))
    changed = differences(corpus.entries, golden)
    true, reviewed = precision(golden)
    print(f"{corpus.packages} packages, {corpus.files} files, {corpus.lines} lines")
    print(f"{len(corpus.entries)} findings: {dict(sorted(Counter(entry['code'] for entry in corpus.entries).items()))}")
    print(f"{true} of {reviewed} reviewed findings are true")
    for line in (*corpus.failures, *changed):
        print(line)
    return 1 if corpus.failures or changed else 0


if __name__ == "__main__":
    sys.exit(main())
