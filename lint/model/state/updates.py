"""Buffers and counters that a forward pass changes and computes with, so that running it again gives something else."""

from __future__ import annotations

import ast
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ...facts.nodes import all_nodes
from ...facts.objects.classes import is_run_as_written, method_of, related
from ...facts.values import Instance
from ..calls.forward_hooks import as_methods, hooks_on
from ..conditions.guards import in_mode
from .carried import carried, one_by_one, puts_back
from .held_state import CONTAINER_CHANGES, SAVING, global_counters, saved_state, state_of
from .own_attributes import is_of_self, keeps, own_place, scales

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ...facts.values import Class, Function
    from ..regions.region import Region
    from ..run import Run

#: Methods whose result depends on what the tensor held, and those that overwrite it.
_ACCUMULATE = frozenset(("add_", "sub_", "mul_", "div_", "lerp_", "index_add_", "scatter_add_", "addcmul_", "addcdiv_"))
_OVERWRITE = frozenset(("clear", "copy_", "fill_", "zero_", "scatter_", "index_copy_", "index_fill_", "masked_fill_"))
#: Of these, the ones that leave nothing of it.
_FILL = frozenset(("copy_", "fill_", "zero_", "clear"))
#: Methods that keep a part of what the tensor held.
_DECAYING = frozenset(("mul_", "lerp_"))
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)

#: Buffers and counters, and the step at which each was read.
Reads: TypeAlias = frozenset[tuple[str, int]]
_Method: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class Update(NamedTuple):
    """One place where ``self.name`` changes."""

    name: str
    node: ast.expr | ast.stmt
    step: int
    #: Whether the new content depends on the old one.
    accumulates: bool
    #: `buffer`, `counter` or `attribute`.
    kind: str
    #: Whether it keeps a part of the old content alone, as a moving average does.
    decays: bool = False


def moving_averages(run: Run, region: Region) -> Iterator[Update]:
    """The buffers that a region moves towards its data and that something else than its results in training reads.

    A sum counts each batch twice and stays right as a share; whether a count does, its readers know.
    """
    for owner, function, state in _stateful(run, region):
        methods, helpers = _own_methods(region, owner), _helpers(region)
        saved = saved_state(run, owner) if any(run.method_calls(*SAVING)) else frozenset[str]()
        updates = _Body(function, state, True, methods, helpers).updates
        kept = [it for it in updates if it.decays and it.accumulates and it.kind != "attribute"]
        asked = _Body(function, state, False, methods, helpers).read if kept else frozenset[str]()
        for update in kept:
            if update.name in asked | saved or _is_read_elsewhere(run.program.trees, update.name):
                yield update


def state_updates(run: Run, region: Region, training: bool = True) -> Iterator[Update]:
    """The updates of buffers and counters from which a region computes its results.

    A buffer that is overwritten before it is read holds the same in both runs, and an update under a condition may
    happen only once: neither is given.

    Args:
        run: The run.
        region: What runs again.
        training: Whether the model is in train mode.
    """
    helpers = _helpers(region)
    bodies = [
        (owner, _Body(function, state, training, _own_methods(region, owner), helpers))
        for owner, function, state in _stateful(run, region)
    ]
    hooks = [*_hooks_in(run, region, training)]
    hooked = [body for _, body in hooks]
    for owner, body in (*bodies, *hooks):
        elsewhere = {
            name for other, inner in bodies if inner is not body and related(owner, other) for name in inner.read
        }
        for update in body.updates:
            if update.kind == "attribute" and puts_back(region, update.name, update.node):
                continue
            before = any(name == update.name and step <= update.step for name, step in body.results)
            # A hook runs whenever its module does; a method may be called in another mode.
            moves = update.accumulates or (body in hooked and update.name in body.moving)
            if before or (moves and update.name in body.read | elsewhere):
                yield update


def _stateful(run: Run, region: Region) -> Iterator[tuple[Class, _Method, dict[str, str]]]:
    """The methods that run in ``region``, with the state of their classes."""
    for function in region.functions:
        if function.owner is not None and not isinstance(function.node, ast.Lambda):
            outside = dict.fromkeys(global_counters(function.node), "counter")
            for owner in _classes_with(region, function, function.owner):
                state = dict.fromkeys(carried(owner), "attribute") | state_of(run, owner) | outside
                if state:
                    yield owner, function.node, state


def _classes_with(region: Region, function: Function, defined_by: Class) -> list[Class]:
    """The classes of the modules in ``region`` that inherit the method ``function``; else the one that defines it."""
    classes = dict.fromkeys(module.cls for module in region.modules if isinstance(module, Instance))
    return [cls for cls in classes if method_of(cls, function.name) is function] or [defined_by]


