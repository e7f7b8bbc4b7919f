"""Which texts a program compares the names of parameters and modules with."""

from __future__ import annotations

import ast
import re
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ...facts.identifiers import names_in
from ...facts.nodes import all_nodes
from ...facts.parameters import defaults, positional_names
from ...facts.surroundings import parents_in
from ...facts.values import Function, Method
from ..flow.statements import body_around, holder_of
from .name_patterns import name_for
from .text_values import TextValues, bound_in, comes_out, is_test
from .written_texts import WrittenText, WrittenTexts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from ...facts.values import Call
    from ..events import NamedParts
    from ..run import Run
    from ..wrapping.renamed import Renamed

    _AnyLoop: TypeAlias = ast.For | ast.comprehension

#: Parts of what a checkpoint wrapper puts into the names below it.
_WRAPPED = ("checkpoint_wrapped", "wrapped_module")
#: Methods of a name, and functions of `re`, that test it.
_TESTS = frozenset(("startswith", "endswith", "find"))
_MATCHES = frozenset(("match", "fullmatch", "search"))
#: Functions that give no other name for a name.
_LOOK = frozenset(("print", "len", "any", "all", "isinstance"))
#: Methods, and functions of `re`, that make another text.
_REWRITES = frozenset(
    ("replace", "removeprefix", "removesuffix", "sub", "join", "translate", "partition", "rpartition")
)
#: Methods and functions of modules that do, by their own names.
_CLEANS = re.compile(r"clean|strip|normal|canonical|unwrap|plain|original|fqn|remap|rename")


def names_tested(run: Run, names: NamedParts, pattern: re.Pattern[str]) -> Iterator[WrittenText]:
    """The texts that a loop compares the names of parameters or modules with, names as the model has them.

    What is looked up in a dict of them counts as well.

    Args:
        run: The run that ``names`` are of.
        names: Where the program asks for the names.
        pattern: What must be found in a text.

    Returns:
        Of a tuple, a list or the keys of a dict the first one. A loop that changes the name, or that knows of
        checkpoint wrappers, has none.
    """
    yield from (text for text in _looked_up(run, names) if pattern.search(text.text))
    for loop in _loops_over(run, names):
        yield from _tested_in(loop, pattern)


def _tested_in(loop: _Loop, pattern: re.Pattern[str]) -> Iterator[WrittenText]:
    parts, name, written, counted = loop
    tested = [texts for node in parts if (texts := _tested_with(node, name)) is not None]
    searched = [asks for node in parts if (asks := _searched_with(node, name, written)) is not None]
    asked = (*tested, *(asks.text for asks in searched))
    if any(part in it.text for texts in asked for it in written.texts(texts, counted) for part in _WRAPPED):
        return
    for asks in searched:
        wanted = (name_for(it.text, asks.method) for it in written.texts(asks.text, counted))
        yield from (WrittenText(asks.node, it, is_pattern=True) for it in wanted if it and pattern.search(it))
    seen: set[str] = set()
    for texts in tested:
        if isinstance(texts, ast.Name):
            if texts.id in seen:
                continue
            seen.add(texts.id)
        found = (text for text in written.texts(texts, counted) if pattern.search(text.text))
        for text in islice(found, 1):
            yield WrittenText(texts, text.text, True) if isinstance(texts, ast.Name) else text


def _looked_up(run: Run, names: NamedParts) -> Iterator[WrittenText]:
    """What a program looks up in a dict of all ``names``: `dict(model.named_parameters())["fc.weight"]`."""
    body = body_around(run, names.call)
    parents = parents_in(body)
    made = parents.get(names.node)
    match made:
        case ast.Call(func=ast.Name("dict"), args=[_], keywords=[]):
            pass
        case ast.comprehension(target=ast.Tuple(elts=[ast.Name(key), _]), ifs=[]):
            made = parents.get(made)
            if not (isinstance(made, ast.DictComp) and isinstance(made.key, ast.Name) and made.key.id == key):
                return
        case _:
            return
    held: list[ast.AST] = [made]
    match parents.get(made):
        case ast.Assign(targets=[ast.Name(id=name)]):
            reads = [node for node in parents if isinstance(node, ast.Name) and node.id == name]
            stores = [node for node in reads if isinstance(node.ctx, ast.Store)]
            held = [node for node in reads if node not in stores] if len(stores) == 1 else []
    written = _texts_around(run, names.call)
    counted = written.counted_in(parents)
    for table in held:
        asked = _asked_for(table, parents)
        found = [] if asked is None else list(islice(written.texts(asked, counted), 1))
        yield from (text for text in found if not any(part in text.text for part in _WRAPPED))


