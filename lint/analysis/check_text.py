"""From text to findings: prefilter, facts, events, rules, confirmation. Pure: nothing is read from disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.interpreter.program import read_program
from ..facts.origin import origin
from ..model.conditions.verdict import judged
from ..model.conditions.versions import Versions
from ..model.run import Run
from ..prefilter.candidates import candidates
from ..prefilter.code import code_of
from ..prefilter.file_gate import starts_run
from ..tool_rules.ckpt903_unparsable_file import not_python
from .garbage import collection_paused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..facts.imported.local import FindModule
    from ..facts.walk import Program
    from ..finding import Finding
    from ..model.report import Report
    from ..rules import Rule


def check_source(
    text: str,
    filename: str = "<string>",
    *,
    select: Callable[[str], bool] | None = None,
    versions: Mapping[str, str] | None = None,
    find_module: FindModule | None = None,
    reported: Callable[[str], bool] | None = None,
    notes: bool = False,
) -> list[Finding]:
    """The findings in Python source ``text``, sorted by place; one finding when it is no Python.

    Args:
        text: The source.
        filename: What findings call it.
        select: Tells for a code whether its rule runs; None for every rule that is on by default.
        versions: The range that each library is used in, as in ``{"transformers": ">=5.0"}``.
        find_module: Gives the modules of the project that the text imports, so that what they hold is known here.
        reported: Tells for the file name of such a module whether findings that lie in it, but belong to the run of
            this text, are wanted; None for none.
        notes: Whether to give, too, what is a mistake only under a condition that the program leaves open.
    """
    rules = candidates(code_of(text), select is not None)
    if not rules and (find_module is None or not starts_run(text)):
        return []
    with collection_paused():
        found = _check(text, filename, rules, select, versions, find_module, reported or _nowhere_else)
    return [finding for finding in found if notes or finding.condition is None]


def _nowhere_else(imported: str) -> bool:
    return False


def _check(
    text: str,
    filename: str,
    rules: list[Rule],
    select: Callable[[str], bool] | None,
    versions: Mapping[str, str] | None,
    find_module: FindModule | None,
    reported: Callable[[str], bool],
) -> list[Finding]:
    try:
        program = read_program(text, filename, find_module)
    except SyntaxError as error:
        return [not_python(filename, error)]
    run = Run(program, Versions(versions or {}))
    if program.texts:
        # What makes a rule speak may stand in a module that the file imports.
        rules = candidates("\n".join(map(code_of, (text, *program.texts.values()))), select is not None)
    admitted = [rule for rule in rules if run.versions.admit(rule.versions)]
    wanted = [rule for rule in admitted if (rule.default if select is None else select(rule.code))]
    return _confirmed([(rule, report) for rule in wanted for report in judged(run, rule.check(run))], program, reported)


def _confirmed(proposed: list[tuple[Rule, Report]], program: Program, reported: Callable[[str], bool]) -> list[Finding]:
    wanted = [(rule, report) for rule, report in proposed if _is_wanted(report, reported)]
    if not wanted:
        return []
    # Start-up: libcst takes longer to import than a clean file to check.
    from .confirm import confirm

    return confirm(wanted, program)


def _is_wanted(report: Report, reported: Callable[[str], bool]) -> bool:
    imported = origin(report.node)
    return imported is None or reported(imported)