def _hooks_in(run: Run, region: Region, training: bool) -> Iterator[tuple[Class, _Body]]:
    """The bodies of the hooks that run whenever modules of the program's classes do."""
    registered = [found for found in run.bodies.hooks if not found.guards]
    classes = {module.cls: None for module in region.modules if isinstance(module, Instance)} if registered else {}
    for owner in classes:
        state = state_of(run, owner)
        for found in hooks_on(registered, owner.instance) if state else ():
            yield from ((owner, _Body(it, state, training, {})) for it in as_methods(found.hook, owner))


@lru_cache(maxsize=8)
def _is_read_elsewhere(trees: tuple[ast.AST, ...], name: str) -> bool:
    """Whether something but updates reads the attribute ``name``."""
    reads, changed = set[ast.AST](), set[ast.AST]()
    for node in (node for tree in trees for node in all_nodes(tree)):
        match node:
            case ast.Attribute(attr=attribute, ctx=ast.Load()) if attribute == name:
                reads.add(node)
            case ast.Assign(targets=[ast.Attribute(attr=attribute)], value=value) if attribute == name:
                changed.update(all_nodes(value))
            case ast.Call(func=ast.Attribute(value=inner, attr=method)) if method in _ACCUMULATE | _OVERWRITE:
                changed.update((inner, *(part for given in node.args for part in all_nodes(given))))
            case ast.Attribute(value=inner, attr="data"):
                changed.add(inner)
    return not reads <= changed


def computes_with(region: Region, owner: Class, name: str) -> bool:
    """Whether the results of ``region`` are computed from the attribute ``name`` of objects of ``owner``."""
    own = (it for it in region.functions if it.owner is not None and related(it.owner, owner))
    bodies = (it.node for it in own if not isinstance(it.node, ast.Lambda))
    methods = _own_methods(region, owner)
    return any(name in _Body(body, {name: "counter"}, True, methods).read for body in bodies)


