"""Text to nodes, by the name of its file."""

from __future__ import annotations

from .json_text import read_json


def read_root(filename: str, text: str) -> object:
    """What the text of a file of this name consists of.

    Raises:
        ConfigError: It cannot be read.
    """
    if filename.endswith(".json"):
        return read_json(text)
    from .yaml_text import read_yaml  # start-up: PyYAML, which JSON does without

    return read_yaml(text)
