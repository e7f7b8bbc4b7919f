"""Choices that a replay does not make again: which experts a token goes to, which keys a query looks at.

Where a kernel gives other last bits in backward, a router's logits would choose other experts there, and gradients go
through what the forward never ran. A trace keeps the chosen indices by itself (``tracing/choices.py``). Where a module
is replayed as it is, its choices are seen below autograd: a forward notes the indices, a replay makes them again and
goes on with the noted ones, so that autograd saves these too. Values come from the rebuilt input at the noted indices.
A function with a cache (``functools.lru_cache``) may choose in one of the two and not in the other. Where one is run,
all choices are made again.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_iter

from ..op_catalogue import traits_of
from .readings import copied
from .tracing.cached_results import cached_functions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    from torch import nn

    from .saved_tensor_hooks import Hooks

    #: The sizes of the tensors that a forward was given, by place and number of dimensions.
    Sizes = Mapping[tuple[int, int], tuple[int, ...]]
    #: What an op was asked: its name, the shape of what it compared, and its arguments (how many, of which dimension).
    _Question: TypeAlias = tuple[Any, ...]

#: Of each module whether its forwards chose so far, and the largest sizes that they were given.
_known: WeakKeyDictionary[nn.Module, tuple[bool, Sizes]] = WeakKeyDictionary()
#: Of each module the functions with a cache that it may call.
_cached: WeakKeyDictionary[nn.Module, list[Any]] = WeakKeyDictionary()


class _Choice(NamedTuple):
    """What one op chose: what it was asked, and the handle that the hooks in force gave for the indices."""

    question: _Question
    indices: Any


class KeptChoices:
    """The choices of one forward of ``module``, for all replays of that forward.

    Indices go through ``hooks``, as all saved tensors do: whoever counts or offloads these has them too. A module that
    was seen to choose nothing is watched again only when it is given larger tensors than before.
    """

    __slots__ = ("_choices", "_give_back", "_keep", "_module")

    def __init__(self, module: nn.Module | None, hooks: Hooks) -> None:
        self._module = module
        self._choices: list[_Choice] = []
        self._keep, self._give_back = hooks

    @contextmanager
    def noted(self, args: tuple[Any, ...]) -> Iterator[None]:
        """Note what the forward, which is given ``args``, chooses inside."""
        if _chooses_nothing(self._module, args):
            yield
            return
        chosen: list[tuple[_Question, torch.Tensor]] = []
        misses = _misses(self._module)
        # A copy, because the layer may write to its own.
        with _Noting(lambda question, indices: chosen.append((question, copied(indices)))):
            yield
        if self._module is not None:
            _note(self._module, args, chooses=bool(chosen))
        if _misses(self._module) != misses:
            return
        # Only now: a hook may be another checkpoint's, which ends its replay by raising.
        self._choices = [_Choice(question, self._keep(indices)) for question, indices in chosen]

    @contextmanager
    def handed_on(self) -> Iterator[None]:
        """Let a replay go on with the noted choices."""
        if not self._choices:
            yield
            return
        with _HandingOn(self._choices, self._give_back, self._module):
            yield


@contextmanager
def counted_choices(module: nn.Module, args: tuple[Any, ...], count: Callable[[int], None]) -> Iterator[None]:
    """Tell ``count`` the bytes of each choice that a forward of ``module``, which is given ``args``, makes inside."""
    if _chooses_nothing(module, args):
        yield
        return
    with _Noting(lambda _, indices: count(indices.nbytes)):
        yield


class _OverOps(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every op below autograd, higher-order ones too, and leaves compiled code alone."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Whether compiled code stays compiled inside."""
        return True