def _asked_for(table: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> ast.expr | None:
    """What the expression around ``table``, a dict, looks up in it."""
    match parents.get(table):
        case ast.Subscript(value=value, slice=key, ctx=ast.Load()) if value is table:
            return key
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[right]) if right is table:
            return key
        case ast.Attribute(attr="get") as method:
            match parents.get(method):
                case ast.Call(func=func, args=[key, *_]) if func is method:
                    return key
    return None


class _Loop(NamedTuple):
    """A loop over names: what runs in it, the variable with the name, and the texts that variables hold."""

    parts: list[ast.AST]
    name: str
    written: WrittenTexts
    counted: dict[str, tuple[str, ...]]


def _loops_over(run: Run, names: NamedParts) -> Iterator[_Loop]:
    """The loops over ``names``, or over a list of them, that leave them as they are, and what they hand a name to."""
    holder, body = holder_of(run, names.call), body_around(run, names.call)
    if not isinstance(holder, ast.For | ast.comprehension) or holder.iter is not names.node:
        return
    parents, written = parents_in(body), _texts_around(run, names.call)
    may_clean = partial(_may_clean, run.program.trees)
    for loop in (holder, *_loops_over_list(holder, parents)):
        parts = [node for part in _parts(loop, parents.get(loop)) for node in ast.walk(part)]
        name = _name_in(loop)
        if name and _is_untouched(name, parts, may_clean):
            counted = written.counted_in((*names.place.loops, *parts))
            yield _Loop(parts, name, written, counted)
            yield from _helpers_given(run, parts, name, may_clean)


def _loops_over_list(loop: _AnyLoop, parents: Mapping[ast.AST, ast.AST]) -> Iterator[_AnyLoop]:
    """The loops over the variable that holds the names that ``loop`` goes through: `[n for n, _ in ...]`."""
    made = parents.get(loop)
    if (
        not isinstance(made, ast.ListComp | ast.SetComp)
        or len(made.generators) > 1
        or not isinstance(made.elt, ast.Name)
    ):
        return
    match parents.get(made):
        case ast.Assign(targets=[ast.Name(id=held)]) if made.elt.id == _name_in(loop):
            others = (node for node in parents if isinstance(node, ast.For | ast.comprehension))
            yield from (it for it in others if isinstance(it.iter, ast.Name) and it.iter.id == held)


def _helpers_given(run: Run, parts: list[ast.AST], name: str, may_clean: Callable[[str], bool]) -> Iterator[_Loop]:
    """The functions of the program that get the variable ``name``, as far as they leave it as it is."""
    for node in parts:
        match node:
            case ast.Call(func=ast.Name(id=called), args=args, keywords=[]):
                at = [index for index, given in enumerate(args) if isinstance(given, ast.Name) and given.id == name]
                found = _defined(run.program.trees, called) if len(at) == 1 else []
            case _:
                continue
        for tree, function in found if len(found) == 1 else ():
            names, inside = positional_names(function), [*all_nodes(function)]
            own = names[at[0]] if at[0] < len(names) else ""
            if own and _is_untouched(own, [part for part in inside if not isinstance(part, ast.arg)], may_clean):
                texts = WrittenTexts(tree, function)
                yield _Loop(inside, own, texts, texts.counted_in(inside))


def _defined(trees: tuple[ast.AST, ...], name: str) -> list[tuple[ast.AST, ast.FunctionDef]]:
    """The functions called ``name``, each with its file."""
    nodes = ((tree, node) for tree in trees for node in all_nodes(tree))
    return [(tree, node) for tree, node in nodes if isinstance(node, ast.FunctionDef) and node.name == name]


