"""Text to a configuration: YAML by its own rules, JSON by Python's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .document import Document
from .kinds import recognise
from .nodes import ConfigError, Mapping, without_interpolations
from .root import read_root

if TYPE_CHECKING:
    from .kinds import Config

#: A key about checkpointing where keys stand: such a file is meant to be a configuration.
_KEY = re.compile(r"""(?m)(?:^[ \t]*|[{,]\s*)["']?\w*(?:_checkpointing(?:_\w+)?|_reentrant_gc)["']?[ \t]*:""")
#: Of a template (Jinja, Helm), which only becomes YAML.
_TEMPLATE = re.compile(r"\{\{|\{%")


def read_config(filename: str, text: str) -> Config | None:
    """The configuration in ``text``; None when it is none of training.

    Raises:
        ConfigError: It cannot be read; the error knows where.
    """
    try:
        root = read_root(filename, text)
    except ConfigError:
        if _is_meant(filename, text):
            raise
        return None
    return recognise(Document(filename, text, root)) if isinstance(root, Mapping) else None


def read_document(filename: str, text: str) -> Document | None:
    """The mapping in ``text``, whatever it means; None when it is none."""
    try:
        root = read_root(filename, text)
    except ConfigError:
        return None
    plain = without_interpolations(root) if isinstance(root, Mapping) else None
    return Document(filename, text, plain) if isinstance(plain, Mapping) else None


def parses(filename: str, text: str) -> bool:
    """Whether ``text`` is YAML or JSON at all."""
    try:
        read_root(filename, text)
    except ConfigError:
        return False
    return True


def _is_meant(filename: str, text: str) -> bool:
    """Whether a text that cannot be read was meant to be a configuration: not a template, nor JSON with more lines."""
    if filename.endswith(".json"):
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) > 1 and all(line.lstrip().startswith("{") for line in lines):
            return False
    return _KEY.search(text) is not None and _TEMPLATE.search(text) is None
