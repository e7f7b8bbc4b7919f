"""Regions that torch checkpoints: calls of its functions, modules that its wrappers go around."""

from __future__ import annotations

import ast

from ...facts.objects.numbers import settled_number
from ...facts.straight import only_call
from ...facts.values import ABSENT, Absent, Function, Partial, Ref, Value, equals, options
from ..variant import torch_reentrant
from .event import CallEvent


class Checkpointing(CallEvent):
    """Something becomes a region whose activations are recomputed."""

    __slots__ = ()

    @property
    def reentrant(self) -> bool | None:
        """Whether the reentrant variant runs."""
        raise NotImplementedError


class FunctionCheckpoint(Checkpointing):
    """A call that runs a function on its inputs now, and again in the backward pass, whichever library it is of."""

    __slots__ = ()

    @property
    def function(self) -> Value:
        """What is checkpointed."""
        return self.call.argument(0, "function")

    @property
    def inputs(self) -> list[Value]:
        """The positional inputs of the function."""
        return self.call.args[1:]

    @property
    def function_kwargs(self) -> dict[str, Value]:
        """The keyword arguments meant for the function."""
        return self.call.kwargs


class TorchCheckpoint(Checkpointing):
    """A call of torch's own checkpoint functions."""

    __slots__ = ()
    words = ("utils.checkpoint",)

    @property
    def use_reentrant(self) -> Value:
        """The argument; ABSENT when it is certainly not given."""
        return self.call.keyword("use_reentrant")

    @property
    def is_looked_up(self) -> bool:
        """Whether the function comes out of a call: `getattr(torch.utils.checkpoint, "checkpoint")`."""
        return isinstance(self.call.func.node, ast.Call)

    @property
    def reentrant(self) -> bool | None:
        """Whether the reentrant variant runs."""
        return torch_reentrant(self.use_reentrant)


class Checkpoint(TorchCheckpoint, FunctionCheckpoint):
    """``torch.utils.checkpoint.checkpoint(fn, *args)``, directly, through a partial or a rebound name."""

    __slots__ = ()
    #: Keywords that belong to `checkpoint` itself (the last one from torch 2.14 on); others go to the function.
    OWN = (
        "function",
        "use_reentrant",
        "context_fn",
        "determinism_check",
        "debug",
        "early_stop",
        "preserve_rng_state",
        "respect_saved_tensors_hooks",
    )

    @property
    def function_kwargs(self) -> dict[str, Value]:
        """The keyword arguments meant for the function."""
        return {name: value for name, value in self.call.kwargs.items() if name not in self.OWN}


class LayerCheckpoint(CallEvent):
    """``self._gradient_checkpointing_func(layer.__call__, *args)``: transformers puts torch's checkpoint there."""

    __slots__ = ()
    words = ("_gradient_checkpointing_func",)

    @property
    def function(self) -> Value:
        """What is checkpointed."""
        return self.call.argument(0)


class CheckpointSequential(TorchCheckpoint):
    """``torch.utils.checkpoint.checkpoint_sequential(functions, segments, input)``."""

    __slots__ = ()
    words = ("checkpoint_sequential",)

    @property
    def functions(self) -> Value:
        """The modules run one after the other."""
        return self.call.argument(0, "functions")

    @property
    def segments(self) -> Value:
        """How many parts they are cut into."""
        return settled_number(self.call.argument(1, "segments"))

    @property
    def input(self) -> Value:
        """What the first of them gets."""
        return self.call.argument(2, "input")

    @property
    def use_reentrant(self) -> Value:
        """The argument, which may stand fourth; ABSENT when it is certainly not given."""
        return self.call.argument(3, "use_reentrant")


class CheckpointPartial(CallEvent):
    """``functools.partial(checkpoint, ...)``."""

    __slots__ = ()
    words = (*TorchCheckpoint.words, "utils as")


class WrapperCheckpointing(Checkpointing):
    """Torch's ``CheckpointWrapper`` modules are put into a model."""

    __slots__ = ()

    @property
    def module(self) -> Value:
        """The module that is wrapped, or whose submodules are."""
        raise NotImplementedError


