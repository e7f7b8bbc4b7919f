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
    if filename.endswith(".toml"):
        from .toml_text import read_toml  # start-up: few scripts read any

        return read_toml(text)
    from .yaml_text import read_yaml  # start-up: PyYAML, which JSON does without

    return read_yaml(text)
