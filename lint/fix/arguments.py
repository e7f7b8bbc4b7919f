"""Keyword arguments and dict keys: added in the style of their neighbours, replaced where they stand."""

from __future__ import annotations

import libcst as cst

from .whitespace import insert_line, separator_after

_NOTHING = cst.SimpleWhitespace("")
_TIGHT = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))


def set_keyword(call: cst.Call, name: str, text: str) -> cst.Call | None:
    """``call`` with ``name=text``. None when a ``**`` might hold the keyword as well.

    Args:
        call: The call, left as it is.
        name: The keyword.
        text: Python source of its value.
    """
    value = cst.parse_expression(text)
    for index, arg in enumerate(call.args):
        if arg.keyword is not None and arg.keyword.value == name:
            return call.with_changes(args=[*call.args[:index], arg.with_changes(value=value), *call.args[index + 1 :]])
    if any(arg.star == "**" for arg in call.args):
        return None
    if len(call.args) == 1 and isinstance(call.args[0].value, cst.GeneratorExp) and not call.args[0].value.lpar:
        return None
    new = cst.Arg(value, cst.Name(name), _TIGHT)
    if not call.args:
        return call.with_changes(args=[new])
    last = call.args[-1]
    separator = separator_after(call.args, call.whitespace_before_args)
    if isinstance(last.comma, cst.Comma):
        comma, rest = insert_line(last.comma.whitespace_after, separator)
        args = [
            *call.args[:-1],
            last.with_changes(comma=comma),
            new.with_changes(comma=cst.Comma(whitespace_after=rest)),
        ]
    else:
        comma, rest = insert_line(last.whitespace_after_arg, separator)
        bare = last.with_changes(comma=comma, whitespace_after_arg=_NOTHING)
        args = [*call.args[:-1], bare, new.with_changes(whitespace_after_arg=rest)]
    return call.with_changes(args=args)


def drop_keyword(call: cst.Call, name: str) -> cst.Call | None:
    """``call`` without the keyword argument ``name``."""
    kept = [arg for arg in call.args if arg.keyword is None or arg.keyword.value != name]
    if len(kept) == len(call.args):
        return None
    removed = call.args[-1]
    if kept and kept[-1] is not call.args[-1]:
        kept[-1] = kept[-1].with_changes(comma=removed.comma, whitespace_after_arg=removed.whitespace_after_arg)
    return call.with_changes(args=kept)


def rename_keyword(call: cst.Call, name: str, new: str) -> cst.Call | None:
    """``call`` with its keyword argument ``name`` called ``new``; None when one of that name is there or may be."""
    names = [arg.keyword.value for arg in call.args if arg.keyword is not None]
    if name not in names or new in names or any(arg.star == "**" for arg in call.args):
        return None
    args = [
        arg.with_changes(keyword=cst.Name(new)) if arg.keyword is not None and arg.keyword.value == name else arg
        for arg in call.args
    ]
    return call.with_changes(args=args)


def make_positional(call: cst.Call, name: str) -> cst.Call | None:
    """``call`` with the name of its first argument left out; None when that is not the keyword ``name``."""
    first = call.args[0] if call.args else None
    if first is None or first.keyword is None or first.keyword.value != name:
        return None
    bare = first.with_changes(keyword=None, equal=cst.MaybeSentinel.DEFAULT)
    return call.with_changes(args=[bare, *call.args[1:]])


def set_key(display: cst.Dict, key: str, text: str) -> cst.Dict | None:
    """A dict display with ``"key": text``."""
    value = cst.parse_expression(text)
    elements = list(display.elements)
    for index, element in enumerate(elements):
        if not isinstance(element, cst.DictElement):
            return None
        if isinstance(element.key, cst.SimpleString) and element.key.evaluated_value == key:
            elements[index] = element.with_changes(value=value)
            return display.with_changes(elements=elements)
    new = cst.DictElement(cst.SimpleString(f'"{key}"'), value)
    if not elements:
        return display.with_changes(elements=[new])
    last = elements[-1]
    separator = separator_after(elements, display.lbrace.whitespace_after)
    # Unlike in a call, what follows a trailing comma belongs to the closing brace.
    comma, rest = insert_line(display.rbrace.whitespace_before, separator)
    elements[-1:] = [last.with_changes(comma=comma), new.with_changes(comma=last.comma)]
    return display.with_changes(elements=elements, rbrace=display.rbrace.with_changes(whitespace_before=rest))
