"""Options that a function or a dataclass declares by its parameters, for `tyro.cli`, `typer.run` and `fire.Fire`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..parameters import defaults
from ..values import ABSENT, UNKNOWN, Class, Const, Function, Ref, Seq, Value
from .classes import ancestors
from .options import BOTH_WAYS, Option, is_flag, negated
from .plain_data import value_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..values import Place

_PLAIN = ("int", "float", "str")


def options_of(declaring: Function | Class) -> list[Option]:
    """One option for each parameter, or for each field: `--some-name`, and `--no-some-name` for a flag."""
    return [_option(*declared) for declared in _declared(declaring)]


def _declared(declaring: Function | Class) -> Iterator[tuple[str, ast.expr | None, ast.expr | None]]:
    """The name, the annotation and the default of each."""
    if isinstance(declaring, Function):
        arguments, written = declaring.node.args, defaults(declaring.node)
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            yield argument.arg, argument.annotation, written.get(argument.arg)
        return
    for owner in (*reversed([*ancestors(declaring)]), declaring):
        for statement in owner.node.body:
            match statement:
                case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=default):
                    yield name, annotation, default


def _option(name: str, annotation: ast.expr | None, default: ast.expr | None) -> Option:
    flags = tuple(dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}")))
    kind = annotation.id if isinstance(annotation, ast.Name) else ""
    is_bool = isinstance(default, ast.Constant) and isinstance(default.value, bool)
    if is_bool and kind in ("", "bool"):
        return Option(flags, name, UNKNOWN, BOTH_WAYS, off=negated(flags))
    converts = Ref("click.BOOL") if kind == "bool" else Ref(f"builtins.{kind}") if kind in _PLAIN else UNKNOWN
    return Option(flags, name, UNKNOWN, kind=ABSENT if kind == "str" else converts, is_required=default is None)


def fire_arguments(function: Function, command: Seq, place: Place) -> tuple[list[Value], dict[str, Value], bool]:
    """What `fire.Fire(function)` makes of a command: arguments by place and by name, and whether there may be more."""
    names = [name for name, _, _ in _declared(function)]
    args: list[Value] = []
    kwargs: dict[str, Value] = {}
    is_open, number, words = command.open, 0, command.items
    while number < len(words):
        word, number = words[number], number + 1
        if not isinstance(word, Const):
            is_open = True
        elif not is_flag(word):
            args.append(_literal(word, place))
        else:
            written, equal, value = str(word.value).lstrip("-").partition("=")
            name = written.replace("-", "_")
            if equal:
                kwargs[name] = _literal(Const(value, word.node), place)
            elif number < len(words) and not is_flag(words[number]):
                kwargs[name] = _literal(words[number], place)
                number += 1
            else:
                is_off = name not in names and name.startswith("no") and name[2:] in names
                kwargs[name[2:] if is_off else name] = Const(not is_off, word.node)
    has_others = function.node.args.kwarg is None and any(name not in names for name in kwargs)
    known = {name: value for name, value in kwargs.items() if name in names or not has_others}
    return args, known, is_open or has_others


def _literal(word: Value, place: Place) -> Value:
    """A word as Fire takes it: what Python reads it as, or else its text."""
    if not isinstance(word, Const):
        return UNKNOWN
    try:
        return value_of(ast.literal_eval(str(word.value)), word.node, place)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return word
