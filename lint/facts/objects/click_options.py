"""Options that decorators of click declare: `@click.option("--gc/--no-gc", default=False)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..values import ABSENT, UNKNOWN, Absent, Const, Ref, Result, Value, truth
from .options import BOTH_WAYS, Option

if TYPE_CHECKING:
    from ..values import Call, Function

_COMMANDS = ("click.command", "rich_click.command")
_DECLARING = ("click.option", "rich_click.option", "click.argument", "rich_click.argument")
#: Those that give the function nothing.
_GIVING_NOTHING = ("click.version_option", "click.help_option")
#: The type that click infers from a default.
_KINDS: dict[type, Value] = {bool: Ref("click.BOOL"), int: Ref("builtins.int"), float: Ref("builtins.float")}
_TEXTS = ("click.Choice", "click.Path")


def click_options(function: Function) -> list[Option] | None:
    """The options of a command; None for a function that is none, or that gets something else, too."""
    made = [decorator.call for decorator in function.decorators if isinstance(decorator, Result)]
    names = [call.name for call in made]
    if len(made) < len(function.decorators) or not any(name in _COMMANDS for name in names):
        return None
    if any(name not in (*_COMMANDS, *_DECLARING, *_GIVING_NOTHING) for name in names):
        return None
    found = [_option(call) for call in made if call.name in _DECLARING]
    known = [option for option in found if option is not None]
    return known if len(known) == len(found) else None


def _option(call: Call) -> Option | None:
    texts = [argument.value for argument in call.args if isinstance(argument, Const)]
    written = [text for text in texts if isinstance(text, str)]
    if not written or call.open_kwargs:
        return None
    if call.name.endswith(".argument"):
        return Option((written[0],), written[0].lower().replace("-", "_"), UNKNOWN, is_required=True)
    pairs = [text.partition("/") for text in written if text.startswith("-")]
    flags, off = tuple(pair[0].strip() for pair in pairs), tuple(pair[2].strip() for pair in pairs if pair[2])
    if not flags:
        return None
    called = next((text for text in written if not text.startswith("-")), max(flags, key=len))
    name = called.lstrip("-").replace("-", "_").lower()
    is_switch = truth(call.keyword("is_flag")) is True or bool(off)
    default = call.keyword("default")
    if isinstance(default, Absent):
        default = Const(False if is_switch else None, call.node)
    is_required = truth(call.keyword("required")) is True
    action = BOTH_WAYS if is_switch else "store"
    return Option(flags, name, default, action, _kind(call, default), is_required=is_required, off=off)


def _kind(call: Call, default: Value) -> Value:
    """What makes a value of a word: click takes `false` for a bool as it is meant."""
    if any(name in call.kwargs for name in ("multiple", "nargs", "callback", "flag_value", "count")):
        return UNKNOWN
    match call.keyword("type"):
        case Ref("builtins.bool" | "click.BOOL"):
            return Ref("click.BOOL")
        case Ref("builtins.str" | "click.STRING"):
            return ABSENT
        case Ref("click.INT" | "click.FLOAT" as name):
            return Ref(f"builtins.{name.rpartition('.')[2].lower()}")
        case Result(made) if made.name in _TEXTS:
            return ABSENT
        case Absent():
            return _KINDS.get(type(default.value), ABSENT) if isinstance(default, Const) else UNKNOWN
        case kind:
            return kind
