"""``hf-ckpt verify``: prove that a policy leaves gradients unchanged, to the last bit."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click
from rich.console import Console

from ..policy import parse_policy
from ..policy.platform import Engine
from .subject import Subject, subject_options

if TYPE_CHECKING:
    from ..measuring.verify import Verification


@click.command("verify")
@subject_options()
@click.option("--policy", default="budget=0.5", show_default=True, help="The policy to verify.")
@click.option(
    "--engine",
    type=click.Choice([str(engine) for engine in Engine]),
    default="traced",
    show_default=True,
    help="What recomputes.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of the weights, the batch and dropout.")
def command(subject: Subject, policy: str, engine: str, seed: int) -> None:
    """Compare one micro-batch with and without a policy, under the same random numbers.

    The model has random weights. Exit code 0: loss and all gradients are bitwise equal; 1: they are not.
    """
    parsed = parse_policy(policy)

    import torch

    from ..measuring.report import as_table
    from ..measuring.verify import verify
    from .model import build_model, token_ids
    from .positions import fit_length

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(seed)
    model = build_model(subject, device)
    subject = fit_length(subject, model)
    found = verify(model, token_ids(subject, model, device), parsed, engine=engine, seed=seed)
    console = Console()
    console.print(as_table(found.report))
    console.print(_verdict(found))
    sys.exit(0 if found.holds else 1)


def _verdict(found: Verification) -> str:
    if not found.deterministic:
        return "not proven: two runs without a policy differ already (a nondeterministic kernel)"
    if found.holds:
        return f"bitwise equal: the loss and {found.compared} gradients"
    worst = sorted(found.differences, key=lambda d: -d.error)[:5]
    lines = "\n".join(f"  {d.parameter}: relative error {d.error:.2e}" for d in worst)
    loss = "equal" if found.same_loss else "different"
    return f"{len(found.differences)} of {found.compared} gradients differ (loss {loss}); worst:\n{lines}"
