"""Command lines: ``argparse`` and the parsers of transformers and trl that fill dataclasses.

What a script declares is a default; the user may say otherwise, so both ways stay possible where an option decides.
Only arguments that the script hands over itself (``parse_args([])``, ``parse_dict({...})``) are certain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..values import (
    ABSENT,
    UNKNOWN,
    Absent,
    Attr,
    Call,
    Class,
    Const,
    Dict,
    Instance,
    Ref,
    Result,
    Seq,
    Unknown,
    Value,
    equals,
)
from .settings_files import PARSES, content_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..walk import Walk

#: What an option holds when it is not given, by its action.
_UNSET: dict[object, object] = {"store_true": False, "store_false": True, "count": None, "append": None}
_DATACLASS_PARSERS = ("HfArgumentParser", "TrlParser")
#: How a command line says yes and no.
BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class Parser(Result):
    """An ``ArgumentParser`` with the options added so far."""

    __slots__ = ("defaults", "only", "options")

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        #: By the name of the attribute: the option as it is written, and what it holds when it is not given.
        self.options: dict[str, tuple[str, Value]] = {}
        #: What ``set_defaults`` said, also of names without an option.
        self.defaults: dict[str, Value] = {}
        #: The options that hold their default, whatever the user says.
        self.only: set[str] = set()


class Given(Attr):
    """What the command line gives for ``option``, and ``default`` when it does not."""

    __slots__ = ("default", "option")

    def __init__(self, namespace: Result, name: str, option: str, default: Value) -> None:
        super().__init__(namespace, name, default.node)
        self.option = option
        self.default = default


def parser_made(walk: Walk, call: Call) -> Value:
    """``argparse.ArgumentParser(...)``."""
    made = Parser(call)
    for parent in _items(call.keyword("parents")):
        if isinstance(parent, Parser):
            made.options |= parent.options
            made.defaults |= parent.defaults
            made.only |= parent.only
    return made


def namespace_made(walk: Walk, call: Call) -> Value:
    """``argparse.Namespace(a=1)``."""
    made = Result(call)
    made.attributes = dict(call.kwargs)
    return made


def parser_method(walk: Walk, receiver: Value, name: str, call: Call) -> Value | None:
    """What a method of a parser returns; None when ``receiver`` is none, or the method does nothing of interest."""
    parser = _parser(receiver)
    if parser is not None:
        handler = _METHODS.get(name)
        return handler(parser, call) if handler is not None else None
    if isinstance(receiver, Result) and name in _FILLING and _fills_dataclasses(receiver.call):
        return _filled(walk, receiver.call, name, call)
    return None


def _parser(value: Value) -> Parser | None:
    """The parser itself, also behind a library's function that adds options to it and returns it."""
    if isinstance(value, Parser):
        return value
    if isinstance(value, Result) and isinstance(value.call.func, Ref) and value.call.args:
        inner = value.call.args[0]
        return inner if isinstance(inner, Parser) else None
    return None


def _add_argument(parser: Parser, call: Call) -> Value | None:
    flags = [argument.value for argument in call.args if isinstance(argument, Const)]
    names = [flag for flag in flags if isinstance(flag, str)]
    destination = call.keyword("dest")
    long = next((name for name in names if name.startswith("--")), names[0] if names else None)
    if long is None:
        return None
    name = long.lstrip("-").replace("-", "_")
    if isinstance(destination, Const) and isinstance(destination.value, str):
        name = destination.value
    # Another option may set the same attribute: `--no-checkpointing`.
    is_only = name not in parser.options and _can_be_nothing_else(call)
    parser.only = parser.only | {name} if is_only else parser.only - {name}
    parser.options[name] = (long, _default(call))
    return None


def _can_be_nothing_else(call: Call) -> bool:
    """Whether the option leaves its default as it is: `action="store_true", default=True`."""
    return any(
        equals(call.keyword("action"), action) is True and equals(call.keyword("default"), stored) is True
        for action, stored in (("store_true", True), ("store_false", False))
    )


def _default(call: Call) -> Value:
    given = call.keyword("default")
    if not isinstance(given, Absent):
        # A default in text goes through `type`, like what the user writes.
        is_text = isinstance(given, Const) and isinstance(given.value, str)
        kind = call.keyword("type")
        keeps = isinstance(kind, Absent) or (isinstance(kind, Ref) and kind.name == "builtins.str")
        return UNKNOWN if is_text and not keeps else given
    action = call.keyword("action")
    return Const(_UNSET.get(action.value if isinstance(action, Const) else None), call.node)


