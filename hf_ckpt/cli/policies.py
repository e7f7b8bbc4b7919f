"""``hf-ckpt policies``: every policy there is, with what it does."""

from __future__ import annotations

import inspect

import click
from rich.console import Console
from rich.table import Table

from ..policy import Policy, policies


@click.command("policies")
def command() -> None:
    """List the policies. They combine: `attention+norm@layers(0-7)`, `full@vision+budget=0.5`, `full+head(8)`."""
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name, policy in policies().items():
        table.add_row(f"[bold]{policy.usage or name}[/bold]", _summary(policy))
    Console().print(table)


def _summary(policy: type[Policy]) -> str:
    """The first paragraph of its docstring, with single backticks."""
    return (inspect.getdoc(policy) or "").split("\n\n")[0].replace("\n", " ").replace("``", "`")
