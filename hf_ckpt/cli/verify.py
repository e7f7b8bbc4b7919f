"""``hf-ckpt verify``: prove that a policy leaves gradients unchanged, to the last bit."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from ..errors import NoEffectError
from ..measuring.report import as_table
from ..policy import parse_policy
from ..policy.platform import Engine
from .forecast.files import check_page, save_page
from .subject import Subject, subject_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..policy import Policy
    from ..script.examination import Examination

_POLICY = "budget=0.5"


@click.command("verify", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@subject_options(required=False)
@click.option(
    "--policy", help=f"The policy to verify; default: the script's own checkpointing, or {_POLICY} where it has none."
)
@click.option(
    "--engine",
    type=click.Choice([str(engine) for engine in Engine]),
    default="traced",
    show_default=True,
    help="With --model: what recomputes.",
)
@click.option("--seed", default=0, show_default=True, help="With --model: seed of the weights, the batch and dropout.")
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With a script that runs out of memory: write why, and memory over the step, into this HTML file.",
)
@click.argument("script", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT [ARGUMENTS]...]")
def command(
    subject: Subject, policy: str | None, engine: str, seed: int, html: Path | None, script: tuple[str, ...]
) -> None:
    """Check that checkpointing changes no bit of loss and gradients.

    A micro-batch is run with and without it, under the same random numbers.

    SCRIPT has a Trainer and runs as `python SCRIPT ARGUMENTS` does: with its own model and data, for two optimizer
    steps, with SelectiveCkpt put in (unless it checkpoints by itself) and the doctor on. It is stopped before it saves,
    evaluates or reports anything. --model is run with random weights and token ids.

    Exit code 0: loss and all gradients are bitwise equal, and the doctor found nothing; 1: something differs, or the
    doctor found something; 2: no verdict.
    """
    check_page(html)
    parsed = None if policy is None else parse_policy(policy)
    if bool(script) == bool(subject.model):
        raise click.UsageError("give a training script, or --model: one of the two")
    if script:
        right = _verify_script(script, parsed, html)
    else:
        right = _verify_model(subject, parsed or parse_policy(_POLICY), engine, seed)
    sys.exit(0 if right else 1)


def _verify_script(script: tuple[str, ...], policy: Policy | None, html: Path | None) -> bool:
    from ..script.run import examine_script  # start-up: it imports torch

    try:
        found = examine_script(script[0], script[1:], policy)
    except NoEffectError as error:
        click.echo(f"hf-ckpt: {error}", err=True)
        return False
    if os.environ.get("RANK", "0") == "0":
        console = Console(soft_wrap=True)
        for part in _told(script[0], found):
            console.print(part, highlight=False, markup=False)
        if html is not None and found.diagnosis is not None:
            save_page(html, found.diagnosis.html())
            console.print(f"wrote {html}", highlight=False, markup=False)
    return found.is_right


def _told(script: str, found: Examination) -> Iterator[object]:
    yield f"{script}: {found.trainer}, {found.ran_under}, stopped after {found.steps} optimizer steps"
    if found.report is not None:
        yield as_table(found.report)
    if found.checkpoints is not None:
        yield f"{found.checkpoints or 'no'} checkpointed calls in a forward"
    if found.diagnosis is not None:
        yield found.diagnosis.text
    yield str(found.certificate or "not proven: the training ended before its first step")
    yield from map(str, found.findings)
    yield f"the doctor found {len(found.findings) or 'nothing'}"


def _verify_model(subject: Subject, policy: Policy, engine: str, seed: int) -> bool:
    # start-up: help and the checks of options need no torch
    import torch

    from ..certificate.verify import verify
    from .model import build_model, check_runs, token_ids
    from .positions import fit_length

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(seed)
    model = build_model(subject, device)
    subject = fit_length(subject, model)
    ids = token_ids(subject, model, device)
    check_runs(model, ids, subject)
    torch.manual_seed(seed)
    found = verify(model, lambda: model(input_ids=ids, labels=ids, use_cache=False).loss, policy, engine=engine)
    console = Console()
    if found.report is not None:
        console.print(as_table(found.report))
    console.print(str(found), highlight=False, markup=False)
    return found.holds
