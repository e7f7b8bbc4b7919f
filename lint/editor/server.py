"""``ckpt-lint lsp``: diagnostics and quick fixes in the editor. Needs the extra ``[lsp]``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.uris import from_fs_path, to_fs_path

from ... import __version__
from ..analysis.check_file import check_loaded
from ..analysis.job import Job
from ..catalogue.pages import page
from ..catalogue.rules import find_rule
from ..catalogue.urls import page_file
from ..finding import Applicability, Severity, Span
from ..fix.apply import compatible
from ..project.library_versions import project_ranges
from ..project.local_modules import LocalModules
from ..project.settings import SettingsError, find_settings
from ..sources.lines import split_lines
from ..sources.source import Source
from ..suppressions.add_ignore import ignore_edits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pygls.workspace import TextDocument

    from ..finding import Edit, Finding

_SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.NOTE: types.DiagnosticSeverity.Information,
}
_FIX_ALL = types.CodeActionKind(types.CodeActionKind.SourceFixAll)


class Checked(NamedTuple):
    """A document and what was found in it."""

    source: Source
    findings: tuple[Finding, ...]


def build_server() -> LanguageServer:
    """The server, with what it answers to."""
    server = LanguageServer("ckpt-lint", __version__, types.TextDocumentSyncKind.Incremental)

    @server.feature(types.TEXT_DOCUMENT_DID_OPEN)
    @server.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    @server.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def publish(
        params: types.DidOpenTextDocumentParams | types.DidChangeTextDocumentParams | types.DidSaveTextDocumentParams,
    ) -> None:
        _publish(server, server.workspace.get_text_document(params.text_document.uri))

    @server.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def close(params: types.DidCloseTextDocumentParams) -> None:
        cleared = types.PublishDiagnosticsParams(params.text_document.uri, [])
        server.text_document_publish_diagnostics(cleared)

    kinds = types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix, _FIX_ALL])

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION, kinds)
    def actions(params: types.CodeActionParams) -> list[types.CodeAction]:
        document = server.workspace.get_text_document(params.text_document.uri)
        return _actions(document, _check(server, document), params)

    @server.feature(types.TEXT_DOCUMENT_HOVER)
    def hover(params: types.HoverParams) -> types.Hover | None:
        document = server.workspace.get_text_document(params.text_document.uri)
        return _hover(_check(server, document), document, params)

    return server


def _check(server: LanguageServer, document: TextDocument) -> Checked:
    """The findings in the text of the editor; a failure of ours is written to its log, not shown in the text."""
    path = to_fs_path(document.uri) or document.uri
    source = Source(path, document.source)
    project_ranges.cache_clear()
    try:
        job = Job(path, find_settings(os.path.dirname(path) or ".", {}))
        checked = check_loaded(source, job, LocalModules(path))
        problem = checked.result.failure
    except SettingsError as error:
        checked, problem = None, str(error)
    if problem is not None:
        server.window_log_message(types.LogMessageParams(types.MessageType.Error, f"ckpt-lint: {problem}"))
    return Checked(source, checked.findings if checked is not None else ())


def _publish(server: LanguageServer, document: TextDocument) -> None:
    checked = _check(server, document)
    diagnostics = [_diagnostic(finding, document) for finding in checked.findings]
    params = types.PublishDiagnosticsParams(document.uri, diagnostics, document.version)
    server.text_document_publish_diagnostics(params)


def _diagnostic(finding: Finding, document: TextDocument) -> types.Diagnostic:
    notes = [
        types.DiagnosticRelatedInformation(
            types.Location(from_fs_path(os.path.abspath(note.filename)) or note.filename, _plain_range(note.span)),
            note.text,
        )
        for note in finding.notes
    ]
    return types.Diagnostic(
        range=_range(finding.span, document),
        message=finding.message,
        severity=_SEVERITIES[finding.severity],
        code=finding.code,
        code_description=_description(finding.code),
        source="ckpt-lint",
        related_information=notes or None,
        data=finding.name,
    )


def _description(code: str) -> types.CodeDescription | None:
    """The link behind the code: the rule's page, as it is installed, which opens beside the user's own file."""
    path = page_file(code)
    uri = from_fs_path(path) if path is not None else None
    return None if uri is None else types.CodeDescription(uri)


def _hover(checked: Checked, document: TextDocument, params: types.HoverParams) -> types.Hover | None:
    """The pages of the rules whose findings are at the cursor."""
    here = types.Range(params.position, params.position)
    codes = dict.fromkeys(f.code for f in checked.findings if _touches(_range(f.span, document), here))
    pages = [page(rule) for code in codes if (rule := find_rule(code)) is not None]
    return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, "\n\n".join(pages))) if pages else None


def _actions(document: TextDocument, checked: Checked, params: types.CodeActionParams) -> list[types.CodeAction]:
    wanted = params.context.only
    result: list[types.CodeAction] = []
    if wanted is None or any(kind.startswith("quickfix") for kind in wanted):
        here = [f for f in checked.findings if _touches(_range(f.span, document), params.range)]
        for finding in here:
            result += _quick_fixes(finding, document, checked)
    if wanted is None or any(_FIX_ALL.startswith(kind) for kind in wanted):
        edits = [edit for _, fix in compatible(checked.findings, unsafe=False) for edit in fix.edits]
        if edits:
            result.append(_action("Fix all ckpt-lint findings that are safe to fix", _FIX_ALL, edits, document))
    return result


def _quick_fixes(finding: Finding, document: TextDocument, checked: Checked) -> Iterable[types.CodeAction]:
    diagnostics = [_diagnostic(finding, document)]
    kind = types.CodeActionKind.QuickFix
    if finding.fix is not None and finding.fix.edits and finding.fix.applicability is not Applicability.DISPLAY:
        safe = finding.fix.applicability is Applicability.SAFE
        title = finding.fix.message if safe else f"{finding.fix.message} (changes what the run does)"
        yield _action(title, kind, finding.fix.edits, document, diagnostics, preferred=safe)
    if edits := ignore_edits(checked.source, [finding], ""):
        yield _action(f"Silence {finding.code} on this line", kind, edits, document, diagnostics)


def _action(
    title: str,
    kind: types.CodeActionKind,
    edits: Iterable[Edit],
    document: TextDocument,
    diagnostics: list[types.Diagnostic] | None = None,
    preferred: bool | None = None,
) -> types.CodeAction:
    changes = [types.TextEdit(_range(edit.span, document), edit.content) for edit in dict.fromkeys(edits)]
    workspace_edit = types.WorkspaceEdit(changes={document.uri: changes})
    return types.CodeAction(title, kind, diagnostics, preferred, edit=workspace_edit)


def _plain_range(span: Span) -> types.Range:
    start = types.Position(span.line - 1, span.column - 1)
    return types.Range(start, types.Position(span.end_line - 1, span.end_column - 1))


def _range(span: Span, document: TextDocument) -> types.Range:
    """``span`` in the units of the client (mostly UTF-16 code units), as the protocol wants it."""
    lines = split_lines(document.source)
    last = len(lines)
    plain = _plain_range(span)
    if span.end_line > last:  # the end of a file without a final line end
        plain.end = types.Position(last - 1, len(lines[-1]))
    return document.position_codec.range_to_client_units(lines, plain)


def _touches(a: types.Range, b: types.Range) -> bool:
    return a.start <= b.end and b.start <= a.end


def serve() -> None:
    """Answer on standard input and output until the client says goodbye."""
    build_server().start_io()
