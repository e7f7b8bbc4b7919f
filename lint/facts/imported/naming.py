"""What the name in an import statement says before any file is looked at."""

from __future__ import annotations

import sys

#: Libraries whose names are known by themselves, also to files that stand beside their sources.
_KNOWN = frozenset(
    ("torch", "transformers", "peft", "trl", "accelerate", "diffusers", "deepspeed", "timm", "lightning", "numpy")
) | frozenset(sys.stdlib_module_names)


def is_library(name: str) -> bool:
    """Whether a module of this name is never one of the project."""
    return name.partition(".")[0] in _KNOWN


def from_outside(package: str, name: str) -> str:
    """A name that ``package`` imports relative to itself (``.llama.build``), as the importer of the package says it."""
    if not name.startswith("."):
        return name
    stripped = name.lstrip(".")
    for _ in range(len(name) - len(stripped) - 1):
        package = package.rpartition(".")[0]
    return f"{package}.{stripped}"
