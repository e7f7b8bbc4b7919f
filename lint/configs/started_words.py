"""The words that a command hands to the script it starts, for a parser that the script makes itself (``argparse``)."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from ..facts.values import Const, Seq, Unknown
from ..finding import Note
from .document import Document
from .nodes import Mapping
from .shell.commands import read_commands
from .shell.text import is_one

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..facts.values import Value
    from .run_files import RunFiles
    from .shell.commands import Word

#: Where messages go, or what is read: `> log`, `2>&1`, `< data`; what a word like this is told in the next one.
_ALONE = re.compile(r"\d*(?:>>?|<)\Z")
_REDIRECTION = re.compile(r"\d*(?:>>?|<(?!<))")


class StartedWords(NamedTuple):
    """What a command says to its script."""

    #: Where it stands.
    document: Document
    words: Seq
    note: Note


def started_words(run: RunFiles, text: str) -> StartedWords | None:
    """The words behind the script of ``run`` in ``text``, the launch script that starts it; None for no such run."""
    commands = read_commands(text)
    if run.words is None or run.launch is None or run.command >= len(commands):
        return None
    command = commands[run.command]
    script = command[run.argument - 1]
    document = Document(run.launch, text, Mapping({}, script.begin, script.end, flow=False))
    given = without_redirections(command[run.argument :])
    is_open = any(word.text is None and not is_one(text[word.begin : word.end]) for word in given)
    words = Seq("list", [_value(document, word) for word in given], is_open, None)
    note = Note(run.launch, document.locator.span(script.begin, script.end), "the arguments of this command decide it")
    return StartedWords(document, words, note)


def _value(document: Document, word: Word) -> Value:
    node = ast.Constant(word.text)
    document.place(node, word.begin, word.end)
    return Unknown(node) if word.text is None else Const(word.text, node)


def without_redirections(words: Sequence[Word]) -> list[Word]:
    """``words`` without those that say where messages go."""
    kept: list[Word] = []
    is_target = False
    for word in words:
        said = word.text or ""
        if not is_target and not _REDIRECTION.match(said):
            kept.append(word)
        is_target = not is_target and _ALONE.match(said) is not None
    return kept