class CheckpointWrap(WrapperCheckpointing):
    """``checkpoint_wrapper(module, ...)`` of ``torch.distributed.algorithms``; non-reentrant unless told otherwise."""

    __slots__ = ()
    words = ("checkpoint_wrapper",)

    @property
    def module(self) -> Value:
        """The module that is wrapped."""
        return self.call.argument(0, "module")

    @property
    def reentrant(self) -> bool | None:
        """Whether the reentrant variant runs."""
        return wrapper_reentrant(self.call.argument(1, "checkpoint_impl"))


class BlockWrapping(WrapperCheckpointing):
    """Those blocks of a model that a check or a policy accepts go into wrappers, in place."""

    __slots__ = ()

    @property
    def model(self) -> Value:
        """The model whose submodules are wrapped in place."""
        raise NotImplementedError

    @property
    def module(self) -> Value:
        """The model."""
        return self.model

    @property
    def check(self) -> Value:
        """Which submodules are wrapped, by a check or by a policy of FSDP; ABSENT for the default, all of them."""
        raise NotImplementedError

    @property
    def wraps_all(self) -> bool:
        """Whether neither a check nor a policy says which submodules are wrapped."""
        return isinstance(self.check, Absent)


class ApplyCheckpointing(BlockWrapping):
    """``apply_activation_checkpointing(model, checkpoint_wrapper_fn, check_fn)``."""

    __slots__ = ()
    words = ("apply_activation_checkpointing",)

    @property
    def model(self) -> Value:
        """The model whose submodules are wrapped in place."""
        return self.call.argument(0, "model")

    @property
    def wrapper(self) -> Value:
        """What wraps each of them; ABSENT for the default, `checkpoint_wrapper`."""
        return self.call.argument(1, "checkpoint_wrapper_fn")

    @property
    def check(self) -> Value:
        """Which submodules are wrapped, by a check or by a policy of FSDP; ABSENT for the default, all of them."""
        policy = self.call.argument(3, "auto_wrap_policy")
        # torch asks a policy first.
        is_given = not isinstance(policy, Absent) and equals(policy, None) is not True
        return policy if is_given else self.call.argument(2, "check_fn")

    @property
    def reentrant(self) -> bool | None:
        """Whether the wrappers are reentrant."""
        answers = set()
        for wrapper in options(self.wrapper):
            if isinstance(wrapper, Partial) and not wrapper.open_kwargs:
                answers.add(wrapper_reentrant(wrapper.kwargs.get("checkpoint_impl", ABSENT)))
            elif isinstance(wrapper, Function) and (call := only_call(wrapper.node)) is not None:
                answers.add(_written_reentrant(call))
            else:
                answers.add(False if isinstance(wrapper, Absent) or names_wrapper(wrapper) else None)
        return answers.pop() if len(answers) == 1 else None


def _written_reentrant(call: ast.Call) -> bool | None:
    """The same for `lambda module: checkpoint_wrapper(module, checkpoint_impl=...)`, as it is written."""
    if not ast.unparse(call.func).endswith("checkpoint_wrapper") or len(call.args) != 1:
        return None
    written = {word.arg: word.value for word in call.keywords}
    if None in written:
        return None
    match written.get("checkpoint_impl"):
        case None:
            return False
        case ast.Attribute(attr="REENTRANT" | "NO_REENTRANT" as name):
            return name == "REENTRANT"
    return None


def wrapper_reentrant(implementation: Value) -> bool | None:
    """Whether a ``checkpoint_impl`` is the reentrant one; the default is not."""
    answers: set[bool | None] = set()
    for option in options(implementation):
        match option:
            case Absent():
                answers.add(False)
            case Ref(name) if name.endswith(("CheckpointImpl.REENTRANT", "CheckpointImpl.NO_REENTRANT")):
                answers.add(name.endswith(".REENTRANT"))
            case _:
                answers.add(None)
    return answers.pop() if len(answers) == 1 else None


def names_wrapper(value: Value) -> bool:
    """Whether ``value`` is torch's ``checkpoint_wrapper`` itself."""
    return isinstance(value, Ref) and value.name.endswith("checkpoint_wrapper.checkpoint_wrapper")
