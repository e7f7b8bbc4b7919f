"""Which arguments of a call can only be tensors, by what the function does with them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.straight import straight
from ...facts.values import Ref, Result, options
from ..calls.call_targets import call_targets
from ..names import canonical
from ..state.in_place import rebound, used_as_tensors
from .tensor_values import MAKES_FROM_NUMBERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...facts.values import Function, Value
    from ..calls.call_targets import CallTarget
    from ..run import Run

#: Calls are followed no further than this.
_HOPS = 3
#: Statements whose inside may not run.
_MAY_NOT_RUN = (ast.If, ast.For, ast.While, ast.Try, ast.FunctionDef, ast.ClassDef)


def tensors_given(run: Run, bodies: Sequence[CallTarget], given: Sequence[ast.expr], hops: int = _HOPS) -> set[str]:
    """The names among ``given`` that every one of ``bodies`` uses as only tensors can be used."""
    found: set[str] = set()
    used = [_used(run, part.function, hops) for part in bodies]
    for position, argument in enumerate(given):
        if isinstance(argument, ast.Starred):
            break
        names = [part.parameters()[position : position + 1] for part in bodies]
        in_all = all(name and name[0] in tensors for name, tensors in zip(names, used, strict=True))
        if isinstance(argument, ast.Name) and names and in_all:
            found.add(argument.id)
    return found


def _used(run: Run, function: Function, hops: int) -> set[str]:
    """The names that each run of ``function`` uses as tensors before it binds them to something else."""
    calls = {id(call.node): call.func for call in run.bodies.calls_in(function)}
    found: set[str] = set()
    bound: set[str] = set()
    body = function.node.body if isinstance(function.node.body, list) else [function.node.body]
    for statement in straight(body, ast.With):
        if not isinstance(statement, _MAY_NOT_RUN):
            found.update(name for node in ast.walk(statement) for name in _uses(run, node, calls, hops))
            found -= bound
        bound |= rebound(statement) - found
    return found


def _uses(run: Run, node: ast.AST, calls: dict[int, Value], hops: int) -> Iterator[str]:
    called = calls.get(id(node))
    match node:
        case ast.Call(args=[ast.Name(id=name), *_]) if isinstance(called, Ref):
            yield from used_as_tensors(node, calls) if canonical(called.name) not in MAKES_FROM_NUMBERS else ()
        case ast.Call(args=[ast.Name(id=name), *_]) if _is_of_torch(called):
            yield name
        case ast.Call(args=args) if hops and called is not None and (bodies := list(call_targets(called))):
            if len(bodies) == len(options(called)):
                yield from tensors_given(run, bodies, args, hops - 1)
        case _:
            yield from used_as_tensors(node, {})


def _is_of_torch(called: Value | None) -> bool:
    """Whether ``called`` is a module of torch."""
    return isinstance(called, Result) and canonical(called.call.name).startswith("torch.nn.")
