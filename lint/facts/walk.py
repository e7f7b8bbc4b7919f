"""The state of a walk through the program, and the facts it leaves behind."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .grad_modes import GradModes
from .origin import origin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .imported.local import FindModule
    from .scopes import Scope
    from .script import Script
    from .values import Call, Class, Dict, Function, FunctionNode, Guard, Guess, Instance, Module, Place, Seq, Value


class Write(NamedTuple):
    """``obj.field = value`` or ``obj["field"] = value``."""

    obj: Value
    field: str
    value: Value
    #: The statement, or the call for ``setattr``.
    node: ast.AST
    place: Place
    order: int
    #: What `obj.field` was before; None when it was never looked at.
    before: Value | None
    is_item: bool = False
    #: An augmented assignment (`+=`) or a `del`: of ``value`` at most what goes into it is known.
    augmented: bool = False

    @property
    def statement(self) -> ast.stmt | None:
        """The assignment; None for a call of `setattr`."""
        return self.node if isinstance(self.node, ast.stmt) else None

    @property
    def target(self) -> ast.Attribute | None:
        """The attribute as it is written, where the statement assigns it alone."""
        match self.node:
            case ast.Assign(targets=[ast.Attribute() as target]):
                return target
        return None

    @property
    def written(self) -> ast.expr | None:
        """What is stored, as it is written; None where a call says it in a way of its own."""
        match self.node:
            case ast.Assign(value=given) | ast.AnnAssign(value=ast.expr() as given) | ast.Call(args=[_, _, given]):
                return given
        return None


class Returned(NamedTuple):
    """One ``return`` of a function."""

    value: Value
    node: ast.Return | ast.Lambda
    place: Place


class Named(NamedTuple):
    """``obj.name`` as a statement of its own, which does nothing."""

    node: ast.Attribute
    place: Place
    order: int


class Store(NamedTuple):
    """``obj[key] = value`` or ``obj[key] += value``, where ``obj`` is no container of the program."""

    obj: Value
    key: Value
    value: Value
    place: Place
    order: int


class Untaken(NamedTuple):
    """A call on the side of a condition that is never taken, as the program sets what the condition asks for."""

    call: Call
    #: The `if`.
    node: ast.If | ast.IfExp
    #: What holds instead where the program goes on.
    instead: Guard


class Exit(NamedTuple):
    """A call of `__exit__` that ends a `with` block."""

    order: int
    #: Whether everything that it runs was walked.
    is_whole: bool


class Program:
    """What a file does: its calls and writes in program order, its functions and classes."""

    __slots__ = (
        "calls",
        "classes",
        "closures",
        "command",
        "command_read",
        "exits",
        "filename",
        "find_module",
        "followed",
        "functions",
        "generators",
        "grad",
        "guessed",
        "handing_on",
        "hops",
        "importing",
        "in_turn",
        "iterations",
        "left_out",
        "modules",
        "named",
        "not_walked",
        "order",
        "own_models",
        "property_reads",
        "registering",
        "returns",
        "script",
        "settings",
        "settings_read",
        "stores",
        "text",
        "texts",
        "tree",
        "untaken",
        "walks",
        "writes",
        "yielded",
        "yields",
    )

    def __init__(self, filename: str, text: str, tree: ast.Module, find_module: FindModule | None = None) -> None:
        self.filename = filename
        self.text = text
        self.tree = tree
        #: Finds modules of the project; None when only this file is read.
        self.find_module = find_module
        #: Those that were read, by the name they are imported by; None for what is no such module.
        self.modules: dict[str, Module | None] = {}
        #: Those that were not worth reading for a module that imports them; the checked file may import them, too.
        self.left_out: set[str] = set()
        #: Their texts by file name.
        self.texts: dict[str, str] = {}
        #: What is in the files of settings that the program may read, by their names, and those that it does read.
        self.settings: Mapping[str, Dict] = {}
        self.settings_read: set[str] = set()
        #: The words that the program is started with, where the run of it has them, and whether a parser reads them.
        self.command: Seq | None = None
        self.command_read = False
        #: The packages of the modules that are being read, each imported by the one before.
        self.importing: list[str] = []
        #: How many of these modules are no packages.
        self.hops = 0
        self.calls: list[Call] = []
        #: Those that never come about.
        self.untaken: list[Untaken] = []
        self.writes: list[Write] = []
        #: Assignments to parts of tensors.
        self.stores: list[Store] = []
        self.named: list[Named] = []
        self.functions: dict[FunctionNode, Function] = {}
        #: By call of `__enter__`, the end of its block.
        self.exits: dict[Call, Exit] = {}
        #: Functions that were defined again, in another call of the function around them.
        self.closures: list[Function] = []
        self.classes: list[Class] = []
        #: Those of them that are models by themselves; None before it is asked.
        self.own_models: list[Class] | None = None
        #: By read of a property, the call that it stands for.
        self.property_reads: dict[ast.Attribute, ast.Call] = {}
        #: Whether decorators of classes run now, which registries are: each class is one more call of them.
        self.registering = False
        #: What parameters are taken for that say no class.
        self.guessed: dict[tuple[Class, Guess], Instance] = {}
        self.returns: dict[FunctionNode, list[Returned]] = {}
        #: What generators hand over.
        self.yielded: dict[FunctionNode, list[Value]] = {}
        #: How often each function was walked.
        self.followed: dict[FunctionNode, int] = {}
        #: The functions that do nothing but hand on what they get: a call of them is one of what they call.
        self.handing_on: set[FunctionNode] = set()
        #: How many calls of the program's functions were not walked, for one of the limits.
        self.not_walked = 0
        #: Whether each function yields, found out once.
        self.generators: dict[FunctionNode, bool] = {}
        #: By file, the lines that have the word `yield` in them.
        self.yields: dict[str | None, list[int]] = {}
        #: What the walk from the first line shows once it is over; None before, and for what is no script.
        self.script: Script | None = None
        #: The loops whose body is walked for each element by itself.
        self.in_turn: set[ast.AST] = set()
        #: How many iterations each loop takes, where the file decides it.
        self.iterations: dict[ast.AST, int | None] = {}
        #: The grad mode, now and at each statement.
        self.grad = GradModes()
        self.order = 0
        self.walks = 0

    @property
    def trees(self) -> tuple[ast.AST, ...]:
        """The file, and the modules of the project that were read."""
        return (self.tree, *(module.scope.node for module in self.modules.values() if module is not None))

    def tree_with(self, node: ast.AST) -> ast.AST:
        """The file or the module that ``node`` stands in."""
        filename = origin(node)
        return next((tree for tree in self.trees[1:] if origin(tree) == filename), self.tree)

    def text_with(self, node: ast.AST) -> str:
        """The text that ``node`` stands in; empty for one that is not kept."""
        filename = origin(node)
        return self.text if filename is None else self.texts.get(filename, "")

    def define(self, function: Function) -> None:
        """Remember a function where it is defined; the same text may define several, with other names around them."""
        if self.functions.setdefault(function.node, function) is not function:
            self.closures.append(function)

    def next_order(self) -> int:
        """A number larger than all before: facts compare by it in program order."""
        self.order += 1
        return self.order


class Engine(NamedTuple):
    """The recursions of a walk, handed down so that no module needs to import its caller."""

    evaluate: Callable[[Walk, ast.AST | None], Value]
    #: Walks the body of a called function of the file and gives what it returns.
    follow: Callable[[Walk, Function, Call, Value | None], Value]
    #: Walks a block; whether control leaves it for good.
    execute: Callable[[Walk, Sequence[ast.stmt]], bool]


class Block(Protocol):
    """A `with` block that runs inside of the generator that its context manager is."""

    #: Whether control left it for good; None before it ran.
    ends: bool | None

    @property
    def item(self) -> ast.withitem:
        """What is entered."""

    def run_at_yield(self, manager: Walk, given: Value, is_certain: bool) -> None:
        """Run where the generator ``manager`` hands over, surely (``is_certain``) or under a condition of its own."""


class Walk:
    """One pass through one body: where it is and what its names mean."""

    __slots__ = (
        "begun_at",
        "begun_in",
        "block",
        "broken_off",
        "engine",
        "entered_for",
        "entered_on_stack",
        "instance",
        "place",
        "program",
        "returned",
        "scope",
        "yielded",
    )

    def __init__(
        self,
        program: Program,
        scope: Scope,
        place: Place,
        engine: Engine,
        instance: Instance | None = None,
    ) -> None:
        self.program = program
        self.scope = scope
        self.place = place
        self.engine = engine
        #: ``self`` of the method being walked, for ``super()``.
        self.instance = instance
        #: What it returns, each with the conditions of its own body.
        self.returned: list[tuple[Value, tuple[Guard, ...]]] = []
        self.yielded: list[Value] = []
        #: By loop, the innermost last: where its body is left, and what names mean there.
        self.broken_off: list[list[tuple[ast.Break | ast.Continue, dict[str, Value]]]] = []
        #: Where it begins, and in which grad mode.
        self.begun_at, self.begun_in = place, program.grad.current
        #: The `with` block whose context is being evaluated.
        self.block: Block | None = None
        #: The block of a caller that runs at the first `yield` of this body.
        self.entered_for: Block | None = None
        #: What the call that is evaluated enters on a stack, `stack.enter_context(...)`, for the rest of its block.
        self.entered_on_stack: tuple[Value, ...] = ()

    def evaluate(self, node: ast.AST | None) -> Value:
        """What ``node`` evaluates to here; every call in it is recorded on the way."""
        return self.engine.evaluate(self, node)

    def follow(self, function: Function, call: Call, receiver: Value | None) -> Value:
        """What ``function`` returns for ``call``; its body is walked with those arguments."""
        return self.engine.follow(self, function, call, receiver)

    def times_since(self, made: Place | None) -> int | None:
        """How often a statement here runs for each time that control comes to ``made``, which is around it."""
        if made is None or self.place.deeper_than(made) or self.place.function is not made.function:
            return None
        times = 1
        for loop in self.place.loops[len(made.loops) :]:
            iterations = self.program.iterations.get(loop)
            if iterations is None:
                return None
            times *= iterations
        return times

    def give_back(self, value: Value) -> None:
        """The body returns ``value`` here, under the conditions of its own that hold."""
        self.returned.append((value, self.place.guards[len(self.begun_at.guards) :]))

    def under(self, guard: Guard) -> None:
        """From here on ``guard`` holds."""
        self.place = self.place._replace(guards=(*self.place.guards, guard))
