"""Whether what a checkpoint hands over can be bound to the function or module that it runs."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import is_inside
from ...facts.objects.classes import ancestors, is_run_as_written, method_of
from ...facts.values import Class, Function, Instance, Method, Ref, Result
from ..branches.parting import are_switches
from ..events import Checkpoint
from ..flow.mentions import attributes_in
from ..names import canonical
from .call_targets import CallTarget, call_targets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ...facts.values import Place, Value
    from ..run import Run

#: What changes the arguments of a module on their way to its `forward`.
_HOOKS = ("register_forward_pre_hook", "register_module_forward_pre_hook", "_forward_pre_hooks", "add_hook_to_module")
#: Contexts that let an error through.
_WITHOUT_ERRORS = ("torch.", "contextlib.nullcontext")
#: What expects the error: contexts of pytest, unittest and contextlib.
_EXPECTING = ("raises", "assertRaises", "assertRaisesRegex", "suppress", "xfail")
#: What a class may give a say in how its objects are made, looked into or called.
_SPECIAL = frozenset(("__call__", "_call_impl", "__new__", "__init_subclass__", "__getattr__", "__getattribute__"))
#: In the name of a class that others derive from, which may be in other files.
_TO_DERIVE = ("Base", "Abstract", "Mixin", "_Base")


def misfit_of_block(run: Run, event: Checkpoint) -> str | None:
    """Why what ``event`` gives cannot be bound to the function or module that it checkpoints.

    Returns:
        The end of a sentence; None when it can be bound, when something may change what is run or what it gets, and
        when something decides first whether to come there.
    """
    own = _own_method(run, event)
    target = own or _certain_target(run, event)
    if target is None or event.place.tries or may_expect_error(run, event.place):
        return None
    if event.place.guards and own is None:
        return None
    call, arguments = event.call, target.function.node.args
    given = {name for name in call.kwargs if name not in Checkpoint.OWN}
    if call.is_given_elsewhere(Checkpoint.OWN) or call.open_args or call.open_kwargs:
        return None
    # The reentrant variant refuses every keyword argument before it comes to the function (CKPT301).
    if given and event.reentrant is not False:
        return None
    names, count = target.parameters(), len(call.args) - 1
    by_position_only = {argument.arg for argument in arguments.posonlyargs}
    if count > len(names) and not arguments.vararg:
        return f"takes {len(names)} arguments, not {count}"
    twice = next((name for name in names[:count] if name in given - by_position_only), None)
    if twice is not None:
        return f"gets `{twice}` twice"
    known = {*names, *(argument.arg for argument in arguments.kwonlyargs)} - by_position_only
    unknown = next((name for name in call.kwargs if name in given - known), None)
    if unknown is not None and not arguments.kwarg:
        return f"has no parameter `{unknown}`"
    required = len(names) - min(len(arguments.defaults), len(names))
    missing = [name for name in names[count:required] if name not in given - by_position_only]
    return f"needs `{missing[0]}`" if missing else None


def _certain_target(run: Run, event: Checkpoint) -> CallTarget | None:
    """The function that the checkpoint runs, where nothing in the program may put another in its place."""
    targets, written = list(call_targets(event.function)), event.node.args[0] if event.node.args else None
    if len(targets) != 1 or not is_run_as_written(targets[0].function) or _only_raises(targets[0].function):
        return None
    match event.function:
        case Function(owner=None):
            return targets[0] if isinstance(written, ast.Name | ast.Lambda) else None
        case Instance() | Method(receiver=Instance()):
            module = event.function if isinstance(event.function, Instance) else event.function.receiver
            is_kept = not may_be_replaced(run, targets[0].function.name) and not is_derived_from(run, event)
            return targets[0] if is_kept and _is_plain_module(module) else None
    return None


def _own_method(run: Run, event: Checkpoint) -> CallTarget | None:
    """The method that a class checkpoints of itself, `checkpoint(self._forward, ...)`, where no other may be meant.

    Only a switch of checkpointing may decide whether to come there: another condition may tell derived classes apart.
    """
    match event.function:
        case Method(receiver=Instance(cls=cls, call=None), function=function):
            family = (cls, *ancestors(cls))
            own = method_of(cls, function.name) is function and is_inside(event.node, cls.node)
            plain = not (_are_changed(family) or _is_stub(function)) and is_run_as_written(function)
            kept = _has_nothing_special(family) and not may_be_replaced(run, function.name)
            plain = plain and not cls.name.startswith(_TO_DERIVE) and not cls.name.endswith(_TO_DERIVE)
            is_certain = own and plain and kept and are_switches(event.place) and not is_derived_from(run, event)
            return CallTarget(function, 1) if is_certain else None
    return None


def _is_plain_module(module: Value) -> bool:
    """Whether ``module`` is made here of a class that is named, derives from `nn.Module` alone and calls as that does.

    `self` and what an annotation says may be of a class derived from it.
    """
    if not isinstance(module, Instance) or module.call is None:
        return False
    maker, classes = module.call.naming.func, (module.cls, *ancestors(module.cls))
    if not isinstance(maker, ast.Name) or maker.id != module.cls.name:
        return False
    bases = [base for owner in classes for base in owner.bases]
    imported = [base for base in bases if not isinstance(base, Class)]
    return (
        bool(imported)
        and all(isinstance(base, Ref) and canonical(base.name) == "torch.nn.Module" for base in imported)
        and not _are_changed(classes)
        and _has_nothing_special(classes)
    )


def _are_changed(classes: Iterable[Class]) -> bool:
    """Whether a decorator, or a metaclass, may make something else of one of ``classes``."""
    return any(owner.node.decorator_list or owner.node.keywords for owner in classes)


def _has_nothing_special(classes: Iterable[Class]) -> bool:
    return _SPECIAL.isdisjoint(name for owner in classes for name in (*owner.body, *owner.fields))


def _only_raises(function: Function) -> bool:
    """Whether it stands for those of derived classes, which may take something else."""
    body = function.node.body
    return isinstance(body, list) and any(isinstance(statement, ast.Raise) for statement in body)


def _is_stub(function: Function) -> bool:
    """Whether it does nothing but say what derived classes have: raises, returns nothing, a docstring alone."""
    body = function.node.body
    if not isinstance(body, list):
        return False
    return _only_raises(function) or all(isinstance(statement, ast.Expr | ast.Pass) for statement in body)


def may_be_replaced(run: Run, method: str) -> bool:
    """Whether the program may set the attribute ``method`` of a module, or change what its `forward` gets."""
    attributes = attributes_in(run.program)
    return attributes.may_set(method) or not attributes.read.isdisjoint(_HOOKS)


def is_derived_from(run: Run, event: Checkpoint) -> bool:
    """Whether a class of the program derives from the one around ``event``: it may put another module in the place."""
    around = [cls for cls in run.program.classes if is_inside(event.node, cls.node)]
    return any(cls in around for other in run.program.classes for cls in ancestors(other))


def may_expect_error(run: Run, place: Place) -> bool:
    """Whether a context around ``place``, or one that the program has somewhere, may be there for the error."""
    others = (
        context
        for context in place.contexts
        if not isinstance(context, Result) or not canonical(context.call.name).startswith(_WITHOUT_ERRORS)
    )
    return any(True for _ in others) or not attributes_in(run.program).read.isdisjoint(_EXPECTING)
