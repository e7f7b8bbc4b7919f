"""From bytes on disk to the Python text that is analysed, and back.

The text keeps its newlines, so offsets computed on it are true for the file; the byte-order mark and the encoding are
remembered, so a fixed file is written the way it was found.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, NamedTuple

from .error import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..finding import Edit
    from .markdown import Markdown
    from .notebook import Notebook

#: Documents whose Python code blocks can be checked.
MARKDOWN_SUFFIXES = (".md", ".markdown", ".qmd")

_BOM = b"\xef\xbb\xbf"
#: The marks that a text in UTF-16 begins with.
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
#: PEP 263: the declaration must stand in a comment on the first or second line.
_COOKIE = rb"\A(?:[ \t\f]*(?:#[^\r\n]*)?(?:\r\n|\r|\n))?[ \t\f]*#[^\r\n]*?coding[:=][ \t]*([-\w.]+)"


class Source(NamedTuple):
    """One input as the analysis sees it."""

    filename: str
    #: Python text. For a notebook its code cells, one after the other.
    text: str
    encoding: str = "utf-8"
    bom: bool = False
    #: The notebook the text was taken from, or None for a plain file.
    notebook: Notebook | None = None
    #: The document the text was taken from, line for line.
    markdown: Markdown | None = None

    @property
    def shown(self) -> str:
        """The text as the user sees it, with the same lines."""
        return self.text if self.markdown is None else self.markdown.text


def read_source(filename: str, data: bytes) -> Source:
    """Decode the content of a file.

    Args:
        filename: Its name, which tells notebooks and documents from programs.
        data: Its content.

    Raises:
        SourceError: It cannot be decoded, or is no notebook although it is called one.
    """
    if filename.endswith(".ipynb"):
        from .notebook import parse_notebook  # start-up: only notebooks need it

        notebook = parse_notebook(data)
        return Source(filename, notebook.text, notebook=notebook)
    bom = data.startswith(_BOM)
    encoding = _encoding_behind_bom(data) if bom else declared_encoding(data)
    try:
        text = data[len(_BOM) :].decode(encoding) if bom else data.decode(encoding)
    except UnicodeDecodeError as error:
        if data.startswith(UTF_16):
            raise SourceError("not valid utf-8: this is UTF-16, which Python does not read") from error
        line = data.count(b"\n", 0, error.start) + 1
        raise SourceError(f"not valid {encoding} (byte {error.start}): {error.reason}", line) from error
    except LookupError as error:
        raise SourceError(f"unknown encoding {encoding!r}") from error
    if "\0" in text:
        raise SourceError("not text: it contains a null character", text.count("\n", 0, text.index("\0")) + 1)
    if filename.endswith(MARKDOWN_SUFFIXES):
        from .markdown import read_markdown  # start-up: only documents need it

        markdown = read_markdown(text)
        return Source(filename, markdown.python, encoding, bom, markdown=markdown)
    return Source(filename, text, encoding, bom)


def declared_encoding(data: bytes) -> str:
    """The encoding that the first two lines of a Python file declare, ``utf-8`` when they declare none."""
    match = re.match(_COOKIE, data[:1000]) if b"coding" in data[:1000] else None
    return match.group(1).decode("ascii", "replace") if match else "utf-8"


def _encoding_behind_bom(data: bytes) -> str:
    declared = declared_encoding(data[len(_BOM) :])
    try:
        same = codecs.lookup(declared).name in ("utf-8", "utf-8-sig")
    except LookupError:
        same = False
    if not same:
        raise SourceError(f"declared to be {declared}, but it begins with the mark of UTF-8")
    return "utf-8"


def encode(source: Source, text: str) -> bytes:
    """The bytes of ``text`` in the encoding that ``source`` was read in.

    Raises:
        SourceError: That encoding cannot hold ``text``.
    """
    try:
        data = text.encode(source.encoding)
    except UnicodeEncodeError as error:
        raise SourceError(f"the fixed text cannot be written in {source.encoding}") from error
    return _BOM + data if source.bom else data


def with_edits(source: Source, edits: Iterable[Edit]) -> tuple[Source, bytes]:
    """``source`` with ``edits`` applied, and the bytes to store. Edits are in the coordinates of ``source.text``."""
    if source.notebook is not None:
        from .notebook import edit_notebook, parse_notebook  # start-up: only notebooks need it

        data = edit_notebook(source.notebook, edits)
        notebook = parse_notebook(data)
        return source._replace(text=notebook.text, notebook=notebook), data
    if source.markdown is not None:
        from .markdown import edited  # start-up: only documents need it

        markdown = edited(source.markdown, edits)
        return source._replace(text=markdown.python, markdown=markdown), encode(source, markdown.text)
    from .edits import apply_edits  # start-up: a check edits nothing

    text = apply_edits(source.text, edits)
    return source._replace(text=text), encode(source, text)
