"""What libraries call with the words of the command line: commands of click, `fire.Fire(train)`, `tyro.cli(Args)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..objects.classes import decorator_names, is_dataclass
from ..objects.click_options import click_options
from ..objects.converted import converted, held_by_option
from ..objects.options import read_words
from ..objects.settings_files import HYDRA
from ..objects.signature_options import fire_arguments, options_of
from ..values import UNKNOWN, Call, Class, Const, Dict, Function, Instance, Value

if TYPE_CHECKING:
    from ..walk import Walk


def as_command(walk: Walk, function: Function, call: Call) -> Call:
    """`main()` of a command of click, or of Hydra, as the call that this makes of what the program is started with."""
    settings = walk.program.settings.get(HYDRA)
    if settings is not None and not call.args and HYDRA in decorator_names(function):
        walk.program.command_read = True
        made = Call(call.node, function, call.place, call.order)
        made.args = [Dict(dict(settings.items), settings.open, settings.node, walk.place)]
        return made
    command = walk.program.command
    options = click_options(function) if command is not None and function.decorators and not call.args else None
    if command is None or options is None:
        return call
    walk.program.command_read = True
    read = read_words(options, command)
    made = Call(call.node, function, call.place, call.order)
    for option in options:
        is_open = read.open or bool(read.rest) or option.is_required
        default = option.default
        if isinstance(default, Const) and isinstance(default.value, str):
            default = converted(walk, option.kind, default)
        made.kwargs[option.name] = UNKNOWN if is_open else default
    made.kwargs |= {name: held_by_option(walk, option, words) for name, (option, words) in read.given.items()}
    return made


def fire_run(walk: Walk, call: Call) -> Value | None:
    """``fire.Fire(train)``."""
    function, command = call.argument(0, "component"), walk.program.command
    if command is None or not isinstance(function, Function) or len(call.args) + len(call.kwargs) > 1:
        return None
    walk.program.command_read = True
    run = Call(call.node, function, walk.place, call.order)
    run.args, run.kwargs, run.open_kwargs = fire_arguments(function, command, walk.place)
    return walk.follow(function, run, None)


def signature_run(walk: Walk, call: Call) -> Value | None:
    """``tyro.cli(Args)``, ``tyro.cli(main)`` and ``typer.run(main)``."""
    called = call.argument(0)
    command = walk.program.command if len(call.args) == 1 and "args" not in call.kwargs else None
    if isinstance(called, Class) and is_dataclass(called):
        made = Call(call.node, called, walk.place, walk.program.next_order())
        _give_words(walk, made, called)
        walk.program.calls += [made] if command is not None else []
        return Instance(called, made)
    if command is None or not isinstance(called, Function):
        return None
    made = Call(call.node, called, walk.place, call.order)
    _give_words(walk, made, called)
    return walk.follow(called, made, None)


def _give_words(walk: Walk, made: Call, declaring: Function | Class) -> None:
    """Give a call what the command says to the parameters of ``declaring``; without a command all of it is open."""
    command = walk.program.command
    made.open_kwargs = True
    if command is None:
        return
    walk.program.command_read = True
    read = read_words(options_of(declaring), command)
    made.open_kwargs = read.open or bool(read.rest)
    made.kwargs = {name: held_by_option(walk, option, words) for name, (option, words) in read.given.items()}
