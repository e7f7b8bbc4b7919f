"""Which files must be analysed: a search through their text, far cheaper than parsing."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ..configs import PROGRAM, is_settings
from ..facts.imported.local import MAX_HOPS, is_package, is_worth_reading, package_of
from ..facts.imported.naming import from_outside, is_library
from ..sources.source import MARKDOWN_SUFFIXES, UTF_16
from . import triggers
from .rule_files import rule_files
from .words import Words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.imported.local import FindModule, LocalModule
    from ..project.settings import Settings

#: Words of a file that puts a run together from modules: it trains or wraps a model, or is an entry point.
STARTS = (
    "Trainer(",
    ".backward(",
    "FullyShardedDataParallel",
    "fully_shard",
    "DistributedDataParallel",
    "get_peft_model",
    "functional_call",
    "torch.compile(",
    ".generate(",
    ".eval(",
    "sdpa_kernel",
    "__main__",
    "parse_args_into_dataclasses",
    # Helpers around torch's `checkpoint`, by the names that they have most.
    "maybe_checkpoint(",
    "maybe_ckpt(",
    "run_checkpoint(",
    "run_ckpt(",
    "grad_checkpoint(",
    "gradient_checkpoint(",
)
_STARTS = tuple(word.encode() for word in STARTS)
#: It calls a `checkpoint` that it may have from another module; `load_checkpoint(` is no such call.
_CHECKPOINTS = re.compile(rb"(?<!\w)(?:checkpoint|ckpt)\(")
#: Behind a line's end, which the search finds fast: `^` would try every character.
_IMPORT = rb"\n[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]+))"
_PYTHON = (".py", ".pyi")
_NAME = rb"([.\w]+|\*)(?:[ \t]+as[ \t]+\w+)?"


class GateResult(NamedTuple):
    """Whether a file must be analysed, and the other files that answer depends on (``LocalModules.consulted``)."""

    needed: bool
    consulted: tuple[tuple[str, str | None], ...] = ()


def gate(filename: str, data: bytes, settings: Settings) -> GateResult:
    """Whether a file can have findings, or can make some in the modules that it imports.

    Args:
        filename: The file.
        data: What is in it.
        settings: Those that hold for it.
    """
    every = settings.selects
    if is_settings(filename):
        if may_have_findings(PROGRAM.encode() + data, every):
            return GateResult(True)
    elif _may_have_findings_in(filename, (data,), every):
        return GateResult(True)
    if (data.startswith(UTF_16) or filename.endswith(".ipynb")) and _is_unreadable(filename, data):
        return GateResult(True)
    if not any(word in data for word in _STARTS) and _CHECKPOINTS.search(data) is None:
        return GateResult(False)
    from ..project.local_modules import LocalModules  # start-up: most files start no run

    find = LocalModules(filename)
    texts = list(_texts(_lines_of_cells(data) if filename.endswith(".ipynb") else data, find))
    needed = bool(texts) and _may_have_findings_in(filename, (data, *texts), every)
    return GateResult(needed, tuple(find.consulted.items()))


def _is_unreadable(filename: str, data: bytes) -> bool:
    """Whether the beginning and the end of ``data`` look like no Python or no notebook; reading it must decide."""
    if filename.endswith(".ipynb"):
        return not data[-100:].rstrip().endswith(b"}") or re.search(rb'"cells"\s*:\s*\[', data) is None
    # The other kinds of files may well be written like that.
    return not is_settings(filename) and not filename.endswith(MARKDOWN_SUFFIXES)


def _lines_of_cells(data: bytes) -> bytes:
    """The strings in a notebook with their lines at the beginning of lines, which is enough to find imports."""
    return re.sub(rb'\n[ \t]*(?:"source":[ \t]*)?"', b"\n", data.replace(rb"\n", b"\n"))


def _texts(data: bytes, find: FindModule) -> Iterator[bytes]:
    """The modules that ``data`` imports, and those that they import, as far as a run of it is read."""
    queue: list[tuple[str | None, bytes, int]] = [(None, data, 0)]
    seen = set[str]()
    while queue:
        package, importing, hops = queue.pop()
        for imported in _imports(importing):
            source = imported.source if package is None else from_outside(package, imported.source)
            for name, module in _modules(imported._replace(source=source), find):
                if module.filename not in seen and is_worth_reading(module, hops=hops):
                    seen.add(module.filename)
                    text = module.text.encode()
                    yield text
                    behind = hops if is_package(module) else hops + 1
                    if behind < MAX_HOPS:
                        queue.append((package_of(name, module), text, behind))


def _may_have_findings_in(filename: str, texts: tuple[bytes, ...], every: bool) -> bool:
    """Whether a rule can have anything to say about a file with ``texts``, its own and those of what it imports.

    What only comments and docstrings speak of is not there; code is looked for where the words are, which most lack.
    """
    data = b"\n".join(texts)
    if not may_have_findings(data, every):
        return False
    if not filename.endswith(_PYTHON) or names_us(_text(data)):
        return True
    from .code import code_of  # start-up: most files stop before

    return _has_triggers("\n".join(code_of(_text(one)) for one in texts), every)


def may_have_findings(data: bytes, every: bool = True) -> bool:
    """The prefilter: False only when no rule can have anything to say about ``data`` alone.

    ``every`` counts the rules too that are off by default.
    """
    text = _text(data)
    return names_us(text) or _has_triggers(text, every)


def _text(data: bytes) -> str:
    """``data`` for a search: triggers and codes are ASCII, which is the same in every encoding Python reads."""
    return data.decode("latin-1")


def _has_triggers(text: str, every: bool) -> bool:
    if rule_files() != triggers.FILES:
        # A rule is being written: `python -m hf_ckpt.lint.generate` has not been run yet. Start-up: it loads the rules.
        from .candidates import mentions_api

        return mentions_api(text)
    contains = Words(text).contains
    grouped = _by_first_word(triggers.ALL if every else triggers.ON)
    return any(contains(first) and any(map(contains, rests)) for first, rests in grouped)


@cache
def _by_first_word(found: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]:
    """Triggers by their first word, which most texts lack."""
    grouped: dict[str, list[tuple[str, ...]]] = {}
    for first, *rest in found:
        grouped.setdefault(first, []).append(tuple(rest))
    return tuple((first, tuple(rests)) for first, rests in grouped.items())


def names_us(text: str) -> bool:
    """Whether a comment in ``text`` may name one of our codes."""
    return "ckpt-lint:" in text or ("noqa" in text and "CKPT" in text)


def starts_run(text: str) -> bool:
    """Whether ``text`` may use modules in a way that makes a mistake of what they hold."""
    return any(word in text for word in STARTS) or _CHECKPOINTS.search(text.encode()) is not None


def _modules(imported: _Import, find: FindModule) -> Iterator[tuple[str, LocalModule]]:
    """What the statement names that is a module of the project: its source, or modules in that package."""
    if is_library(imported.source):
        return
    separator = "" if imported.source.endswith(".") else "."
    inner = [f"{imported.source}{separator}{name}" for name in imported.names if name != "*"]
    holder = find(imported.source) if imported.source.strip(".") else None
    if holder is not None:
        yield imported.source, holder
    if holder is None or holder.filename.endswith("__init__.py"):
        yield from ((name, module) for name in inner if (module := find(name)) is not None)


class _Import(NamedTuple):
    """``from source import names``, or ``import source`` without names."""

    source: str
    names: tuple[str, ...] = ()


def _imports(data: bytes) -> Iterator[_Import]:
    """The import statements in Python source ``data``, as far as a search finds them."""
    if b"\n" not in data:
        data = data.replace(b"\r", b"\n")
    for match in re.finditer(_IMPORT, b"\n" + data):
        source, names, modules = match.groups()
        if source is None:
            yield from (_Import(name.decode()) for name in re.findall(_NAME, modules))
        else:
            yield _Import(source.decode(), tuple(name.decode() for name in re.findall(_NAME, names)))
