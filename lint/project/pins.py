"""The versions that files of a project say: requirements, TOML, lock files, conda YAML, ``setup.cfg``, ``setup.py``."""

from __future__ import annotations

import ast
import re
import tomllib
from typing import TYPE_CHECKING, TypeAlias

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Ranges: TypeAlias = dict[str, str]

_LIBRARIES = frozenset(("torch", "transformers", "peft", "accelerate", "trl", "deepspeed", "ms-swift"))
#: Where a requirements file's line stops to be a requirement: a comment, options.
_AFTER = re.compile(r"\s+#|\s+--|\s*\\$")
#: What `pip install` is given, to the end of the command, over lines that a backslash continues.
_INSTALL = re.compile(r"\bpip3? install\b(?P<given>(?:[^\\\n;&|#]|\\\n)*)")
#: conda's `channel::name =1.2=build`, `name 1.2.*`, `name>=1.2`.
_CONDA = re.compile(r"(?:[\w./-]+::)?(?P<name>[\w.-]+)\s*(?P<spec>[^\s=<>!~][^=]*|[=<>!~][^\s].*)?")


def in_requirements(text: str) -> Ranges:
    """What a requirements file says."""
    return _required(_AFTER.split(line, maxsplit=1)[0] for line in text.splitlines())


def in_commands(text: str) -> Ranges:
    """What `pip install` in a notebook, a README or a Dockerfile fixes: what has an upper bound, or one version.

    Two that differ, as for an older GPU, fix nothing.
    """
    commands = (match["given"].replace("\\\n", " ") for match in _INSTALL.finditer(text))
    words = (word.strip("'\"`()") for command in commands for word in command.split())
    said: dict[str, set[str]] = {}
    for word in words:
        for name, spec in _required([word]).items():
            if _is_bounded(spec):
                said.setdefault(name, set()).add(spec)
    return {name: specs.pop() for name, specs in said.items() if len(specs) == 1}


def in_metadata(text: str) -> Ranges:
    """What an unpacked distribution requires (``METADATA``, ``PKG-INFO``), with its extras."""
    head = text.partition("\n\n")[0]
    return _required(line.partition(":")[2] for line in head.splitlines() if line.startswith("Requires-Dist:"))


def in_toml(text: str) -> Ranges:
    """What a TOML file says in requirements (`"torch>=2.4"`) and in tables (`torch = "^2.4"`), whatever the tool."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return {}
    return {**dict(_keyed(document)), **_required(_texts_in_lists(document))}


def in_lock(text: str) -> Ranges:
    """What a lock file of uv, Poetry or PDM fixed; only the tables of our libraries are parsed."""
    found: Ranges = {}
    for table in text.split("[[package]]")[1:]:
        name = re.search(r'(?m)^name = "([^"]*)"', table)
        if name is not None and name[1] in _LIBRARIES:
            found |= _locked(name[1], table)
    return found


def in_environment(text: str) -> Ranges:
    """What a conda environment says, with what it gives to pip."""
    import yaml  # start-up: most projects have no such file

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    listed = document.get("dependencies") if isinstance(document, dict) else None
    items = listed if isinstance(listed, list) else []
    by_pip = [item["pip"] for item in items if isinstance(item, dict) and isinstance(item.get("pip"), list)]
    conda = dict(found for item in items if isinstance(item, str) and (found := _conda(item)) is not None)
    return {**conda, **_required(str(line) for lines in by_pip for line in lines)}


def in_setup_config(text: str) -> Ranges:
    """What ``setup.cfg`` installs, extras included."""
    from configparser import ConfigParser, Error  # start-up: most projects have no such file

    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except Error:
        return {}
    extras = parser["options.extras_require"].values() if parser.has_section("options.extras_require") else ()
    installed = parser.get("options", "install_requires", fallback="")
    return _required(line for block in (*extras, installed) for line in block.splitlines())


def in_setup(text: str) -> Ranges:
    """What the lists in a ``setup.py`` require; nothing of it is run."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    lists = (node for node in ast.walk(tree) if isinstance(node, ast.List | ast.Tuple | ast.Set))
    parts = (part for held in lists for part in held.elts if isinstance(part, ast.Constant))
    return _required(part.value for part in parts if isinstance(part.value, str))