def _own_methods(region: Region, owner: Class) -> dict[str, ast.FunctionDef]:
    """By name the methods of ``owner`` that ``region`` runs as they are written; a name with two bodies is left out."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for function in region.functions:
        if function.owner is not None and related(function.owner, owner) and isinstance(function.node, ast.FunctionDef):
            known = found.setdefault(function.name, [])
            known += [] if function.node in known or not is_run_as_written(function) else [function.node]
    return {name: bodies[0] for name, bodies in found.items() if len(bodies) == 1}


def _helpers(region: Region) -> dict[str, ast.FunctionDef]:
    """By name the plain functions that ``region`` runs as they are written; a name with two bodies is left out."""
    found: dict[str, set[ast.FunctionDef]] = {}
    for function in region.functions:
        if function.owner is None and isinstance(function.node, ast.FunctionDef) and is_run_as_written(function):
            found.setdefault(function.name, set()).add(function.node)
    return {name: bodies.pop() for name, bodies in found.items() if len(bodies) == 1}


def _alternates(part: ast.AST) -> bool:
    """Whether it is `count % 2`; with `% self.every`, which may be 1, every run may go the same way."""
    match part:
        case ast.BinOp(op=ast.Mod(), right=ast.Constant(value=int(every))):
            return every > 1
    return False


class _Body:
    """One pass through a function as it runs in one mode: what changes, and what the result is computed from."""

    def __init__(
        self,
        function: ast.FunctionDef | ast.AsyncFunctionDef,
        state: Mapping[str, str],
        training: bool,
        methods: Mapping[str, ast.FunctionDef],
        helpers: Mapping[str, ast.FunctionDef] = MappingProxyType({}),
    ) -> None:
        self._state = state
        self._training = training
        #: What `self.method()` runs, and those that run now.
        self._methods = methods
        #: What a function of the program runs that is called by its name.
        self._helpers = helpers
        self._entered: list[ast.AST] = [function]
        #: By call of such a method what its result is computed from.
        self._returned: dict[ast.Call, Reads] = {}
        #: What each buffer and counter was computed from when it last changed.
        self._held: dict[str, Reads] = {}
        #: Those that hold nothing of what was there before: `self.seen = 0`.
        self._fresh: set[str] = set()
        #: Those that are computed, also by way of others, from what was there before.
        self.moving: set[str] = set()
        arguments = function.args
        #: Names that are the same in both runs.
        self._steady = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        self._written = {
            node.attr
            for node in ast.walk(function)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
        self._locals: dict[str, Reads] = {}
        #: The state that names stand for: `buffer = self.running`, a parameter of a helper that gets it.
        self._aliases: dict[str, str] = {}
        self._step = 0
        self.updates: list[Update] = []
        self.results: Reads = frozenset()
        self._block(function.body, certain=True)

    @property
    def read(self) -> set[str]:
        """The state that the result is computed from."""
        return {name for name, _ in self.results}

    def _block(self, body: Iterable[ast.stmt], certain: bool) -> None:
        for statement in body:
            self._step += 1
            match statement:
                case ast.If():
                    certain = self._branch(statement, certain)
                case ast.For() | ast.AsyncFor():
                    self._bind([statement.target], self._reads(statement.iter))
                    self._perhaps([*statement.body, *statement.orelse], certain)
                case ast.While():
                    self._perhaps(statement.body, certain)
                case ast.With() | ast.AsyncWith():
                    self._block(statement.body, certain)
                case ast.Try():
                    self._block([*statement.body, *statement.orelse, *statement.finalbody], certain)
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    pass
                case _:
                    self._simple(statement, certain)

    def _perhaps(self, body: Iterable[ast.stmt], certain: bool) -> set[str]:
        """Walk what may not run at all; gives what is fresh where it does."""
        before = {*self._fresh}
        self._block(body, certain)
        after, self._fresh = self._fresh, before
        return after

    def _branch(self, node: ast.If, certain: bool) -> bool:
        """Both ways, or the one that the mode takes; gives whether what follows happens in both runs."""
        taken = in_mode(node.test, self._training)
        under = certain and (taken is not None or self._is_steady(node.test))
        if taken is not None:
            self._block(node.body if taken else node.orelse, under)
        else:
            both = self._perhaps(node.body, under) & self._perhaps(node.orelse, under)
            self._fresh |= both
        if taken is None and any(map(_alternates, ast.walk(node.test))):
            self._depends_on(node)
        left = [bool(block) and isinstance(block[-1], _LEAVES) for block in (node.body, node.orelse)]
        if taken is not None:
            return certain and not left[not taken]  # Nothing comes to what follows, or everything does.
        return under if any(left) else certain

    def _depends_on(self, node: ast.If) -> None:
        """What the two ways bind depends on the test, too: every second run takes the other one."""
        asked = self._reads(node.test)
        for part in (part for statement in (*node.body, *node.orelse) for part in ast.walk(statement)):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                self._locals[part.id] = self._locals.get(part.id, frozenset()) | asked

    def _is_steady(self, test: ast.expr) -> bool:
        """Whether both runs see the same: parameters, constants and what nothing here changes in ``self``."""
        for node in ast.walk(test):
            if isinstance(node, ast.Call):
                return False
            if isinstance(node, ast.Attribute) and is_of_self(node) and node.attr in self._written | self._state.keys():
                return False
            if isinstance(node, ast.Name) and node.id not in self._steady:
                return False
        return True

    def _simple(self, statement: ast.stmt, certain: bool) -> None:
        for node in ast.walk(statement):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)) if name in self._methods:
                    self._enter(node, self._methods[name], certain, 1)
                case ast.Call(func=ast.Name(id=name)) if name in self._helpers:
                    self._enter(node, self._helpers[name], certain, 0)
        match statement:
            case ast.Assign(targets=targets, value=value):
                self._assign(statement, targets, value, certain, accumulates=False)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(statement, [target], value, certain, accumulates=False)
            case ast.AugAssign(target=target, value=value):
                self._assign(statement, [target], value, certain, accumulates=True)
            case ast.Return(value=ast.expr() as value):
                self.results |= self._reads(value)
        for node in ast.walk(statement):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                self._method(node, node.func, certain)

    def _enter(self, call: ast.Call, method: ast.FunctionDef, certain: bool, taken: int) -> None:
        """Walk the body of ``method``, of whose parameters ``taken`` are bound, where ``call`` runs it."""
        if method in self._entered:
            return
        outside = self._locals, self._steady, self.results, self._aliases
        names = [argument.arg for argument in (*method.args.posonlyargs, *method.args.args)][taken:]
        given = dict(zip(names, call.args, strict=False)) | {it.arg: it.value for it in call.keywords if it.arg}
        self._locals = {name: self._reads(value) for name, value in given.items()}
        self._aliases = {name: same for name, value in given.items() if (same := self._named(value))}
        self._steady, self.results = set(), frozenset()
        self._entered.append(method)
        self._block(method.body, certain)
        self._entered.pop()
        self._returned[call] = self.results
        self._locals, self._steady, self.results, self._aliases = outside

    def _assign(
        self, node: ast.stmt, targets: list[ast.expr], value: ast.expr, certain: bool, accumulates: bool
    ) -> None:
        reads = self._reads(value)
        for target, given in one_by_one(targets, value):
            held = target.value if isinstance(target, ast.Subscript) and not self._named(target) else target
            is_whole = held is target
            held = held.value if isinstance(held, ast.Attribute) and held.attr == "data" else held
            if isinstance(held, ast.Attribute) and is_whole and not accumulates and keeps(given, held):
                continue
            name = self._named(held)
            if name and not (is_whole and isinstance(held, ast.Name) and not accumulates):
                # What is written at a place that moves stands beside what the first run wrote.
                depends = accumulates or name in {read for read, _ in reads} or self._is_moving_place(target)
                decays = scales(value, name) or (isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult))
                found = Update(name, node, self._step, depends, self._state.get(name, ""), decays)
                self._update(found, certain, reads)
                if certain and is_whole and not depends:
                    self._fresh.add(name)
            elif accumulates and isinstance(held, ast.Name):
                self._bind([held], reads | self._locals.get(held.id, frozenset()))
            else:
                self._bind([target], reads)
                if isinstance(target, ast.Name) and (same := self._named(given)):
                    self._aliases[target.id], self._locals[target.id] = same, frozenset()

    def _named(self, node: ast.expr) -> str:
        """The state that ``node`` is: an attribute of `self`, its `data`, or a name for it; empty for anything else."""
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return name
            case ast.Attribute(value=inner, attr="data"):
                return self._named(inner)
            case ast.Name(id=name):
                return f"global {name}" if f"global {name}" in self._state else self._aliases.get(name, "")
        text = own_place(node)
        return text if text in self._state else ""

    def _is_moving_place(self, target: ast.expr) -> bool:
        """Whether ``target`` is an entry whose number is computed from a counter: `self.queue[self.pointer] = x`."""
        return isinstance(target, ast.Subscript) and any(
            self._state.get(name) in ("counter", "buffer") for name, _ in self._reads(target.slice)
        )

    def _bind(self, targets: list[ast.expr], reads: Reads) -> None:
        for target in targets:
            for node in ast.walk(target):
                if isinstance(node, ast.Name):
                    self._locals[node.id] = reads
                    self._steady.discard(node.id)
                    self._aliases.pop(node.id, None)

    def _method(self, call: ast.Call, method: ast.Attribute, certain: bool) -> None:
        if method.attr not in _ACCUMULATE | _OVERWRITE | CONTAINER_CHANGES:
            return
        changed, is_decayed = method.value, False
        while True:
            match changed:
                case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name.endswith("_"):
                    changed, is_decayed = inner, is_decayed or name in _DECAYING
                case ast.Attribute(value=inner, attr="data"):
                    changed = inner
                case _:
                    break
        name = self._named(changed)
        if name:
            given = frozenset[tuple[str, int]]().union(*(self._reads(argument) for argument in call.args))
            depends = name in {read for read, _ in given}
            accumulates = method.attr in _ACCUMULATE | CONTAINER_CHANGES or depends
            is_decayed = is_decayed or any(scales(argument, name) for argument in call.args)
            decays = method.attr in _DECAYING or is_decayed
            kind = self._state.get(name, "")
            self._update(Update(name, call, self._step, accumulates, kind, decays), certain, given)
            if certain and not depends and method.attr in _FILL and changed is method.value:
                self._fresh.add(name)

    def _update(self, update: Update, certain: bool, reads: Reads) -> None:
        if certain and update.name in self._state:
            if update.accumulates or any(other in self.moving for other, _ in reads):
                self.moving.add(update.name)
            self.updates += [] if update.accumulates and update.name in self._fresh else [update]
            held = self._held.get(update.name, frozenset()) if update.accumulates else frozenset()
            self._held[update.name] = reads | held

    def _reads(self, expression: ast.expr) -> Reads:
        found: set[tuple[str, int]] = set()
        for node in ast.walk(expression):
            name = self._named(node) if isinstance(node, ast.Attribute | ast.Name | ast.Subscript) else ""
            if name in self._state:
                found |= set() if name in self._fresh else {(name, self._step)}
                found |= self._held.get(name, frozenset())
            elif isinstance(node, ast.Call) and node in self._returned:
                found |= self._returned[node]
            elif isinstance(node, ast.Name):
                found |= self._locals.get(node.id, frozenset())
        return frozenset(found)
