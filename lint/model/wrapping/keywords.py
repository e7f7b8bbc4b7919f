"""Keywords that torch's `checkpoint_wrapper` is given, and those that go to the module, as no function knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.parameters import parameter_names
from ...facts.values import Function, Instance, Partial, is_absent, is_given, options
from ..calls.call_targets import call_targets
from ..events import ApplyCheckpointing, Checkpoint, names_wrapper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..events import CheckpointWrap
    from ..run import Run

#: Its own, and one that has a rule (CKPT312).
_KNOWN = ("module", "checkpoint_impl", "checkpoint_fn", "offload_to_cpu", *Checkpoint.OWN)


def partials_with(run: Run, keyword: str) -> Iterator[tuple[ApplyCheckpointing, Partial]]:
    """The partials of `checkpoint_wrapper` with this keyword that torch applies to the modules of a model."""
    for apply in run.of(ApplyCheckpointing):
        for wrapper in options(apply.wrapper):
            if isinstance(wrapper, Partial) and names_wrapper(wrapper.func) and keyword in wrapper.kwargs:
                yield apply, wrapper


def refused_keyword(run: Run, wrap: CheckpointWrap) -> tuple[str, str] | None:
    """A keyword that fails when the wrapped module first runs, and the error; None where it may be taken.

    The reentrant variant refuses every keyword, the other one hands it to a module that may have such a parameter.
    """
    other = is_absent(wrap.call.argument(2, "checkpoint_fn"))
    if other is False or (other is None and not _gets_module_alone(run, wrap)):
        return None
    given = (name for name in wrap.call.kwargs if name not in _KNOWN and is_given(wrap.call, name))
    name = next(given, None)
    if name is None or wrap.reentrant is None:
        return None
    if wrap.reentrant:
        return name, "a ValueError"
    targets = list(call_targets(wrap.module)) if isinstance(wrap.module, Instance) else []
    taken = any(it.function.node.args.kwarg or name in parameter_names(it.function.node) for it in targets)
    return (name, "a TypeError") if targets and not taken else None


def _gets_module_alone(run: Run, wrap: CheckpointWrap) -> bool:
    """Whether ``wrap`` stands in a function that torch calls with a module alone, so that `**options` are none."""
    around = wrap.place.function
    wrappers = (option for apply in run.of(ApplyCheckpointing) for option in options(apply.wrapper))
    return around is not None and any(isinstance(it, Function) and it.node is around.node for it in wrappers)
