"""ckpt-lint against what generated programs really do, and the judge against programs whose effect is known."""

from __future__ import annotations

import random

import pytest

from .grammar import Program, write_program
from .judge import judge, table
from .outcome import Effect

PROLOGUE = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
model = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(2, 4)
"""
EPILOGUE = """
x.sum().backward()
optimizer.step()
"""
KNOWN = {
    "for layer in model:\n    x = torch.tanh(checkpoint(layer, x, use_reentrant=False))": frozenset(),
    "for layer in model:\n    x = torch.tanh(checkpoint(lambda h: layer(h), x, use_reentrant=False))": {Effect.WRONG},
    "for layer in model:\n    x = checkpoint(layer, x, use_reentrant=True)": {Effect.RAISES},
    "for layer in model:\n    checkpoint(layer, x, use_reentrant=False)\n    x = layer(x)": {Effect.NO_EFFECT},
    "for layer in model:\n    x = layer(x)": frozenset(),
}


@pytest.fixture(autouse=True)
def _needs_libraries():
    for library in ("torch", "transformers", "peft"):
        pytest.importorskip(library)


def test_the_judge_sees_what_programs_do(forked):
    programs = [Program(0, PROLOGUE + body + EPILOGUE, ()) for body in KNOWN]
    assert [one.effects for one in judge(programs, forked)] == list(KNOWN.values())


def test_a_seed_writes_the_same_program_every_time():
    assert write_program(11) == write_program(11)
    assert len({write_program(seed).text for seed in range(50)}) == 50


@pytest.mark.parametrize("seed", range(200))
def test_every_program_is_python(seed):
    compile(write_program(seed).text, "program.py", "exec")


@pytest.mark.slow(minutes=20)
def test_findings_agree_with_what_programs_do(forked):
    first = random.randrange(10**9)
    judged = list(judge((write_program(first + number) for number in range(2000)), forked))
    print(f"seed {first}\n{table(judged)}")
    told = [one for one in judged if one.effects is not None]
    claims, untrue = sum(len(one.claims) for one in told), sum(len(one.untrue) for one in told)
    wrong = [one for one in told if one.effects]
    assert untrue <= 0.02 * claims, table(judged)
    assert sum(one.is_missed for one in wrong) <= 0.1 * len(wrong), table(judged)
