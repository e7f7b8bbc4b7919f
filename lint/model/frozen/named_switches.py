"""Switches of gradients in loops over names: whether one certainly comes to the parameters of a module, or to none."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING

from ...facts.nodes import is_inside, source_text
from ...facts.objects.containers import container_kind
from ...facts.values import Instance, Result, Value, options, same
from ..conditions.guards import own_guards
from ..names import canonical
from ..texts.given_texts import meant_at
from ..texts.passing_names import is_named_in, name_passes_all
from .module_loops import loop_over_modules, passes_in_loop
from .named_modules import DEPTH, MOST, chains_in, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..events import GradientSwitch
    from ..history import History
    from .module_loops import ModuleLoop

PARAMETER = ("torch.nn.Parameter", "torch.nn.parameter.Parameter")
EMBEDDING = "torch.nn.Embedding"
#: Modules that have a weight only.
WEIGHT_ONLY = frozenset((EMBEDDING, f"{EMBEDDING}.from_pretrained", "torch.nn.EmbeddingBag"))
_PARAMETERS = ("weight", "bias")
_NUMBER = re.compile(r"\d")
#: A number in the path through a list, and what stands for it: all of a list may be one module.
_NUMBERED = re.compile(r"(?<![^.])\d+(?![^.])")
_NUMBERS = tuple(map(str, range(128)))


def comes_to(run: History, switch: GradientSwitch, module: Value) -> bool | None:
    """Whether a loop over names, or over modules, of a model comes to all of ``module``, or to nothing; else None."""
    over_modules = loop_over_modules(switch.module)
    if over_modules is not None:
        return _comes_to_among(run, switch, over_modules, module)
    guards, whole = [*own_guards(switch.place)], switch.module
    loop = switch.place.loops[-1] if switch.place.loops else None
    if not guards or not isinstance(loop, ast.For) or not is_named_in(loop) or not isinstance(whole, Instance):
        return None
    if not all(is_inside(guard.test, loop) for guard in guards):
        return None
    paths = [path for path, held in _named(whole) if same(held, module)]
    if any(_NUMBER.search(source_text(guard.test)) for guard in guards):
        # Which of several layers a test asks for is not told apart.
        paths = [_NUMBERED.sub(number, path) for path in paths for number in _NUMBERS]
    meant = meant_at(run.program, switch.place)
    names = paths if is_parameter(module) else [f"{path}.{name}" for path in paths for name in _PARAMETERS]
    answers = {name_passes_all(guards, loop, name, meant) for name in names}
    return answers.pop() if len(answers) == 1 else None


def is_parameter(value: Value) -> bool:
    """Whether it is no module, but a parameter that one has by itself."""
    return isinstance(value, Result) and canonical(value.call.name) in PARAMETER


def _comes_to_among(run: History, switch: GradientSwitch, found: ModuleLoop, module: Value) -> bool | None:
    chains = [chain for chain in chains_in(found.whole) if same(chain[-1][1], module)]
    answers = {passes_in_loop(run.program, switch.place, found, chain) for chain in chains}
    if found.field and True in answers:
        kind = canonical(module.call.name) if isinstance(module, Result) else ""
        return True if found.field == "weight" and kind in WEIGHT_ONLY else None  # What else it has is left as it is.
    return answers.pop() if len(answers) == 1 else None


@lru_cache(maxsize=4)
def _named(whole: Instance) -> tuple[tuple[str, Value], ...]:
    """The modules of libraries in ``whole`` by their names; none where they are too many."""
    found = tuple(islice(_modules(whole, "", DEPTH), MOST + 1))
    return found if len(found) <= MOST else ()


def _modules(outer: Value, prefix: str, depth: int) -> Iterator[tuple[str, Value]]:
    """The modules of libraries in ``outer`` by their names, which begin with ``prefix``; one for all of a list."""
    if not depth:
        return
    for name, held in parts_of(outer):
        for option in options(held):
            path = f"{prefix}{name}"
            if isinstance(option, Result) and not container_kind(option):
                yield path, option
            else:
                yield from _modules(option, f"{path}.", depth - 1)
