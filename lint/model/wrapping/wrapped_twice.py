"""Modules that two calls of torch's wrappers go around, or one around a block and the other around a part of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from ...facts.objects.containers import is_module_list
from ...facts.values import Attr, Class, Element, Instance, options, same
from ..conditions.first_iteration import depends_on_iteration
from ..events import BlockWrapping, CheckpointWrap, WrapperCheckpointing
from ..flow.iterations import goes_through_all
from ..libraries.sharding import class_of, is_in, is_same_module, named_class
from ..regions.bodies import classes_checked
from ..regions.nested import is_run_before_more
from ..types import is_in_hf_model, unwrapped
from .check_functions import asks_for_kinds_alone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Value
    from ..run import Run

#: A layer of transformers, and the attention in it: the layer has another part behind that.
_LAYER = re.compile(r"(transformers\.[A-Z]\w*?)(?:Decoder|Encoder)?(?:Layer|Block)")
_ATTENTION = re.compile(r"[A-Za-z0-9]*Attention")
_ATTENTIONS = frozenset(("self_attn", "self_attention", "attn", "attention"))


class Twice(NamedTuple):
    """One of two wrappings that meet in one block, in every run that comes to it; the other is ``other``."""

    event: WrapperCheckpointing
    other: WrapperCheckpointing
    #: Whether the one goes around a part of what the other goes around.
    is_part: bool


def wrapped_twice(run: Run) -> Iterator[Twice]:
    """Every two wrappings of one model of which the blocks of one, or parts of them, run three times a step."""
    wrappings = [event for event in run.of(WrapperCheckpointing) if event.reentrant is not None]
    for position, later in enumerate(wrappings):
        for first in wrappings[:position]:
            if first.place.excludes(later.place):
                continue
            if isinstance(first, CheckpointWrap) and isinstance(later, CheckpointWrap):
                yield from _block_and_part(run, first, later)
            elif _concern_one_model(first, later):
                yield from _together(run, first, later)


def _block_and_part(run: Run, first: CheckpointWrap, later: CheckpointWrap) -> Iterator[Twice]:
    """`block.attn = checkpoint_wrapper(block.attn)` beside `blocks[i] = checkpoint_wrapper(block)`."""
    for whole, part in ((first, later), (later, first)):
        is_in_turn = bool(part.place.loops) and part.place.loops == whole.place.loops
        is_alike = not part.place.deeper_than(whole.place) if is_in_turn else _is_for_all(part)
        is_reentrant = True in (whole.reentrant, part.reentrant)
        if is_alike and _part_runs_again(run, whole.module, part.module, is_reentrant):
            yield from _ordered(first, later, is_part=True)


def _part_runs_again(run: Run, whole: Value, part: Value, is_reentrant: bool) -> bool:
    """Whether the module ``part`` is in ``whole`` and runs again for each of the two wrappers."""
    whole, part = unwrapped(whole), unwrapped(part)
    match whole, part:
        case Instance(outer), Instance(inner):
            return _is_built_in(part, whole) and _runs_again(run, outer, inner, is_reentrant)
        case Element(of=blocks), Attr(base=Element(of=held), name=name) if is_in_hf_model(blocks):
            return same(blocks, held) and (is_reentrant or name in _ATTENTIONS)
        case Element(of=blocks), Attr(base=Element(of=held)):
            return same(blocks, held) and is_reentrant
    return False


def _ordered(first: WrapperCheckpointing, later: WrapperCheckpointing, *, is_part: bool) -> Iterator[Twice]:
    """What every run that comes to the one of the two comes to, too; nothing where each stands under a condition."""
    reported, other = (first, later) if first.place.deeper_than(later.place) else (later, first)
    if not other.place.deeper_than(reported.place):
        yield Twice(reported, other, is_part)


def _together(run: Run, first: WrapperCheckpointing, later: WrapperCheckpointing) -> Iterator[Twice]:
    if _accept_one_kind(run, first, later) and True in (first.reentrant, later.reentrant):
        yield from _ordered(first, later, is_part=False)
    elif any(_is_part_again(run, whole, part) for whole, part in ((first, later), (later, first))):
        yield from _ordered(first, later, is_part=True)


def _concern_one_model(first: WrapperCheckpointing, later: WrapperCheckpointing) -> bool:
    """Whether both go through one model, or one of them wraps a module that the other goes through."""
    mine, their = unwrapped(first.module), unwrapped(later.module)
    if isinstance(first, BlockWrapping) and isinstance(later, BlockWrapping):
        # Two slices of a list of blocks are that list here.
        return not is_module_list(mine) and (is_same_module(mine, their) or mine.is_same(their))
    whole, part = (mine, their) if isinstance(first, BlockWrapping) else (their, mine)
    return (is_in(part, whole) and not part.is_same(whole)) or _is_built_in(part, whole)


def _is_built_in(part: Value, whole: Value) -> bool:
    """Whether the constructor of ``whole`` builds ``part``."""
    match part, whole:
        case Instance(_, made), Instance(_, around) if made is not None and around is not None:
            return around.node in made.place.stack
    return False


def _kinds(run: Run, event: WrapperCheckpointing) -> list[Class | str]:
    """The classes of what ``event`` wraps, all objects of them."""
    if isinstance(event, BlockWrapping):
        if not all(map(asks_for_kinds_alone, options(event.check))):
            return []
        return [kind for kind in map(named_class, classes_checked(event.check, run.bodies)) if kind is not None]
    kind = class_of(event.module)
    return [kind] if kind is not None else []


def _accept_one_kind(run: Run, first: WrapperCheckpointing, later: WrapperCheckpointing) -> bool:
    return any(kind in _kinds(run, later) for kind in _kinds(run, first))


def _is_part_again(run: Run, whole: WrapperCheckpointing, part: WrapperCheckpointing) -> bool:
    """Whether ``part`` wraps a part of what ``whole`` wraps that runs again for each of the two."""
    if isinstance(part, CheckpointWrap) and not _is_for_all(part):
        return False
    is_reentrant = True in (whole.reentrant, part.reentrant)
    pairs = [(outer, inner) for outer in _kinds(run, whole) for inner in _kinds(run, part)]
    return any(_runs_again(run, outer, inner, is_reentrant) for outer, inner in pairs)


def _is_for_all(wrap: CheckpointWrap) -> bool:
    """Whether ``wrap`` goes around the part of every block: neither a slice of them nor every second one."""
    return not depends_on_iteration(wrap.place) and all(map(goes_through_all, wrap.place.loops))


def _runs_again(run: Run, whole: Class | str, part: Class | str, is_reentrant: bool) -> bool:
    match whole, part:
        case Class(), Class() if whole is not part:
            modules = run.bodies.of(whole.instance).modules
            is_inside = any(getattr(module, "cls", None) is part for module in modules)
            return is_inside and (is_reentrant or is_run_before_more(run, whole, part))
        case str(), str():
            layer = _LAYER.fullmatch(whole)
            return layer is not None and _is_attention_of(layer[1], part)
    return False


def _is_attention_of(family: str, part: str) -> bool:
    return part.startswith(family) and _ATTENTION.fullmatch(part.removeprefix(family)) is not None
