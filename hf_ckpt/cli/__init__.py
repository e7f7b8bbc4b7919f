"""``hf-ckpt``: the decisions of a policy from the shell.

The commands import the runtime when they run, so that help, options and the list of policies need no torch.
"""

from __future__ import annotations

import sys

import click

from .._lazy import missing_extra
from ..errors import CkptError
from . import bench, explain, plan, policies, verify


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="hf-ckpt")
def command() -> None:
    """Selective activation checkpointing: plan it, explain it, measure it, prove it."""


for _module in (plan, explain, bench, verify, policies):
    command.add_command(_module.command)


def main() -> None:
    """The entry point: every expected error is one line on stderr and exit code 2."""
    try:
        _run()
    except CkptError as error:
        click.echo(f"hf-ckpt: {error}", err=True)
        sys.exit(2)


def _run() -> None:
    try:
        command()
    except ModuleNotFoundError as error:
        missing = missing_extra(error, "this command")
        if missing is None:
            raise
        raise missing from error
