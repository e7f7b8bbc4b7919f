"""Writes training programs: one choice from every table of ingredients, spelled the way users spell them.

A program says nothing about right or wrong. What it really does is found out by running it (:mod:`tests.truth.execute`).
"""

from __future__ import annotations

import random
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import language_models, plain_torch

if TYPE_CHECKING:
    from collections.abc import Callable

#: Families of programs with how often one is drawn, in parts of the sum.
FAMILIES: tuple[tuple[int, Callable[[random.Random], tuple[str, tuple[str, ...]]]], ...] = (
    (7, plain_torch.write),
    (3, language_models.write),
)


@dataclass(frozen=True, slots=True)
class Program:
    """A training script; ``ingredients`` are the names of what it was written from."""

    seed: int
    text: str
    ingredients: tuple[str, ...]

    @property
    def command_lines(self) -> tuple[tuple[str, ...], ...]:
        """The ways to start it: what a command line option decides is open, and both ways are run."""
        return ((), ("--checkpoint",)) if "'--checkpoint'" in self.text else ((),)


def write_program(seed: int) -> Program:
    """The program of ``seed``: the same one every time."""
    choose = random.Random(seed)
    weights, writers = zip(*FAMILIES, strict=True)
    (writer,) = choose.choices(writers, weights)
    text, ingredients = writer(choose)
    return Program(seed, textwrap.dedent(text).strip() + "\n", ingredients)
