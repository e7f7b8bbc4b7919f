"""``hf-ckpt verify``: prove that a policy leaves gradients unchanged, to the last bit."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from rich.console import Console

from ..policy import parse_policy
from .subject import Subject, subject_options

if TYPE_CHECKING:
    from ..certificate import Certificate


@click.command("verify")
@subject_options
@click.option("--policy", default="budget=0.5", show_default=True)
@click.option("--engine", type=click.Choice(["traced", "torch"]), default="traced", show_default=True)
@click.option("--seed", default=0, show_default=True)
def command(subject: Subject, policy: str, engine: str, seed: int) -> None:
    """Compare one micro-batch with and without a policy, under the same random numbers.

    The model has random weights. Exit code 0: loss and all gradients are bitwise equal; 1: they are not.
    """
    parsed = parse_policy(policy)

    import torch

    from ..certificate import certify
    from ..proof.table import as_table
    from .model import build_model, token_ids
    from .positions import fit_length

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(seed)
    model = build_model(subject, device)
    subject = fit_length(subject, model)
    certificate = certify(model, token_ids(subject, model, device), parsed, engine=engine, seed=seed)
    console = Console()
    console.print(as_table(certificate.report))
    console.print(_verdict(certificate))
    sys.exit(0 if certificate.holds else 1)


def _verdict(certificate: Certificate) -> str:
    if not certificate.deterministic:
        return "not proven: two runs without a policy differ already (a nondeterministic kernel)"
    if certificate.holds:
        return f"bitwise equal: the loss and {certificate.compared} gradients"
    worst = sorted(certificate.differences, key=lambda d: -d.error)[:5]
    lines = "\n".join(f"  {d.parameter}: relative error {d.error:.2e}" for d in worst)
    loss = "equal" if certificate.same_loss else "different"
    return f"{len(certificate.differences)} of {certificate.compared} gradients differ (loss {loss}); worst:\n{lines}"