def _same_parser(parser: Parser, call: Call) -> Value | None:
    """A group of options: what is added to it is added to the parser."""
    return parser


def _set_defaults(parser: Parser, call: Call) -> Value | None:
    parser.defaults |= call.kwargs
    return None


def _parse_args(parser: Parser, call: Call) -> Value | None:
    namespace = Result(call)
    declared = {name: default for name, (_, default) in parser.options.items()} | parser.defaults
    written = {name: option for name, (option, _) in parser.options.items()}
    if _hands_over_nothing(call):
        namespace.attributes = declared
    else:
        namespace.attributes = {
            name: default
            if name in parser.only - parser.defaults.keys()
            else Given(namespace, name, written.get(name, f"--{name}"), default)
            for name, default in declared.items()
        }
    return namespace


def _parse_known_args(parser: Parser, call: Call) -> Value | None:
    return Seq("tuple", [_parse_args(parser, call) or UNKNOWN, Unknown(call.node)], False, call.node)


def _hands_over_nothing(call: Call) -> bool:
    given = call.argument(0, "args")
    return isinstance(given, Seq) and not given.items and not given.open and call.argument(1, "namespace") is ABSENT


_METHODS: dict[str, Callable[[Parser, Call], Value | None]] = {
    "add_argument": _add_argument,
    "add_argument_group": _same_parser,
    "add_mutually_exclusive_group": _same_parser,
    "add_subparsers": _same_parser,
    "add_parser": _same_parser,
    "set_defaults": _set_defaults,
    "parse_args": _parse_args,
    "parse_known_args": _parse_known_args,
}


_FILLING = (
    "parse_args_into_dataclasses",
    "parse_args_and_config",
    "parse_dict",
    *PARSES,
)
#: The methods that ``parser_method`` knows.
PARSER_METHODS = frozenset((*_METHODS, *_FILLING))


def _fills_dataclasses(maker: Call) -> bool:
    return maker.name.rpartition(".")[2] in _DATACLASS_PARSERS


def _filled(walk: Walk, maker: Call, name: str, call: Call) -> Value:
    """``HfArgumentParser(classes).parse_...()``: one object a class."""
    given = maker.argument(0, "dataclass_types")
    classes = given.items if isinstance(given, Seq) else [given]
    arguments = _handed_over(walk, name, call)
    made = [_object(walk, cls, arguments, call) for cls in classes]
    if not isinstance(call.keyword("return_remaining_strings"), Absent):
        made.append(Unknown(call.node))
    return Seq("tuple", made, isinstance(given, Seq) and given.open, call.node)


def _object(walk: Walk, cls: Value, arguments: dict[str, Value] | None, call: Call) -> Value:
    constructed = Call(call.node, cls, call.place, call.order)
    constructed.kwargs = arguments or {}
    constructed.open_kwargs = arguments is None
    if arguments is not None:
        walk.program.calls.append(constructed)  # The parser makes this call, with nothing left open.
    match cls:
        case Class():
            return Instance(cls, constructed)
        case Ref():
            return Result(constructed)
    return Unknown(call.node)


def _handed_over(walk: Walk, name: str, call: Call) -> dict[str, Value] | None:
    """The arguments that the script gives the parser itself; None when they come from outside."""
    given = call.argument(0, PARSES.get(name, "args"))
    if name in PARSES:
        given = held if (held := content_of(walk, given)) is not None else given
    if name in ("parse_dict", *PARSES) and isinstance(given, Dict) and not given.open:
        return dict(given.items)
    if name == "parse_args_into_dataclasses" and isinstance(given, Seq) and not given.open:
        words = [item.value if isinstance(item, Const) else None for item in given.items]
        return _from_words(words, given) if all(isinstance(word, str) for word in words) else None
    return None


def _from_words(words: list[object], given: Seq) -> dict[str, Value]:
    """``["--bf16", "--seed", "1"]`` as arguments; a flag without a value is True."""
    found: dict[str, Value] = {}
    for word, item, following in zip(words, given.items, [*words, "--"][1:], strict=True):
        if not str(word).startswith("--"):
            continue
        name, equal, value = str(word)[2:].partition("=")
        text = value if equal else str(following)
        said = True if text.startswith("--") else BOOLEANS.get(text.lower(), text)
        found[name.replace("-", "_")] = Const(said, item.node)
    return found


def _items(value: Value) -> list[Value]:
    return value.items if isinstance(value, Seq) else []