def _texts_around(run: Run, call: Call) -> WrittenTexts:
    """The texts of the function that makes ``call``; what its parameters get, its own call says."""
    body, function = body_around(run, call), call.place.function
    tree, callers = run.program.tree_with(body), run.callers_of(call.place)
    if function is None or not callers or not isinstance(callers[-1].func, Function | Method):
        return WrittenTexts(tree, body)
    caller = callers[-1]
    outer = body_around(run, caller)
    names = positional_names(function.node)[isinstance(caller.func, Method) :]
    given = {**defaults(function.node), **caller.written_arguments(names)}
    return WrittenTexts(tree, body, given, WrittenTexts(run.program.tree_with(outer), outer))


def tests_that_fail(run: Run, names: NamedParts, renaming: Callable[[], Iterable[Renamed]]) -> Iterator[ast.expr]:
    """The tests in a loop on parts of names, `name.split(".")[2]`, that some names passed, and no new name passes.

    Args:
        run: The run that ``names`` are of.
        names: Where the program asks for the names.
        renaming: Gives the names before and after; asked where the loop tests parts of names.
    """
    for loop in _loops_over(run, names):
        yield from _failing_in(loop, renaming)


def _failing_in(loop: _Loop, renaming: Callable[[], Iterable[Renamed]]) -> Iterator[ast.expr]:
    bound = bound_in(loop.parts)
    derived = _derived(loop, bound)
    known = {counter: texts[0] for counter, texts in loop.counted.items() if texts}

    def meant(node: ast.expr) -> ast.expr | None:
        return (bound.get(node.id) or loop.written.value_of(node.id)) if isinstance(node, ast.Name) else None

    def passes(test: ast.expr, name: str) -> bool:
        return comes_out(test, TextValues({**known, loop.name: name}, meant))

    asked = [test for test in loop.parts if is_test(test) and not names_in(test).isdisjoint(derived)]
    asked = [test for test in asked if not any(_is_on_whole_name(part, loop) for part in all_nodes(test))]
    renamed = [*renaming()] if asked else []
    for test in asked:
        was_passed = any(passes(test, it.plain) for it in renamed)
        if was_passed and not any(passes(test, it.wrapped) for it in renamed):
            yield test


def _is_on_whole_name(test: ast.AST, loop: _Loop) -> bool:
    """Whether ``test`` is one of those that are compared with what they ask for."""
    searched = _searched_with(test, loop.name, loop.written)
    return searched is not None or _tested_with(test, loop.name) is not None


def _derived(loop: _Loop, bound: Mapping[str, ast.expr]) -> frozenset[str]:
    """The variable with the name, and those that are computed from it."""
    computed = {name: value for name, value in bound.items() if not _is_on_whole_name(value, loop)}
    found = {loop.name}
    for _ in computed:
        found |= {other for other, value in computed.items() if not names_in(value).isdisjoint(found)}
    return frozenset(found)


def _parts(loop: _AnyLoop, around: ast.AST | None) -> list[ast.AST]:
    """What runs in each iteration of ``loop``; ``around`` is what a comprehension is a part of."""
    if isinstance(loop, ast.For):
        return [*loop.body]
    match around:
        case ast.DictComp(key=key, value=value, generators=generators):
            given: list[ast.AST] = [key, value]
        case ast.ListComp(elt=elt, generators=generators) | ast.SetComp(elt=elt, generators=generators):
            given = [elt]
        case ast.GeneratorExp(elt=elt, generators=generators):
            given = [elt]
        case _:
            return [*loop.ifs]
    return [*given, *loop.ifs, *(other for other in generators if other is not loop)]


def _name_in(loop: _AnyLoop) -> str:
    """The variable of ``loop`` that holds a name."""
    match loop.target:
        case ast.Name(id=name) | ast.Tuple(elts=[ast.Name(id=name), _]):
            return name
    return ""


