"""Command lines: ``argparse`` and the parsers of transformers and trl that fill dataclasses.

What a script declares is a default; the user may say otherwise, so both ways stay possible where an option decides.
Certain are arguments that the script hands over itself (``parse_args([])``, ``parse_dict({...})``), and in the run that
a launch script starts those of its command, with the defaults of the others.
"""

from __future__ import annotations

import ast
import re
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
    Element,
    Function,
    Instance,
    Method,
    Ref,
    Result,
    Seq,
    Unknown,
    Value,
    equals,
    join,
)
from .containers import is_none
from .converted import BOOLEANS, converted, held_by_option
from .options import Option, Read, argparse_option, read_words
from .settings_files import PARSES, content_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..walk import Walk

#: Options that launchers add to the command, and that what they set in the environment replaces.
_OF_LAUNCHERS = re.compile(r"rank|world_?size|gpu|device|^dist(?!il)|distributed", re.IGNORECASE)
#: Arguments of a parser by which an option gets what neither its words nor its declaration say.
_FROM_ELSEWHERE = frozenset(("argument_default", "fromfile_prefix_chars", "prefix_chars"))
_DATACLASS_PARSERS = ("HfArgumentParser", "TrlParser")


class Parser(Result):
    """An ``ArgumentParser`` with the options added so far."""

    __slots__ = ("defaults", "has_open_defaults", "only", "options")

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        #: Several may set the same attribute: `--checkpointing` and `--no-checkpointing`.
        self.options: list[Option] = []
        #: What ``set_defaults`` said, also of names without an option.
        self.defaults: dict[str, Value] = {}
        #: Whether what an option holds when it is not given may be another value than it says itself.
        self.has_open_defaults = call.open_kwargs or not _FROM_ELSEWHERE.isdisjoint(call.kwargs)
        #: The options that hold their default, whatever the user says.
        self.only: set[str] = set()


class Namespace(Result):
    """What a parser makes of a command line."""

    __slots__ = ()


class Given(Attr):
    """What the command line gives for ``option``, and ``default`` when it does not."""

    __slots__ = ("default", "option")

    def __init__(self, namespace: Result, name: str, option: str, default: Value) -> None:
        super().__init__(namespace, name, default.node)
        self.option = option
        self.default = default


class Said(Const):
    """What the words of a command give for an option, and ``default`` when they do not."""

    __slots__ = ("default",)

    def __init__(self, said: Const, default: Value) -> None:
        super().__init__(said.value, said.node)
        self.default = default


def parser_made(walk: Walk, call: Call) -> Value:
    """``argparse.ArgumentParser(...)``."""
    made = Parser(call)
    for parent in _items(call.keyword("parents")):
        if isinstance(parent, Parser):
            made.options += parent.options
            made.defaults |= parent.defaults
            made.has_open_defaults |= parent.has_open_defaults
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
        return handler(walk, parser, call) if handler is not None else None
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


def _add_argument(walk: Walk, parser: Parser, call: Call) -> Value | None:
    option = argparse_option(call)
    if option is not None:
        name = option.name
        is_only = _can_be_nothing_else(call) and all(other.name != name for other in parser.options)
        parser.only = parser.only | {name} if is_only else parser.only - {name}
        parser.options.append(option)
    return None


def _can_be_nothing_else(call: Call) -> bool:
    """Whether the option leaves its default as it is: `action="store_true", default=True`."""
    return any(
        equals(call.keyword("action"), action) is True and equals(call.keyword("default"), stored) is True
        for action, stored in (("store_true", True), ("store_false", False))
    )


def _same_parser(walk: Walk, parser: Parser, call: Call) -> Value | None:
    """A group of options: what is added to it is added to the parser."""
    return parser


def _one_of_several(walk: Walk, parser: Parser, call: Call) -> Value | None:
    """A parser that only some commands have: which of them, decides what is declared."""
    parser.has_open_defaults = True
    return parser


def _set_defaults(walk: Walk, parser: Parser, call: Call) -> Value | None:
    maybe = walk.place.deeper_than(parser.call.place)
    for name, value in call.kwargs.items():
        parser.defaults[name] = join(parser.defaults.get(name, UNKNOWN), value) if maybe else value
    parser.has_open_defaults |= call.open_kwargs
    return None


