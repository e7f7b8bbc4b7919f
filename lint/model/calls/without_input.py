"""Checkpoints that give no input, which run at once what they were given, as if `checkpoint(block)` wrapped it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ...facts.nodes import all_nodes, attribute, source_text
from ...facts.objects.classes import is_run_as_written
from ...facts.values import Function, Method, Partial, Ref, Result, Seq, options
from ..flow.handlers import catches
from ..names import canonical
from .block_arguments import may_be_replaced, may_expect_error
from .call_targets import call_targets
from .put_back import is_put_back

if TYPE_CHECKING:
    from ...facts.values import Place, Value
    from ..events import Checkpoint
    from ..run import Run

#: How the names end of what in `torch.nn` is no layer, or hands on whatever it gets.
_WITHOUT_INPUT = ("Module", "Parallel", "Parameter", "Buffer", "List", "Dict")
_CATCH = ("TypeError", "Exception", "BaseException")


def lacks_input(run: Run, event: Checkpoint) -> bool:
    """Whether ``event`` gives no input to what certainly takes one, or was to wrap: it runs that at once.

    It was to wrap when its result goes to where the function or the module came from, as in
    `self.conv = checkpoint(self.conv)`.
    """
    block = written_block(event)
    if block is None or event.inputs or event.call.open_args or event.call.open_kwargs or event.function_kwargs:
        return False
    if _takes_none(event.function) or may_expect_error(run, event.place):
        return False
    if not event.place.tries and _needs_input(run, event, block):
        return True
    return is_put_back(run, event.call, block)


def written_block(event: Checkpoint) -> ast.expr | None:
    """What is checkpointed, as it is written in the call."""
    written = event.call.written_arguments(["function"]).get("function")
    return None if isinstance(written, ast.Starred) else written


def swallowed_by(place: Place) -> ast.ExceptHandler | None:
    """The handler that catches a TypeError raised at ``place`` and goes on."""
    handlers = (handler for block in place.tries for handler in block.handlers)
    caught = next((handler for handler in handlers if catches(handler, *_CATCH)), None)
    raised = caught is not None and any(isinstance(node, ast.Raise) for node in all_nodes(caught))
    return None if raised else caught


def has_fallback(handler: ast.ExceptHandler) -> bool:
    """Whether the handler may checkpoint in another way."""
    return any("checkpoint" in source_text(node) for node in handler.body if not _is_said(node))


def _is_said(statement: ast.stmt) -> bool:
    """Whether the statement only reports: `logger.warning(f"no checkpointing: {error}")`."""
    match statement:
        case ast.Expr(ast.Call(func=ast.Name(id="print"))):
            return True
        case ast.Expr(ast.Call(func=ast.Attribute(attr=name))):
            return name in ("debug", "info", "warning", "warn", "error", "exception")
    return False


def _takes_none(function: Value) -> bool:
    """Whether it may be right to run it without an input: it asks for none, or something may give it one."""
    for option in options(function):
        plain = option.function if isinstance(option, Method) else option
        if isinstance(plain, Partial) or (isinstance(plain, Function) and not is_run_as_written(plain)):
            return True
    return any(len(target.parameters()) <= len(target.function.node.args.defaults) for target in call_targets(function))


def _needs_input(run: Run, event: Checkpoint, block: ast.expr) -> bool:
    """Whether it is a layer of torch, made so or asked for by `isinstance`."""
    if may_be_replaced(run, "forward"):
        return False
    if any(guard.taken and _is_of_torch(run, guard.test, block) for guard in event.place.guards):
        return True
    return not event.place.guards and isinstance(event.function, Result) and _is_layer(event.function.call.name)


def _is_of_torch(run: Run, test: ast.AST, block: ast.expr) -> bool:
    """Whether ``test`` is `isinstance(block, nn.Linear)`; ``block`` may be the `forward` of what it asks about."""
    named = attribute(block)
    module = named.value if named is not None and named.attr == "forward" else block
    match test:
        case ast.Call(func=ast.Name(id="isinstance"), args=[asked, _]) if source_text(asked) == source_text(module):
            return any(_are_layers(call.args[1]) for call in run.calls_at(test) if len(call.args) == 2)
    return False


def _are_layers(kinds: Value) -> bool:
    match kinds:
        case Seq(items=items):
            return bool(items) and all(_are_layers(item) for item in items)
        case Ref(name):
            return _is_layer(name)
    return False


def _is_layer(name: str) -> bool:
    name = canonical(name)
    return name.rpartition(".")[0] == "torch.nn" and name[9:10].isupper() and not name.endswith(_WITHOUT_INPUT)