class _Noting(_OverOps):  # type: ignore[no-untyped-call]
    """Calls ``chose`` with what each op that chooses was asked, and the indices."""

    def __init__(self, chose: Callable[[_Question, torch.Tensor], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._chose = chose

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if _may_choose(func) and (indices := _indices(args, result)) is not None:
            self._chose(_question(func, args, kwargs or {}), indices)
        return result


class _HandingOn(_OverOps):  # type: ignore[no-untyped-call]
    """``choices`` in the order in which they were made; from one on that was asked something else, none."""

    def __init__(
        self, choices: list[_Choice], give_back: Callable[[Any], torch.Tensor], module: nn.Module | None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._left = iter(choices)
        self._give_back = give_back
        self._module = module
        self._misses = _misses(module)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not _may_choose(func) or (indices := _indices(args, result)) is None:
            return result
        choice = next(self._left, None)
        if choice is None or choice.question != _question(func, args, kwargs or {}) or self._a_function_is_run():
            self._left = iter(())
            return result
        noted = self._give_back(choice.indices)
        if noted.shape != indices.shape:
            self._left = iter(())
            return result
        noted = copied(noted)
        if isinstance(result, torch.Tensor):
            return noted
        return _values(func, args, kwargs or {}, result[0], noted), noted

    def _a_function_is_run(self) -> bool:
        """Whether the replay called a function whose cache had no result for it, so that this choice may be its."""
        return _misses(self._module) != self._misses


@cache
def _may_choose(func: Any) -> bool:
    """Whether the op is one that chooses, and writes to no tensor of its caller's."""
    return isinstance(func, torch._ops.OpOverload) and traits_of(str(func)).chooses and not func._schema.is_mutable


def _question(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> _Question:
    given = (*args, *kwargs.items())
    return str(func), *(tuple(value.shape) if isinstance(value, torch.Tensor) else value for value in given)


def _indices(args: tuple[Any, ...], result: Any) -> torch.Tensor | None:
    """What an op that was given ``args`` chose by comparing floats; None where it compared something else."""
    compared = next((value for value in tree_iter(args) if isinstance(value, torch.Tensor)), None)
    if compared is None or not compared.is_floating_point():
        return None
    indices = result[-1] if isinstance(result, tuple | list) else result
    plain = (torch.Tensor, torch.nn.Parameter)  # a subclass brings rules of its own
    if type(compared) not in plain or type(indices) not in plain or indices.dtype is not torch.int64:
        return None
    chosen: torch.Tensor = indices
    return chosen


def _values(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], values: torch.Tensor, indices: torch.Tensor
) -> torch.Tensor:
    """The first result of ``func``, which lies in memory as ``values``, at ``indices``."""
    compared = args[0]
    if not compared.dim():
        return values
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    arguments = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()} | given
    dim = arguments["dim"]
    # Selective checkpointing counts the ops of a replay, and these are none of them (torch/utils/checkpoint.py).
    with _disable_current_modes():
        if arguments.get("keepdim", True):
            taken = compared.gather(dim, indices)
        else:
            taken = compared.gather(dim, indices.unsqueeze(dim)).squeeze(dim)
        return taken if taken.stride() == values.stride() else torch.empty_like(values).copy_(taken)


def _misses(module: nn.Module | None) -> int:
    """How often a function that ``module`` may call had no result in its cache; one that is run is counted."""
    if module is None:
        return 0
    if module not in _cached:
        _cached[module] = cached_functions(module)
    return sum(function.cache_info().misses for function in _cached[module])


def _chooses_nothing(module: nn.Module | None, args: tuple[Any, ...]) -> bool:
    """Whether forwards of ``module`` that were given as much chose nothing."""
    if module is None or module not in _known:
        return False
    chooses, largest = _known[module]
    return not chooses and all(
        key in largest and all(size <= most for size, most in zip(shape, largest[key], strict=True))
        for key, shape in _sizes(args).items()
    )


def _note(module: nn.Module, args: tuple[Any, ...], *, chooses: bool) -> None:
    chose, largest = _known.get(module, (False, {}))
    sizes = {key: tuple(map(max, shape, largest.get(key, shape))) for key, shape in _sizes(args).items()}
    _known[module] = chose or chooses, {**largest, **sizes}


def _sizes(args: tuple[Any, ...]) -> Sizes:
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    return {(place, tensor.dim()): tuple(tensor.shape) for place, tensor in enumerate(tensors)}
