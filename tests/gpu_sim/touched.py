"""Reports what every op reads and writes to the simulated card, which then knows a stream that does so too early."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_RUNTIME = ctypes.CDLL(None)
_COPIES = (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)
#: Their schemas say that they write their argument; they touch none of its memory.
_ONLY_METADATA = (
    torch.ops.aten.record_stream.default,
    torch.ops.aten.set_.source_Storage,
    torch.ops.aten.set_.source_Storage_storage_offset,
)
_NAMES: dict[str, bytes] = {}  # the card keeps the address of each


class Touched(TorchDispatchMode):
    """While it is on, :func:`.counters.order_errors` tells of every use of memory that no event orders."""

    def __enter__(self) -> Any:
        _RUNTIME.sim_watch_order(1)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        _RUNTIME.sim_watch_order(0)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        # A copy between host and device is one of the runtime's, which reports it itself.
        if not func.is_view and func not in _ONLY_METADATA and not (func in _COPIES and _crosses(args, out)):
            written = {id(t) for t in _tensors(_mutated(func, args, kwargs))}
            read = {t.untyped_storage().data_ptr() for t in _tensors((args, kwargs))}
            for tensor in _tensors((args, kwargs)):
                _touch(func, tensor, writes=id(tensor) in written)
            for tensor in _tensors(out):
                if tensor.untyped_storage().data_ptr() not in read:
                    _touch(func, tensor, writes=True)
        return out


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    found = (value for value in tree_iter(values) if type(value) in (torch.Tensor, torch.nn.Parameter))
    # A fake tensor claims a real device; its storage says meta.
    yield from (tensor for tensor in found if tensor.is_cuda and tensor.untyped_storage().device.type == "cuda")


def _crosses(args: tuple[Any, ...], out: Any) -> bool:
    return len({value.device.type for value in tree_iter((args, out)) if isinstance(value, torch.Tensor)}) > 1


def _mutated(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
    named = zip(func._schema.arguments, args, strict=False)
    given = [(argument, value) for argument, value in named]
    given += [(argument, kwargs[argument.name]) for argument in func._schema.arguments if argument.name in kwargs]
    return [value for argument, value in given if argument.alias_info is not None and argument.alias_info.is_write]


def _touch(func: Callable[..., Any], tensor: torch.Tensor, *, writes: bool) -> None:
    storage, name = tensor.untyped_storage(), str(func)
    text = _NAMES.setdefault(name, name.encode())
    stream = torch.cuda.current_stream(tensor.device).cuda_stream
    _RUNTIME.sim_touched(
        ctypes.c_void_p(stream), ctypes.c_void_p(storage.data_ptr()), ctypes.c_size_t(storage.nbytes()),
        ctypes.c_int(writes), ctypes.c_char_p(text),
    )  # fmt: skip
