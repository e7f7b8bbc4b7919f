"""By which conditions the ways to two calls part: a switch of checkpointing, the mode, or the data."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ...facts.exclusion import contradictions
from ...facts.identifiers import names_in, own_attributes, words_in
from ...facts.nodes import all_nodes
from ..conditions.guards import own_guards

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Function, Guard, Place

_Assigned: TypeAlias = "dict[str, list[ast.expr]]"

#: What a condition on the mode is written with.
_MODE = re.compile(r"training|is_grad_enabled|requires_grad|scripting|tracing|exporting")
#: How a switch of checkpointing is called.
_SWITCH = re.compile(
    r"checkpoint|ckpt|remat|recompute|memory_?(efficient|sav)|(save|low|less)_?mem|(^|_)(cp|gc|ac)(_|$)", re.IGNORECASE
)


class Parting(NamedTuple):
    """What decides between two calls that exclude each other."""

    #: Whether it is the mode, and no switch beside it.
    by_mode: bool
    #: The variables and own attributes that other conditions ask for, those on one of the ways among them.
    asked: frozenset[str]


def asks_for_mode(test: ast.AST) -> bool:
    """Whether a condition speaks of the mode."""
    return any(_MODE.search(name) for name in _words(test))


def are_switches(place: Place) -> bool:
    """Whether the conditions around ``place`` speak of nothing but switches of checkpointing and the mode."""
    assigned = _assigned(place.function, (ast.Assign, ast.AnnAssign, ast.NamedExpr))
    return all(_is_switch(atom, assigned) for guard in place.guards for atom in _atoms(guard.test))


def parting(mine: Place, other: Place) -> Parting | None:
    """What decides between two places; None when the data does, or nothing."""
    assigned = _assigned(mine.function, (ast.Assign, ast.AnnAssign, ast.NamedExpr))
    found: set[ast.AST] = set()
    for guard in mine.guards:
        for its in other.guards:
            parts = [*contradictions(guard.test, guard.taken, its.test, its.taken)]
            atoms = [atom for part in parts for atom in _atoms(part)]
            if atoms and not any(_is_switch(atom, assigned) for atom in atoms):
                return None
            found.update(atoms)
    if not found:
        return None
    switches = [atom for atom in found if _is_switch(atom, assigned)]
    return Parting(all(_is_mode(atom, assigned) for atom in switches), _asked(mine, other, assigned))


def sources(node: ast.AST, function: Function | None) -> frozenset[str]:
    """The variables and own attributes that ``node`` is made from, by assignments and loops of ``function``."""
    kinds = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.comprehension)
    return _made_from(_read(node), _assigned(function, kinds))


def _asked(mine: Place, other: Place, assigned: _Assigned) -> frozenset[str]:
    """What the conditions around one of the places ask for that are no switches."""
    around = [{(guard.test, guard.taken): guard for guard in own_guards(place)} for place in (mine, other)]
    apart = {guard.test for key in around[0].keys() ^ around[1].keys() for guard in _at(key, around)}
    atoms = [atom for test in apart for atom in _atoms(test) if not _is_switch(atom, assigned)]
    return frozenset().union(*(_made_from(_read(atom), assigned) for atom in atoms))


def _at(key: tuple[ast.AST, bool], around: list[dict[tuple[ast.AST, bool], Guard]]) -> Iterator[Guard]:
    return (guards[key] for guards in around if key in guards)


def _atoms(test: ast.AST) -> Iterator[ast.AST]:
    """The parts of a condition, those of `and`, `or` and `not`."""
    match test:
        case ast.BoolOp(values=values):
            for value in values:
                yield from _atoms(value)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _atoms(operand)
        case _:
            yield test


def _is_switch(atom: ast.AST, assigned: _Assigned) -> bool:
    return any(_SWITCH.search(word) or _MODE.search(word) for word in _words_behind(atom, assigned))


def _is_mode(atom: ast.AST, assigned: _Assigned) -> bool:
    return not any(_SWITCH.search(word) for word in _words_behind(atom, assigned))


def _words_behind(atom: ast.AST, assigned: _Assigned) -> frozenset[str]:
    """The words of a condition; where it is a variable, those of what that was set to as well."""
    behind = assigned.get(atom.id, []) if isinstance(atom, ast.Name) else []
    return _words(atom).union(*map(_words, behind))


def _words(node: ast.AST) -> frozenset[str]:
    # `getattr(self.config, "gradient_checkpointing", False)` names its switch in a string.
    written = (part.value for part in all_nodes(node) if isinstance(part, ast.Constant))
    return words_in(node) | {text for text in written if isinstance(text, str)}


def _read(node: ast.AST) -> frozenset[str]:
    """The variables and own attributes that ``node`` reads, functions that it calls left out."""
    called = {part.func for part in all_nodes(node) if isinstance(part, ast.Call)}
    names = {part.id for part in all_nodes(node) if isinstance(part, ast.Name) and part not in called}
    return frozenset(names - {"self", "torch"}) | own_attributes(node, ast.Load)


def _made_from(names: frozenset[str], assigned: _Assigned) -> frozenset[str]:
    found: set[str] = set()
    left = set(names)
    while left:
        name = left.pop()
        found.add(name)
        left |= frozenset().union(*map(_read, assigned.get(name, []))) - found
    return frozenset(found)


def _assigned(function: Function | None, kinds: tuple[type[ast.AST], ...]) -> _Assigned:
    """By each name that statements of these ``kinds`` bind in ``function``: the expressions that it is bound to."""
    return {} if function is None else _assigned_in(function.node, kinds)


@lru_cache(maxsize=8)
def _assigned_in(function: ast.AST, kinds: tuple[type[ast.AST], ...]) -> _Assigned:
    found: _Assigned = {}
    for node in all_nodes(function):
        if isinstance(node, kinds):
            for name, value in _bindings(node):
                # An update, `x = block(x, mask)`, does not say what `x` is made from.
                if name not in _read(value):
                    found.setdefault(name, []).append(value)
    return found


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((name, value) for target in targets for name in names_in(target))
        case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.NamedExpr(target=target, value=value):
            yield from ((name, value) for name in names_in(target))
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            yield from ((name, value) for name in names_in(target))