def _required(lines: Iterable[str]) -> Ranges:
    """The ranges of those of ``lines`` that are requirements (PEP 508) of our libraries."""
    found: Ranges = {}
    for line in lines:
        try:
            requirement = Requirement(line.strip())
        except InvalidRequirement:
            continue
        name = requirement.name.lower().replace("_", "-")
        if name in _LIBRARIES and requirement.specifier:
            said = _written(requirement.specifier)
            # An extra that bounds it says more than a list that does not.
            if _is_bounded(said) or not _is_bounded(found.get(name, "")):
                found[name] = said
    return found


def _is_bounded(spec: str) -> bool:
    """Whether a range ends somewhere."""
    return any(sign in spec for sign in ("<", "==", "~="))


def _written(specifiers: SpecifierSet) -> str:
    """The lower bound first."""
    return ",".join(sorted(map(str, specifiers), reverse=True))


def _texts_in_lists(value: object) -> Iterator[str]:
    match value:
        case dict():
            for inner in value.values():
                yield from _texts_in_lists(inner)
        case list():
            yield from (item for item in value if isinstance(item, str))
            for item in value:
                yield from _texts_in_lists(item)


def _keyed(value: object) -> Iterator[tuple[str, str]]:
    """The ranges of tables such as Poetry's and Pixi's: a library and its range, or a table with its `version`."""
    match value:
        case list():
            for item in value:
                yield from _keyed(item)
        case dict():
            for key, inner in value.items():
                said = inner.get("version") if isinstance(inner, dict) else inner
                spec = _poetry(said) if str(key).lower() in _LIBRARIES and isinstance(said, str) else ""
                if spec:
                    yield str(key).lower(), spec
                yield from _keyed(inner)


def _poetry(said: str) -> str:
    """Poetry's ``^5.1``, ``~5.1``, ``5.1`` and ``5.1.*`` as a range every tool reads; empty when it says none."""
    parts = [part.strip() for part in said.split(",")]
    try:
        return _written(SpecifierSet(",".join(map(_poetry_part, parts))))
    except (InvalidSpecifier, InvalidVersion):
        return ""


def _poetry_part(part: str) -> str:
    if part[:1] == "^":
        return f">={part[1:]},<{_above_caret(Version(part[1:]).release)}"
    if part[:1] == "~" and part[:2] != "~=":
        release = Version(part[1:]).release
        return f">={part[1:]},<{_next(release[:2])}"
    return f"=={part}" if part[:1].isdigit() else "" if part == "*" else part


def _above_caret(release: tuple[int, ...]) -> str:
    """The first version in which the first part that is not 0 changes."""
    fixed = next((index for index, part in enumerate(release) if part), len(release) - 1)
    return _next(release[: fixed + 1])


def _next(release: tuple[int, ...]) -> str:
    return ".".join(map(str, (*release[:-1], release[-1] + 1)))


def _locked(name: str, table: str) -> Ranges:
    try:
        version = tomllib.loads(table.partition("\n[")[0]).get("version")
    except tomllib.TOMLDecodeError:
        return {}
    return {name: f"=={version.partition('+')[0]}"} if isinstance(version, str) else {}


def _conda(item: str) -> tuple[str, str] | None:
    match = _CONDA.fullmatch(item.strip())
    if match is None or not match["spec"]:
        return None
    name = {"pytorch": "torch"}.get(match["name"].lower(), match["name"].lower())
    try:
        spec = _written(SpecifierSet(_conda_spec(match["spec"].strip())))
    except InvalidSpecifier:
        return None
    return (name, spec) if name in _LIBRARIES and spec else None


def _conda_spec(spec: str) -> str:
    """conda's ``=1.2`` means any 1.2, ``=1.2=build`` and ``1.2`` that one."""
    if spec[:1] == "=" and spec[:2] != "==":
        version, has_build, _ = spec[1:].partition("=")
        return f"=={version}" if has_build or version.endswith("*") else f"=={version}.*"
    return f"=={spec}" if spec[:1].isdigit() else spec
