"""The libcst tree of a file, searchable by `ast` nodes."""

from __future__ import annotations

import ast

import libcst as cst

from ..facts.nodes import all_nodes
from ..facts.origin import origin
from ..facts.plain_detach import detach_plainly
from ..facts.plain_syntax import spell_keywords_out
from ..finding import Span
from ..sources.locator import Locator
from .positions import Positions

_COUNTERPARTS: dict[type[ast.AST], tuple[type[cst.CSTNode], ...]] = {
    ast.AsyncFunctionDef: (cst.FunctionDef,),
    ast.AsyncFor: (cst.For,),
    ast.AsyncWith: (cst.With,),
    ast.TryStar: (cst.TryStar,),
    ast.keyword: (cst.Arg,),
    ast.Constant: (
        cst.SimpleString,
        cst.ConcatenatedString,
        cst.Integer,
        cst.Float,
        cst.Imaginary,
        cst.Name,
        cst.Ellipsis,
    ),
    ast.JoinedStr: (cst.FormattedString, cst.ConcatenatedString),
    ast.BinOp: (cst.BinaryOperation,),
    ast.BoolOp: (cst.BooleanOperation,),
    ast.UnaryOp: (cst.UnaryOperation,),
    ast.Compare: (cst.Comparison,),
    ast.GeneratorExp: (cst.GeneratorExp,),
    ast.arg: (cst.Param,),
    ast.ExceptHandler: (cst.ExceptHandler,),
}


class Tree:
    """A parsed file with the place of every node. Raises ParserSyntaxError when libcst cannot read ``text``."""

    def __init__(self, text: str, filename: str | None = None) -> None:
        #: As in ``origin``: None for the file that is checked.
        self.filename = filename
        # Lone carriage returns end lines too; with one kind of end, what is printed compares with what stands there.
        plain = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
        self.module = cst.parse_module(plain)
        self._positions = Positions(self.module, plain)
        self._locator = Locator(text)
        self.lines = self._locator.lines

    def find(self, node: ast.AST) -> cst.CSTNode | None:
        """The node that stands where ``node`` stood and says the same; None when there is none."""
        if origin(node) != self.filename:
            return None
        kinds = _COUNTERPARTS.get(type(node)) or (getattr(cst, type(node).__name__, None),)
        line, column = self._locator.of_bytes(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        for candidate in self._positions.starting_at(line, column - 1):
            if isinstance(candidate, tuple(kind for kind in kinds if kind)) and self._says(candidate, node):
                return candidate
        return None

    def place(self, node: ast.AST) -> Span | None:
        """The range of what ``find`` finds for ``node``."""
        found = self.find(node)
        return None if found is None else self.span(found)

    def span(self, node: cst.CSTNode) -> Span:
        """The range of ``node``; of a compound statement only its first line up to the body."""
        place = self._positions.of(node)
        body = getattr(node, "body", None)
        end = place.end
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            end = self._positions.of(node.name).end
        elif isinstance(body, cst.BaseSuite):
            end = self._positions.of(body).start if isinstance(body, cst.SimpleStatementSuite) else place.start
        return Span(place.start.line, place.start.column + 1, end.line, end.column + 1)

    def full_span(self, node: cst.CSTNode) -> Span:
        """The range of all of ``node``."""
        place = self._positions.of(node)
        return Span(place.start.line, place.start.column + 1, place.end.line, place.end.column + 1)

    def is_only_statement(self, node: cst.BaseSmallStatement) -> bool:
        """Whether the block that holds ``node`` holds nothing else."""
        for block in self._positions.known():
            if isinstance(block, cst.IndentedBlock) and len(block.body) == 1:
                (line,) = block.body
                if isinstance(line, cst.SimpleStatementLine) and node in line.body:
                    return True
        return False

    def code(self, node: cst.CSTNode, indent: str = "") -> str:
        """The text of ``node`` as it stands in a block indented by ``indent`` (libcst keeps that with the block)."""
        if not indent:
            return self.module.code_for_node(node)
        if isinstance(node, cst.BaseExpression):
            node = cst.SimpleStatementLine([cst.Expr(node)])
        block = cst.IndentedBlock([node], indent=indent)  # type: ignore[list-item]
        text = self.module.code_for_node(cst.If(cst.Name("x"), block))
        return text[text.index("\n") + 1 :].removeprefix(indent).rstrip("\r\n")

    def indent_at(self, node: cst.CSTNode) -> str:
        """The indentation of the block whose statement ``node`` is or belongs to."""
        line = self._positions.statement_around(self._positions.of(node).start.line)
        text = self.lines[line - 1]
        return text[: len(text) - len(text.lstrip(" \t\f"))]

    def source(self, node: cst.CSTNode) -> str:
        """What the file has at the range of ``node``, lines ended by a plain newline."""
        place = self._positions.of(node)
        lines = self.lines[place.start.line - 1 : place.end.line]
        lines[-1] = lines[-1][: place.end.column]
        lines[0] = lines[0][place.start.column :]
        return "\n".join(lines)

    def _says(self, candidate: cst.CSTNode, node: ast.AST) -> bool:
        if isinstance(node, ast.expr):
            said = _parsed(f"({self.code(candidate)}\n)")
            return isinstance(said, ast.Expr) and _dump(said.value) == _dump(node)
        if isinstance(candidate, cst.Arg) and isinstance(node, ast.keyword):
            return (candidate.keyword.value if candidate.keyword else None) == node.arg
        if isinstance(candidate, cst.BaseSmallStatement):
            return _dump(_parsed(self.code(candidate).strip().rstrip(";"))) == _dump(node)
        name = getattr(candidate, "name", None)
        return not isinstance(name, cst.Name) or name.value == getattr(node, "name", None)


def _parsed(text: str) -> ast.stmt:
    """The one statement of ``text``, its keywords as the facts have them."""
    tree = ast.parse(text)
    spell_keywords_out(tree)
    detach_plainly(all_nodes(tree))
    return tree.body[0]


def _dump(node: ast.AST) -> str:
    return ast.dump(node).replace("ctx=Store()", "ctx=Load()").replace("ctx=Del()", "ctx=Load()")
