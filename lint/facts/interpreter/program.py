"""Reading a file: the module from its first line, then every function that nothing in it called."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..nodes import inner_nodes
from ..objects.annotations import annotated, narrowed
from ..objects.classes import ancestors, decorator_names
from ..origin import origin
from ..scopes import Scope
from ..script import whole_script
from ..values import UNKNOWN, Const, Dict, Function, Instance, Param, Place, Ref, Seq, Unknown, Value, join
from ..walk import Engine, Program, Returned, Walk
from .expressions import evaluate
from .statements import execute

if TYPE_CHECKING:
    from ..imported.local import FindModule
    from ..values import Call, Class

#: Calls followed inside calls; deeper ones are unknown.
MAX_DEPTH = 6
#: Times one function is walked for different callers, and walks of functions in one file.
MAX_WALKS, MAX_TOTAL_WALKS = 4, 2_000
#: The same for constructors: what an object holds, only its own call tells.
MAX_BUILT = 24
#: Functions that one text defines, each with other names around it.
MAX_CLOSURES = 8
#: Decorators that leave the arguments and the result of a function as they are.
_TRANSPARENT = (
    "staticmethod",
    "classmethod",
    "no_grad",
    "inference_mode",
    "compile",
    "cache",
    "lru_cache",
    "wraps",
    "record",
)


def read_program(text: str, filename: str, find_module: FindModule | None = None) -> Program:
    """The facts of Python source.

    Args:
        text: The source.
        filename: What places in it are called.
        find_module: Gives the modules of the project that it imports, which are read too; None when only this text is.

    Raises:
        SyntaxError: The text is no Python; it may hold null bytes.
    """
    try:
        tree = ast.parse(text)
    except ValueError as error:
        raise SyntaxError(str(error)) from error
    program = Program(filename, text, tree, find_module)
    scope = Scope(tree, None, has_walrus=":=" in text)
    execute(Walk(program, scope, Place(), _ENGINE), tree.body)
    program.script = whole_script(program.tree, program.calls)
    _walk_uncalled(program)
    return program


def _walk_uncalled(program: Program) -> None:
    """Walk what nothing called: constructors first, because the other methods read what they store."""
    for cls in program.classes:
        initialiser = cls.body.get("__init__")
        if isinstance(initialiser, Function) and initialiser.node not in program.followed:
            _walk_alone(program, initialiser)
    for wanted in (_is_entered_from_outside, _is_part_of_the_run):
        done = 0
        while done < len(program.functions):
            # Walking one function can define others.
            functions = list(program.functions.values())[done:]
            done = len(program.functions)
            for function in functions:
                if function.node not in program.followed and wanted(program, function):
                    _walk_alone(program, function)
    _walk_closures(program)
    for cls in program.classes:
        inherited = _completed_forward(program, cls)
        if inherited is not None:
            _walk_alone(program, inherited, cls.instance)


def _walk_closures(program: Program) -> None:
    """Walk what a factory made more than once: each function has the arguments of its own call around it."""
    made: dict[ast.AST, int] = {}
    for function in program.closures:
        made[function.node] = made.get(function.node, 0) + 1
        few = made[function.node] <= MAX_CLOSURES and program.walks < MAX_TOTAL_WALKS
        if few and not function.walked and _captures(function):
            _walk_alone(program, function)


def _captures(function: Function) -> bool:
    """Whether ``function`` is defined in a call of another one, whose names it sees."""
    return function.place.function is not None and origin(function.node) is None


def _completed_forward(program: Program, cls: Class) -> Function | None:
    """The inherited ``forward`` that calls methods which ``cls`` defines; None when there is none."""
    if "forward" in cls.body:
        return None
    found = next((owner.body["forward"] for owner in ancestors(cls) if "forward" in owner.body), None)
    if not isinstance(found, Function) or not any(f"self.{name}" in program.text for name in cls.body):
        return None
    return found


def _is_entered_from_outside(program: Program, function: Function) -> bool:
    """Whether nothing in the file seems to call it: helpers wait for their callers, which know the arguments."""
    name = function.name
    if origin(function.node) is not None:
        return function.owner is not None and name == "forward"
    if isinstance(function.node, ast.Lambda) or function.place.function is not None:
        return False
    if function.owner is not None:
        return name == "forward" or name not in _called_names(program.text).methods
    return _called_names(program.text).all[name] < 2


class _CalledNames(NamedTuple):
    """The names that stand before a `(` in a text."""

    #: How often each does, behind `def` too.
    all: Counter[str]
    #: Those behind a dot.
    methods: frozenset[str]


@lru_cache(maxsize=4)
def _called_names(text: str) -> _CalledNames:
    """Found in one pass: a search for each function would take as many as there are functions."""
    found = re.findall(r"(\.?)\b(\w+)\(", text)
    return _CalledNames(Counter(name for _, name in found), frozenset(name for dot, name in found if dot))


def _is_part_of_the_run(program: Program, function: Function) -> bool:
    """Whether it can run at all: of an imported module, methods and what others defined for them."""
    return origin(function.node) is None or function.owner is not None or function.place.function is not None


def _walk_alone(program: Program, function: Function, instance: Instance | None = None) -> None:
    program.followed[function.node] = program.followed.get(function.node, 0) + 1
    program.walks += 1
    place = Place(function=function, walk=program.walks)
    if instance is None and function.owner is not None:
        instance = function.owner.instance
    walk = Walk(program, Scope(function.node, function.scope), place, _ENGINE, instance)
    _bind_unknown(walk, function, instance)
    _walk_body(walk, function)


def _bind_unknown(walk: Walk, function: Function, instance: Instance | None) -> None:
    """Parameters without a caller: `self` is the object of the class, the rest stand for themselves."""
    arguments = function.node.args
    names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    defaults = _defaults(function)
    for index, argument in enumerate(names):
        if index == 0 and instance is not None and not _is_static(function):
            walk.scope.names[argument.arg] = instance
            continue
        param = Param(argument.arg, function, argument)
        param.default = _evaluate_in(walk, function, defaults.get(argument.arg))
        param.annotation = _annotation(walk, function, argument)
        walk.scope.names[argument.arg] = annotated(argument.annotation, function.scope) or _injected(param) or param
    if arguments.vararg:
        declared = annotated(arguments.vararg.annotation, function.scope)
        held = [] if declared is None else [declared]
        walk.scope.names[arguments.vararg.arg] = Seq("tuple", held, True, arguments.vararg, walk.place)
    if arguments.kwarg:
        walk.scope.names[arguments.kwarg.arg] = Dict({}, True, arguments.kwarg, walk.place)


def _injected(param: Param) -> Value | None:
    """`def run(block, checkpoint=checkpoint)`: an imported function that is bound early under its own name."""
    default = param.default
    is_early = isinstance(default, Ref) and default.name.rpartition(".")[2] == param.name
    return default if is_early else None


def _annotation(walk: Walk, function: Function, argument: ast.arg) -> Value | None:
    annotation: ast.AST | None = argument.annotation
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            annotation = ast.parse(annotation.value, mode="eval").body
        except (SyntaxError, ValueError):
            return None
    return _evaluate_in(walk, function, annotation)


def _defaults(function: Function) -> dict[str, ast.expr]:
    arguments = function.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    found = dict(zip((argument.arg for argument in reversed(positional)), reversed(arguments.defaults), strict=False))
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            found[argument.arg] = default
    return found


def _evaluate_in(walk: Walk, function: Function, node: ast.AST | None) -> Value | None:
    if node is None:
        return None
    inner, walk.scope = walk.scope, function.scope
    value = evaluate(walk, node)
    walk.scope = inner
    return value


def _walk_body(walk: Walk, function: Function) -> None:
    node = function.node
    function.walked = True
    try:
        if isinstance(node, ast.Lambda):
            value = evaluate(walk, node.body)
            walk.returned.append(value)
            walk.program.returns.setdefault(node, []).append(Returned(value, node, walk.place))
        elif not execute(walk, node.body):
            walk.returned.append(Const(None, node))
    except RecursionError:
        walk.returned = [UNKNOWN]


def _result(walk: Walk, function: Function) -> Value:
    """What the walked body of ``function`` gives to its caller."""
    node = function.node
    if isinstance(node, ast.Lambda):
        return walk.returned[0]
    if isinstance(node, ast.AsyncFunctionDef) or _yields(walk.program, node):
        return Unknown(node)
    return join(*walk.returned)


def _yields(program: Program, node: ast.FunctionDef) -> bool:
    if node not in program.generators:
        program.generators[node] = _may_yield(program, node) and _is_generator(node)
    return program.generators[node]


def _may_yield(program: Program, node: ast.FunctionDef) -> bool:
    """Whether a line of the function has the word in it: the walk through all others is saved."""
    filename = origin(node)
    if filename not in program.yields:
        text = program.text if filename is None else program.texts.get(filename, "")
        program.yields[filename] = _lines_with("yield", text)
    lines = program.yields[filename]
    index = bisect_left(lines, node.lineno)
    return index < len(lines) and lines[index] <= (node.end_lineno or lines[index])


def _lines_with(word: str, text: str) -> list[int]:
    lines: list[int] = []
    # A lone carriage return ends a line too.
    text = text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
    line, before, position = 1, 0, text.find(word)
    while position >= 0:
        line += text.count("\n", before, position)
        lines.append(line)
        before, position = position, text.find(word, position + 1)
    return lines


def _is_generator(node: ast.FunctionDef) -> bool:
    stack: list[ast.AST] = [*node.body]
    while stack:
        inner = stack.pop()
        if isinstance(inner, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            stack += inner_nodes(inner)
    return False


def _is_static(function: Function) -> bool:
    return "builtins.staticmethod" in decorator_names(function)


def _follow(caller: Walk, function: Function, call: Call, receiver: Value | None) -> Value:
    program, node = caller.program, function.node
    stack = caller.place.stack
    walked = program.followed.get(node, 0)
    few = walked < (MAX_BUILT if function.name == "__init__" else MAX_WALKS)
    if not few or len(stack) >= MAX_DEPTH or program.walks >= MAX_TOTAL_WALKS or call.node in stack:
        return Unknown(call.node)
    program.followed[node] = walked + 1
    program.walks += 1
    callees = (*caller.place.callees, node)
    place = caller.place._replace(function=function, loops=(), stack=(*stack, call.node), callees=callees)
    instance = receiver if isinstance(receiver, Instance) else None
    walk = Walk(program, Scope(node, function.scope), place, _ENGINE, instance)
    _bind_given(walk, function, call, receiver)
    _walk_body(walk, function)
    value = _result(walk, function)
    returns = getattr(node, "returns", None)
    value = narrowed(value, annotated(returns, function.scope)) if returns is not None else value
    transparent = all(name.rpartition(".")[2] in _TRANSPARENT for name in _decorators(function))
    return value if transparent else Unknown(call.node)


def _decorators(function: Function) -> list[str]:
    return [*decorator_names(function), *["?"] * (len(function.decorators) - len(list(decorator_names(function))))]


def _bind_given(walk: Walk, function: Function, call: Call, receiver: Value | None) -> None:
    arguments = function.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    names = walk.scope.names
    given = call.args
    if receiver is not None and positional and not _is_static(function):
        given = [receiver, *given]
    defaults = _defaults(function)
    for index, argument in enumerate([*positional, *arguments.kwonlyargs]):
        name = argument.arg
        if index < min(len(given), len(positional)):
            names[name] = given[index]
        elif name in call.kwargs:
            names[name] = call.kwargs[name]
        elif (call.open_args and index < len(positional)) or call.open_kwargs:
            names[name] = Unknown(argument)
        else:
            names[name] = _evaluate_in(walk, function, defaults.get(name)) or Unknown(argument)
    if arguments.vararg:
        names[arguments.vararg.arg] = Seq(
            "tuple", given[len(positional) :], call.open_args, arguments.vararg, walk.place
        )
    if arguments.kwarg:
        known = {argument.arg for argument in [*arguments.args, *arguments.kwonlyargs]}
        rest = {name: value for name, value in call.kwargs.items() if name not in known}
        names[arguments.kwarg.arg] = Dict(rest, call.open_kwargs, arguments.kwarg, walk.place)


_ENGINE = Engine(evaluate, _follow, execute)