def _parse_args(walk: Walk, parser: Parser, call: Call) -> Value | None:
    read = _read(walk, parser, call)
    return _namespace(walk, parser, call, read._replace(open=read.open or bool(read.rest)))


def _parse_known_args(walk: Walk, parser: Parser, call: Call) -> Value | None:
    read = _read(walk, parser, call)
    rest = Seq("list", [*read.rest], read.open, call.node, walk.place)
    return Seq("tuple", [_namespace(walk, parser, call, read), rest], False, call.node)


def _read(walk: Walk, parser: Parser, call: Call) -> Read:
    command = _command(walk, call)
    return Read({}, open=True) if command is None else read_words(parser.options, command)


def _namespace(walk: Walk, parser: Parser, call: Call, read: Read) -> Value:
    """What a parser makes of a command; where that may give more than is known, nothing but its words is certain."""
    namespace = Namespace(call)
    declared = _declared(walk, parser)
    written = {option.name: option.written for option in reversed(parser.options)}
    is_open = read.open or parser.has_open_defaults
    known = _certain_names(walk, parser, call) if is_open else declared.keys()
    certain = {name for name in known if not _OF_LAUNCHERS.search(name)}
    left_open = {
        name: Given(namespace, name, written.get(name, f"--{name}"), default) for name, default in declared.items()
    }
    namespace.attributes = left_open | {name: declared[name] for name in certain}
    for name, (option, words) in read.given.items():
        found = held_by_option(walk, option, words)
        found = Said(found, declared[name]) if isinstance(found, Const) and name in declared else found
        namespace.attributes[name] = left_open[name] if type(found) is Unknown else found
    return namespace


def _certain_names(walk: Walk, parser: Parser, call: Call) -> set[str]:
    """The attributes that no word of a command changes: `parser.set_defaults(scale=2)` without an option for it."""
    certain = parser.only - parser.defaults.keys()
    may_hold_more = parser.has_open_defaults or call.argument(1, "namespace") is not ABSENT
    if not may_hold_more and not _gets_more_options(walk, parser):
        certain |= parser.defaults.keys() - {option.name for option in parser.options}
    return certain


def _gets_more_options(walk: Walk, parser: Parser) -> bool:
    """Whether code that is not read gets the parser: it may declare any option."""
    return any(
        parser in (*call.args, *call.kwargs.values()) and not isinstance(call.func, Function | Method | Class)
        for call in walk.program.calls
    )


def _declared(walk: Walk, parser: Parser) -> dict[str, Value]:
    """What each attribute holds when no word of the command says it."""
    declared: dict[str, Value] = {}
    for option in parser.options:
        default = parser.defaults.get(option.name, option.default)
        # A default in text goes through `type`, like what the user writes.
        is_text = isinstance(default, Const) and isinstance(default.value, str)
        default = converted(walk, option.kind, default) if is_text else default
        is_suppressed = isinstance(default, Ref) and default.name == "argparse.SUPPRESS"
        is_there = not option.is_required and not is_suppressed
        declared.setdefault(option.name, default if is_there else UNKNOWN)
    return declared | {name: value for name, value in parser.defaults.items() if name not in declared}


def _command(walk: Walk, call: Call) -> Seq | None:
    """The words that a parser reads: those that the script hands over, or those it was started with; None if open."""
    given = call.argument(0, "args")
    if call.argument(1, "namespace") is not ABSENT:
        return None
    if isinstance(given, Seq):
        return None if given.open else given
    is_own = isinstance(given, Absent) or is_none(given) or is_rest_of_argv(given)
    command = walk.program.command if is_own else None
    walk.program.command_read |= command is not None
    return command


def is_rest_of_argv(value: Value) -> bool:
    """Whether it is `sys.argv[1:]`."""
    match value:
        case Element(of=Ref("sys.argv"), node=ast.Subscript(slice=ast.Slice(ast.Constant(1), None, None))):
            return True
    return False


_METHODS: dict[str, Callable[[Walk, Parser, Call], Value | None]] = {
    "add_argument": _add_argument,
    "add_argument_group": _same_parser,
    "add_mutually_exclusive_group": _same_parser,
    "add_subparsers": _one_of_several,
    "add_parser": _one_of_several,
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
