"""A real client talks to the real server over standard input and output."""

import asyncio
import sys

import pytest

pytest.importorskip("pygls")

from lsprotocol import types
from pygls.lsp.client import LanguageClient

MISTAKE = """\
from torch.utils.checkpoint import checkpoint


def forward(block, x):
    return checkpoint(block, x), "\U0001f600", checkpoint(block, x)
"""


class Session:
    """A client with one document open."""

    def __init__(self, uri):
        self.uri = uri
        self.client = LanguageClient("test", "0")
        self.published = asyncio.Queue()
        self.version = 1

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def receive(params):
            self.published.put_nowait(params)

    async def start(self, text):
        await self.client.start_io(sys.executable, "-m", "hf_ckpt.lint", "lsp")
        await self.client.initialize_async(types.InitializeParams(capabilities=types.ClientCapabilities()))
        self.client.initialized(types.InitializedParams())
        document = types.TextDocumentItem(self.uri, types.LanguageKind.Python, self.version, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(document))
        return await self.diagnostics()

    async def diagnostics(self):
        return (await asyncio.wait_for(self.published.get(), 30)).diagnostics

    async def change(self, text):
        self.version += 1
        document = types.VersionedTextDocumentIdentifier(self.version, self.uri)
        change = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))
        return await self.diagnostics()

    async def actions(self, where, only=None):
        document = types.TextDocumentIdentifier(self.uri)
        params = types.CodeActionParams(document, where, types.CodeActionContext([], only=only))
        return await self.client.text_document_code_action_async(params) or []

    async def stop(self):
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()


def apply(text, edits):
    lines = text.split("\n")
    for edit in sorted(edits, key=lambda e: (e.range.start.line, e.range.start.character), reverse=True):
        assert edit.range.start.line == edit.range.end.line
        units = lines[edit.range.start.line].encode("utf-16-le")
        start, end = edit.range.start.character * 2, edit.range.end.character * 2
        changed = units[:start] + edit.new_text.encode("utf-16-le") + units[end:]
        lines[edit.range.start.line] = changed.decode("utf-16-le")
    return "\n".join(lines)


def test_diagnostics_and_quick_fixes(tmp_path):
    async def talk():
        session = Session((tmp_path / "train.py").as_uri())
        first, second = await session.start(MISTAKE)
        assert (first.source, first.range.start.line) == ("ckpt-lint", 4)
        # Columns are UTF-16 code units: the character before the second call takes two.
        assert second.range.start.character == MISTAKE.splitlines()[4].rindex("checkpoint") + 1
        fix, *silence = await session.actions(second.range, [types.CodeActionKind.QuickFix])
        fixed = apply(MISTAKE, fix.edit.changes[session.uri])
        assert "checkpoint(block, x, use_reentrant=False)\n" in fixed
        assert [action.title for action in silence] == [f"Silence {second.code} on this line"]
        silenced = apply(MISTAKE, silence[0].edit.changes[session.uri])
        assert f"# ckpt-lint: ignore[{second.code}]" in silenced
        assert not await session.change(silenced)
        unused = MISTAKE.replace("x)", "x, use_reentrant=False)").rstrip() + f"  # noqa: {second.code}\n"
        [idle] = await session.change(unused)
        assert idle.code == "CKPT901"
        [fix_all] = await session.actions(idle.range, [types.CodeActionKind.SourceFixAll])
        assert not await session.change(apply(unused, fix_all.edit.changes[session.uri]))
        [broken] = await session.change("from torch.utils.checkpoint import checkpoint\ndef f(:\n")
        assert (broken.code, broken.range.start.line) == ("CKPT903", 1)
        assert not await session.change("x = 1\n")
        await session.stop()

    asyncio.run(talk())
