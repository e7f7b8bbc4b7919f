"""``hf-ckpt``: the decisions of a policy from the shell."""

from __future__ import annotations

import sys

import click

from ..errors import CkptError, MissingExtraError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hf-ckpt")
def command() -> None:
    """Selective activation checkpointing: plan it, explain it, measure it, prove it."""


def main() -> None:
    """The entry point: every expected error is one line on stderr and exit code 2."""
    try:
        _load_commands()
        command()
    except CkptError as error:
        click.echo(f"hf-ckpt: {error}", err=True)
        sys.exit(2)


def _load_commands() -> None:
    try:
        from . import bench, explain, plan, policies, verify
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("torch", "transformers", "accelerate", "peft", "scipy"):
            raise
        raise MissingExtraError(
            f"hf-ckpt needs {error.name}, which is not installed: run `pip install 'hf-ckpt[train]'`"
        ) from error
    for module in (plan, explain, bench, verify, policies):
        command.add_command(module.command)
