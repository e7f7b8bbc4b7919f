"""The command line by click: `check` (the default), `rule`. Loaded only when plain paths do not say it all."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ... import __version__
from ..catalogue.pages import as_json, page, show
from ..catalogue.rules import all_rules, find_rule
from ..configs import is_config
from ..output.formats import DEFAULT_FORMAT, formats
from ..output.print_report import FAILURE
from .command import run
from .options import Options

if TYPE_CHECKING:
    from collections.abc import Callable

_Command = TypeVar("_Command", bound="Callable[..., Any]")
_CONTEXT = {"help_option_names": ["-h", "--help"]}


class DefaultGroup(click.Group):
    """A group that runs `check` when the first word is no command: `ckpt-lint train.py`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default command."""
        own = {"-h", "--help", "--version"}
        if args and args[0] not in self.commands and args[0] not in own:
            args = ["check", *args]
        return super().parse_args(ctx, args)


def _split(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """The entries of comma-separated lists, however many times the option was given."""
    return tuple(entry.strip() for value in values for entry in value.split(",") if entry.strip())


def _list_option(name: str, metavar: str, text: str) -> Callable[[_Command], _Command]:
    return click.option(name, multiple=True, metavar=metavar, callback=_split, help=text)


def _text_or_json(command: _Command) -> _Command:
    formats = click.Choice(("text", "json"))
    return click.option("--output-format", type=formats, default="text", show_default=True, help="How it is printed.")(
        command
    )


@click.group(cls=DefaultGroup, context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="ckpt-lint")
def cli() -> None:
    """Find activation-checkpointing mistakes in training scripts and notebooks.

    `ckpt-lint train.py` is short for `ckpt-lint check train.py`.

    Exit status: 0 nothing found, 1 findings, 2 ckpt-lint itself or its input failed.
    """


@cli.command(context_settings=_CONTEXT)
@click.argument("paths", nargs=-1, type=click.Path(allow_dash=True))
@_list_option("--select", "RULES", "Report only these: codes, prefixes (CKPT1), names, ALL.")
@_list_option("--extend-select", "RULES", "Report these too, besides the selected or default rules.")
@_list_option("--ignore", "RULES", "Do not report these.")
@click.option("--ignore-noqa", is_flag=True, help="Report findings that comments silence too.")
@click.option(
    "--versions",
    multiple=True,
    metavar="LIB=VERSION",
    help="Library version the code runs with: transformers=4.51 or 'transformers>=4.40,<5'. Repeatable.",
)
@click.option(
    "--output-format",
    type=click.Choice(formats()),
    default=None,
    help=f"How findings are printed (default: {DEFAULT_FORMAT}).",
)
@click.option("-o", "--output-file", type=click.Path(dir_okay=False), help="Write the report to this file.")
@click.option("-q", "--quiet", is_flag=True, help="Print findings and errors, nothing else.")
@click.option(
    "--color",
    type=click.Choice(("auto", "always", "never")),
    default="auto",
    help="Colors in the output (default: on a terminal).",
)
@click.option("--fix/--no-fix", default=False, help="Apply the fixes that do not change what the run does.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix or --diff: also fixes that change what the run does.")
@click.option("--fix-only", is_flag=True, help="Apply fixes; do not report what is left. Implies --fix.")
@click.option("--diff", is_flag=True, help="Print what --fix would change; write nothing.")
@click.option("--statistics", is_flag=True, help="Count findings by rule.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 even when there are findings.")
@click.option(
    "--exit-non-zero-on-fix", is_flag=True, help="Exit with 1 when a file was changed, even if nothing is left."
)
@_list_option("--exclude", "PATTERNS", "Skip these paths, besides the configured ones.")
@click.option("--markdown", is_flag=True, help="Search folders for Python code blocks in Markdown too.")
@click.option("--notes", is_flag=True, help="Report mistakes under a condition too, and name the condition.")
@click.option(
    "--respect-gitignore/--no-respect-gitignore", default=None, help="Skip in folders what git ignores (the default)."
)
@click.option("--force-exclude", is_flag=True, help="Exclude paths named on the command line too.")
@click.option(
    "--config",
    "config_files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="A YAML or JSON file that the scripts run with, or a TOML file with ckpt-lint's settings. Repeatable.",
)
@click.option("--isolated", is_flag=True, help="Ignore all settings in pyproject.toml files.")
@click.option(
    "--stdin-filename",
    metavar="PATH",
    help="File name to report for standard input (`-`); its folder decides the settings.",
)
@click.option(
    "--add-ignore",
    is_flag=False,
    flag_value="",
    metavar="[=REASON]",
    help="Silence every finding by a comment at its line.",
)
@click.option("--baseline", type=click.Path(dir_okay=False), help="Report only what this file does not know.")
@click.option("--write-baseline", is_flag=True, help="Put every finding into the --baseline file.")
@click.option("--watch", is_flag=True, help="Check again whenever a file changes.")
@click.option("--no-cache", is_flag=True, help="Check every file anew.")
@click.option("--show-settings", is_flag=True, help="Print the settings that hold for the first path.")
@click.option("--show-files", is_flag=True, help="Print the files that would be checked.")
def check(paths: tuple[str, ...], select: tuple[str, ...], config_files: tuple[str, ...], **options: Any) -> int:
    """Check files, folders or standard input (`-`).

    Without a path it checks the current folder.
    """
    if options["write_baseline"] and options["baseline"] is None:
        raise click.UsageError("--write-baseline needs --baseline FILE")
    if "-" in paths:
        _check_usage_of_stdin(paths, options)
    settings, configs = _told_apart(config_files)
    return run(Options(paths=paths or (".",), select=select or None, config=settings, run_configs=configs, **options))


def _check_usage_of_stdin(paths: tuple[str, ...], options: dict[str, Any]) -> None:
    if len(paths) > 1:
        raise click.UsageError("standard input (`-`) is checked alone, without other paths")
    if options["add_ignore"] is not None:
        raise click.UsageError("--add-ignore writes to files, so it cannot be used with standard input (`-`)")
    if options["watch"]:
        raise click.UsageError("--watch waits for changes of files, so it cannot be used with standard input (`-`)")


def _told_apart(files: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """The settings of ckpt-lint, and the configurations that scripts run with."""
    settings = [file for file in files if not is_config(file)]
    if len(settings) > 1:
        raise click.UsageError(f"more than one file of settings: {', '.join(settings)}")
    return (settings[0] if settings else None), tuple(file for file in files if is_config(file))


@cli.command(context_settings=_CONTEXT)
@click.argument("code", required=False)
@click.option("--all", "every", is_flag=True, help="Print the pages of all rules.")
@_text_or_json
def rule(code: str | None, every: bool, output_format: str) -> int:
    """Print the page of a rule, by code or name.

    The page says what the rule finds and why it is a mistake, with examples, and how safe its fix is.
    """
    if (code is None) == (not every):
        raise click.UsageError("give one rule (code or name), or --all")
    if every:
        chosen = all_rules()
    else:
        found = find_rule(code or "")
        if found is None:
            raise click.UsageError(f"no rule `{code}`; `ckpt-lint rule --all` lists them")
        chosen = (found,)
    if output_format == "json":
        click.echo(as_json(chosen, many=every))
    else:
        show("\n".join(map(page, chosen)))
    return 0


@cli.command(context_settings=_CONTEXT)
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@_text_or_json
@click.option(
    "--config",
    "configs",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="A YAML or JSON file that the scripts run with. Repeatable.",
)
def explain(paths: tuple[str, ...], output_format: str, configs: tuple[str, ...]) -> int:
    """Say whether checkpointing is on in a script, and by which line."""
    from ..explain.files import explain_files  # start-up: the other commands explain nothing

    return explain_files(paths, output_format, configs)


@cli.command(context_settings=_CONTEXT)
def lsp() -> int:
    """Serve an editor by the language server protocol.

    It speaks over standard input and output.
    """
    try:
        from ..editor.server import serve  # an editor's libraries may be missing
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise click.ClickException("the language server needs pygls: pip install 'hf-ckpt[lsp]'") from error
    serve()
    return 0


def run_cli(arguments: list[str]) -> int:
    """Parse ``arguments``, run the command, return the exit status."""
    # The reason is optional, so it must not be the next word, which is a path: `--add-ignore train.py`.
    arguments = ["--add-ignore=" if argument == "--add-ignore" else argument for argument in arguments]
    try:
        status = cli.main(arguments or ["--help"], prog_name="ckpt-lint", standalone_mode=False)
    except click.Abort:
        return 130
    except click.ClickException as error:
        error.show(sys.stderr)
        return FAILURE
    return int(status or 0)
