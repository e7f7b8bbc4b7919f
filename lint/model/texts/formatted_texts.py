"""Texts that are put together by `%`, `format` or `+`, as the f-strings that say the same."""

from __future__ import annotations

import ast
import re
from functools import lru_cache

#: Where `%` puts something in as it is: `%s`, `%d`.
_PERCENT = re.compile(r"%[sdi]")
#: Where `format` does, in turn or by number.
_BRACES = re.compile(r"\{(\d*)\}")


@lru_cache(maxsize=256)
def as_f_string(node: ast.expr) -> ast.JoinedStr | None:
    """The f-string that gives what ``node`` does; None where it is no such text, or puts something in another form."""
    match node:
        case ast.JoinedStr():
            return node
        case ast.BinOp(left=ast.Constant(value=str(pattern)), op=ast.Mod(), right=given):
            parts = given.elts if isinstance(given, ast.Tuple) else [given]
            texts = _PERCENT.split(pattern)
            is_whole = len(texts) == len(parts) + 1 and not any("%" in text for text in texts)
            return _put(texts, parts, node) if is_whole else None
        case ast.BinOp(op=ast.Add()):
            pieces = list(_added(node))
            is_text = any(isinstance(piece, ast.Constant) and isinstance(piece.value, str) for piece in pieces)
            return ast.copy_location(ast.JoinedStr([_shown(piece) for piece in pieces]), node) if is_text else None
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(pattern)), attr="format"), args=args, keywords=[]
        ):
            texts, numbers = _BRACES.split(pattern)[::2], _BRACES.findall(pattern)
            places = [int(number) if number else at for at, number in enumerate(numbers)]
            is_whole = not any("{" in text or "}" in text for text in texts) and all(at < len(args) for at in places)
            return _put(texts, [args[at] for at in places], node) if is_whole else None
    return None


def _put(texts: list[str], parts: list[ast.expr], node: ast.expr) -> ast.JoinedStr:
    values: list[ast.expr] = [ast.Constant(texts[0])]
    for part, text in zip(parts, texts[1:], strict=True):
        values += [_shown(part), ast.Constant(text)]
    return ast.copy_location(ast.JoinedStr(values), node)


def _added(node: ast.expr) -> list[ast.expr]:
    """The texts of a sum, in order."""
    pieces: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        pieces.append(node.right)
        node = node.left
    return [node, *reversed(pieces)]


def _shown(part: ast.expr) -> ast.expr:
    """``part`` as it stands in an f-string: `i` of `str(i)`."""
    match part:
        case ast.Constant(value=str()):
            return part
        case ast.Call(func=ast.Name(id="str"), args=[inner], keywords=[]):
            part = inner
    return ast.FormattedValue(part, -1, None)