def _is_untouched(name: str, parts: list[ast.AST], may_clean: Callable[[str], bool]) -> bool:
    """Whether the variable ``name`` holds a name as the model has it: nothing changes it or knows of the wrappers.

    Args:
        name: The variable.
        parts: What runs with it.
        may_clean: Whether the function called so may give the name without the wrappers.
    """
    for node in parts:
        match node:
            case ast.Name(id=bound, ctx=ast.Store()) | ast.arg(arg=bound) if bound == name:
                return False
            case ast.Constant(value=str(text)) if any(part in text for part in _WRAPPED):
                return False
            case ast.Attribute(value=ast.Name(id=changed), attr="replace") if changed == name:
                return False
            case ast.Call(func=ast.Name(id=function), args=[ast.Name(id=given), *_]) if given == name:
                if function not in _LOOK and may_clean(function):
                    return False
            case ast.Call(func=ast.Attribute(attr=method), args=[ast.Name(id=given), *_]) if given == name:
                if _CLEANS.search(method):
                    return False
    return True


def _may_clean(trees: tuple[ast.AST, ...], function: str) -> bool:
    """Whether a function of the program may give another name for the name it gets, by what it is called or does.

    One that only reads it, such as the number of its layer, does not; one that the program does not define may.
    """
    if _CLEANS.search(function):
        return True
    nodes = (node for tree in trees for node in all_nodes(tree))
    bodies = [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name == function]
    return not bodies or any(map(_changes_texts, (part for body in bodies for part in all_nodes(body))))


def _changes_texts(node: ast.AST) -> bool:
    """Whether ``node`` makes another text of one, or speaks of the wrappers."""
    match node:
        case ast.Attribute(attr=method) | ast.Name(id=method):
            return method in _REWRITES or _CLEANS.search(method) is not None
        case ast.Constant(value=str(text)):
            return any(part in text for part in _WRAPPED)
    return False


def _tested_with(node: ast.AST, name: str) -> ast.expr | None:
    """What ``node`` compares the variable ``name`` with or looks for in it; None when it does something else."""
    match node:
        case ast.Compare(
            left=text, ops=[ast.In() | ast.NotIn() | ast.Eq() | ast.NotEq()], comparators=[ast.Name(id=own)]
        ) if own == name:
            return text
        case ast.Compare(left=ast.Name(id=own), ops=[ast.Eq() | ast.NotEq()], comparators=[text]) if own == name:
            return text
        case ast.Compare(left=ast.Name(id=own), ops=[ast.In() | ast.NotIn()], comparators=[text]) if own == name:
            return text if not isinstance(text, ast.Constant) else None
        case ast.Call(func=ast.Attribute(value=ast.Name(id=own), attr=method), args=[text, *_]) if own == name:
            return text if method in _TESTS else None
        case ast.Call(func=ast.Attribute(value=ast.Name() as table, attr="get"), args=[ast.Name(id=own), *_]):
            return table if own == name else None
        case ast.Subscript(value=ast.Name() as table, slice=ast.Name(id=own), ctx=ast.Load()):
            return table if own == name else None
    return None


class _Search(NamedTuple):
    """A regular expression that a name is searched with: where it stands, its text, the function of `re`."""

    node: ast.expr
    text: ast.expr
    method: str


def _searched_with(node: ast.AST, name: str, written: WrittenTexts) -> _Search | None:
    """What ``node`` searches the variable ``name`` with; None when it does something else."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=method), args=[text, ast.Name(id=own), *_]):
            return _Search(text, text, method) if own == name and method in _MATCHES else None
        case ast.Call(func=ast.Attribute(value=compiled, attr=method), args=[ast.Name(id=own)]):
            held = written.value_of(compiled.id) if isinstance(compiled, ast.Name) else compiled
            found = _compiled(held) if own == name and method in _MATCHES else None
            return _Search(compiled, found, method) if found is not None else None
    return None


def _compiled(value: ast.expr | None) -> ast.expr | None:
    """The text of `re.compile(text)`."""
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr="compile"), args=[text], keywords=[]):
            return text
    return None
