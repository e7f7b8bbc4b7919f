"""Reading a file: the module from its first line, then every function that nothing in it called."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..nodes import all_nodes
from ..objects.classes import ancestors, method_of
from ..origin import origin
from ..plain_syntax import in_plain_syntax
from ..scopes import Scope
from ..script import whole_script
from ..values import Function, Instance, Place, options
from ..walk import Engine, Program, Walk
from .context_managers import entered_by
from .expressions import evaluate
from .following import MAX_TOTAL_WALKS, follow, walk_body
from .grad_mode import enter_decorators
from .parameters import bind_unknown
from .statements import execute

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from ..imported.local import FindModule
    from ..values import Class, Dict, FunctionNode, Seq

#: Functions that one text defines, each with other names around it.
MAX_CLOSURES = 8


def read_program(
    text: str,
    filename: str,
    find_module: FindModule | None = None,
    settings: Mapping[str, Dict] | None = None,
    command: Seq | None = None,
) -> Program:
    """The facts of Python source.

    Args:
        text: The source.
        filename: What places in it are called.
        find_module: Gives the modules of the project that it imports, which are read too; None when only this text is.
        settings: What is in the files of settings that it may read, by their names without folders.
        command: The words that it is started with, without its own name; None where that is open.

    Raises:
        SyntaxError: The text is no Python; it may hold null bytes.
    """
    try:
        tree = in_plain_syntax(ast.parse(text), text)
    except ValueError as error:
        raise SyntaxError(str(error)) from error
    except MemoryError as error:
        raise SyntaxError("nested more deeply than its parser allows", (filename, 1, 1, None)) from error
    program = Program(filename, text, tree, find_module)
    program.settings, program.command = settings or {}, command
    scope = Scope(tree, None, has_walrus=":=" in text)
    execute(Walk(program, scope, Place(), _ENGINE), tree.body)
    program.grad.end_module()
    program.script = whole_script(program.tree, program.calls)
    _walk_uncalled(program)
    return program


def _walk_uncalled(program: Program) -> None:
    """Walk what nothing called: constructors first, because the other methods read what they store.

    A class that the file builds somewhere has the arguments that are given there: what builds it comes before.
    """
    built = {cls.name for cls in program.classes if _is_named_in_call(program, cls) or _may_be_picked(program, cls)}
    _walk_constructors(program, leaving_out=built)
    waiting = {cls.name for cls in program.classes if cls.name in built and _waiting_constructor(program, cls)}
    for function in list(program.functions.values()) if waiting else ():
        if function.node not in program.followed and _is_ready(program, function) and _builds(function, waiting):
            _walk_alone(program, function)
    _walk_constructors(program)
    completed = [(cls, inherited) for cls in program.classes if (inherited := _completed_forward(cls))]
    left_open = {inherited.node for cls, inherited in completed if _is_left_open(program, inherited, cls)}
    _walk_waiting(program, left_open)
    for function in _given_away(program) if program.modules else ():
        if function.node not in program.followed:
            _walk_alone(program, function)
    # What the other methods store comes before what the completed classes read.
    for cls, inherited in completed:
        _walk_alone(program, inherited, cls.instance)
    _walk_waiting(program, left_open)
    _walk_closures(program)


def _walk_waiting(program: Program, left_out: Container[FunctionNode]) -> None:
    """Walk the functions that nothing called, first those that are for callers outside of the file."""
    for wanted in (_is_entered_from_outside, _is_part_of_the_run):
        done = 0
        while done < len(program.functions):
            # Walking one function can define others.
            functions = list(program.functions.values())[done:]
            done = len(program.functions)
            for function in functions:
                waits = function.node not in program.followed and function.node not in left_out
                if waits and not _is_handed_on(program, function) and wanted(program, function):
                    _walk_alone(program, function)


def _walk_constructors(program: Program, leaving_out: Container[str] = ()) -> None:
    """Walk the constructors that nothing called, but those of the classes of these names."""
    for cls in program.classes:
        initialiser = _waiting_constructor(program, cls)
        if initialiser is not None and cls.name not in leaving_out and initialiser.node not in program.followed:
            _walk_alone(program, initialiser)


def _waiting_constructor(program: Program, cls: Class) -> Function | None:
    """The constructor that ``cls`` defines, unless something called it."""
    initialiser = cls.body.get("__init__")
    return initialiser if isinstance(initialiser, Function) and initialiser.node not in program.followed else None


def _is_named_in_call(program: Program, cls: Class) -> bool:
    """Whether the name of ``cls`` stands before a `(`, its own definition left out."""
    defined = origin(cls.node) is None and bool(cls.node.bases or cls.node.keywords)
    return _called_names(program.text).all[cls.name] > defined


def _may_be_picked(program: Program, cls: Class) -> bool:
    """Whether ``cls`` may be built by another name: `BLOCKS[kind](8)` where a decorator or a dict holds it."""
    return bool(cls.node.decorator_list) or cls.name in _names_held(program.tree)


@lru_cache(maxsize=4)
def _names_held(tree: ast.Module) -> frozenset[str]:
    """The variables that are entries of dicts: `{"bn": Block}`, `dict(bn=Block)`, `BLOCKS["bn"] = Block`."""
    held: list[ast.expr] = []
    for node in all_nodes(tree):
        match node:
            case ast.Dict(values=values):
                held += values
            case ast.Call(func=ast.Name("dict"), keywords=keywords):
                held += [keyword.value for keyword in keywords]
            case ast.Assign(targets=[ast.Subscript()], value=value):
                held.append(value)
    return frozenset(it.id for it in held if isinstance(it, ast.Name))


def _is_ready(program: Program, function: Function) -> bool:
    """Whether ``function`` is entered from outside, and the constructor of its own class was walked."""
    if not _is_entered_from_outside(program, function) or origin(function.node) is not None:
        return False
    return function.owner is None or _waiting_constructor(program, function.owner) is None


def _builds(function: Function, classes: Container[str]) -> bool:
    """Whether ``function`` calls one of ``classes`` by its name, or what it takes out of a registry."""
    called = (node.func for node in all_nodes(function.node) if isinstance(node, ast.Call))
    return any(isinstance(it, ast.Subscript) or (isinstance(it, ast.Name) and it.id in classes) for it in called)


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


def _completed_forward(cls: Class) -> Function | None:
    """The inherited ``forward`` of a class that defines or stores what the bases read; None when there is none."""
    if "forward" in cls.body:
        return None
    found = method_of(cls, "forward")
    return found if found is not None and _completed_by(cls) else None


def _completed_by(cls: Class) -> frozenset[str]:
    """The names that ``cls`` defines or stores and its bases read of their objects."""
    read = frozenset[str]().union(*(_attributes_read(base.node) for base in ancestors(cls)))
    return read.intersection((*cls.body, *cls.fields))


@lru_cache(maxsize=64)
def _attributes_read(cls: ast.ClassDef) -> frozenset[str]:
    """The attributes of variables that a class speaks of."""
    return frozenset(
        node.attr for node in all_nodes(cls) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    )


def _is_left_open(program: Program, method: Function, completing: Class) -> bool:
    """Whether nothing builds the class of ``method``, which leaves to ``completing`` what its objects hold."""
    owner = method.owner
    if owner is None or _is_named_in_call(program, owner):
        return False
    known = {name for cls in (owner, *ancestors(owner)) for name in (*cls.body, *cls.fields)}
    return not _completed_by(completing) <= known


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


def _given_away(program: Program) -> list[Function]:
    """The functions of imported modules that a call gets, `net.apply(freeze)`, or something keeps: `M.forward = fused`.

    Where they are called is not shown.
    """
    given = [value for call in program.calls for value in (*call.args, *call.kwargs.values())]
    given += [write.value for write in program.writes]
    found = (option for value in given for option in options(value))
    return [it for it in found if isinstance(it, Function) and origin(it.node) is not None]


class _CalledNames(NamedTuple):
    """The names that stand before a `(` in a text."""

    #: How often each does, behind `def` too.
    all: Counter[str]
    #: Those behind a dot.
    methods: frozenset[str]


@lru_cache(maxsize=4)
def _called_names(text: str) -> _CalledNames:
    """Found in one pass, backwards: each `(` is found at once, and the name before it ends where no letter stands."""
    found = [(name[::-1], dot) for name, dot in re.findall(r"\((\w+)(\.?)", text[::-1])]
    return _CalledNames(Counter(name for name, _ in found), frozenset(name for name, dot in found if dot))


def _is_handed_on(program: Program, function: Function) -> bool:
    """Whether all that speaks of it are calls, and those are calls of what it hands everything on to."""
    if function.node not in program.handing_on or function.place.function is not None:
        return False
    text = program.text_with(function.node)
    return text.count(function.name) == _called_names(text).all[function.name]


def _is_part_of_the_run(program: Program, function: Function) -> bool:
    """Whether it can run at all: of an imported module, methods, what others defined for them or the file hands on."""
    inner = function.owner is not None or function.place.function is not None
    return origin(function.node) is None or inner or function.name in _names_read(program.tree)


@lru_cache(maxsize=4)
def _names_read(tree: ast.Module) -> frozenset[str]:
    """The variables and the attributes that a file reads."""
    return frozenset(
        node.id if isinstance(node, ast.Name) else node.attr
        for node in all_nodes(tree)
        if isinstance(node, ast.Name | ast.Attribute)
    )


def _instance_of(program: Program, method: Function, owner: Class) -> Instance:
    """Whose object runs ``method``: the one class that inherits it where nothing builds ``owner`` itself."""
    if method.name == "__init__" or _is_named_in_call(program, owner):
        return owner.instance
    heirs = [cls for cls in program.classes if owner in ancestors(cls) and method_of(cls, method.name) is method]
    return heirs[0].instance if len(heirs) == 1 else owner.instance


def _walk_alone(program: Program, function: Function, instance: Instance | None = None) -> None:
    program.followed[function.node] = program.followed.get(function.node, 0) + 1
    program.walks += 1
    place = Place(function=function, walk=program.walks, contexts=entered_by(function))
    program.grad.current = program.grad.at_start
    if instance is None and function.owner is not None:
        instance = _instance_of(program, function, function.owner)
    walk = Walk(program, Scope(function.node, function.scope), place, _ENGINE, instance)
    bind_unknown(walk, function, instance)
    enter_decorators(walk, function)
    walk_body(walk, function)


_ENGINE = Engine(evaluate, follow, execute)
