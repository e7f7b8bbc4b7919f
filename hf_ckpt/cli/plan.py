"""``hf-ckpt plan``: what each policy will hold and cost, without a GPU and without weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from ..errors import CkptError
from ..policy import parse_policy
from .subject import Subject, subject_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..planner.problem import Assessment
    from ..policy import Policy
    from .study import Study

#: What is compared when no policy is named.
USUAL = ("none", "balanced", "attention", "mlp", "norm", "dots_saveable", "every(2)", "budget=0.5", "full")


@click.command("plan")
@subject_options
@click.option("--policy", "policies", multiple=True, help="A policy to forecast; may be given several times.")
@click.option("--memory", help="Memory of the device to plan for, such as 80GiB; default: this machine's.")
@click.option("--optimizer", default="adamw_torch", show_default=True, help="TrainingArguments' `optim` name.")
def command(subject: Subject, policies: tuple[str, ...], memory: str | None, optimizer: str) -> None:
    """Forecast policies for a model: bytes held after forward, bytes at the peak, added time.

    Nothing is trained and no weight is loaded: the layers are traced on metadata. Times are those of this machine. Of a
    multimodal model these are the language layers.
    """
    parsed = [parse_policy(text) for text in policies or USUAL]

    from ..measuring.forecast import forecast
    from .study import study

    found = study(subject, memory, optimizer)
    whole = forecast(found.inputs, found.resolve(parse_policy("none")))
    forecasts = [(policy, _forecast(found, policy)) for policy in parsed]
    console = Console()
    console.print(_table(found, whole, forecasts))
    for policy, outcome in forecasts:
        if isinstance(outcome, CkptError):
            console.print(f"{policy}: {outcome}", markup=False, highlight=False)


def _forecast(study: Study, policy: Policy) -> Assessment | CkptError:
    from ..measuring.forecast import forecast

    try:
        return forecast(study.inputs, study.resolve(policy))
    except CkptError as error:
        return error


def _table(study: Study, whole: Assessment, forecasts: Sequence[tuple[Policy, Assessment | CkptError]]) -> Table:
    inputs = study.inputs
    table = Table(title=str(study.subject), title_justify="left")
    table.add_column("policy")
    for heading in ("held by layers", "of none", "peak beside state", "added ms a step"):
        table.add_column(heading, justify="right")
    for policy, found in forecasts:
        table.add_row(str(policy), *_figures(found, whole))
    untraced = sum(ledger is None for ledger in inputs.ledgers)
    state = f"state: {decimal(inputs.memory.used)} of weights, {decimal(inputs.to_come)} of gradients and optimizer"
    caption = f"{state}; times as measured on {inputs.rates.device}"
    table.caption = caption + (f"; {untraced} layers cannot be traced and are replayed whole" if untraced else "")
    return table


def _figures(found: Assessment | CkptError, whole: Assessment) -> list[str]:
    if isinstance(found, CkptError):
        return ["none, see below", "", "", ""]
    share = f"{found.held / whole.held:.2f}" if whole.held else ""
    return [decimal(found.held), share, decimal(found.peak), f"{1000 * found.seconds:.1f}"]
