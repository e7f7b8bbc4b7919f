"""A slice as one Python function: straight-line calls of kernels, each tensor dropped after its last use.

``rebuild(P, I, K, C, S, R)`` takes parameters, inputs, held tensors and constants (each a sequence, in the order of the
slice; held tensors in the order they were packed), the values of the symbols, and the random state before each run of
draws; it returns the rebuilt packs in order. ``tell_rebuilt(T, P, I, K, C, S, R)`` returns nothing: it calls
``T(place, pack)`` with each of them, and goes on with what that returns in its stead, which must be equal.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from ...op_catalogue import traits_of
from ..random_state import set_random_state
from ..tracing.ir import Ref, SizeRef
from ..tracing.split_ops import SECOND_HALVES
from ..tracing.symbols import source_of
from .draws import draw_runs
from .fast_ops import ROW_MAJOR, kernel_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from ..tracing.ir import Trace, TracedOp, Value
    from .slicing import Slice

    Rebuild: TypeAlias = Callable[..., list[torch.Tensor]]
    TellRebuilt: TypeAlias = Callable[..., None]


def window(base: torch.Tensor, shape: Sequence[int], stride: Sequence[int], offset: int) -> torch.Tensor:
    """A view of the storage behind ``base``, with ``offset`` elements counted from where ``base`` starts."""
    return base.as_strided(shape, stride, base.storage_offset() + offset)


class Writer:
    """Writes the source of one slice; ``held_packs`` gives, for each source buffer, the pack that stands for it."""

    def __init__(self, trace: Trace, piece: Slice, held_packs: Mapping[int, int]) -> None:
        self._trace = trace
        self._piece = piece
        sources = sorted(piece.sources, key=held_packs.__getitem__)
        self._held = {buffer: (k, held_packs[buffer]) for k, buffer in enumerate(sources)}
        self._inputs = {origin: k for k, origin in enumerate(piece.inputs)}
        self._parameters = {origin: k for k, origin in enumerate(piece.parameters)}
        self._lines: list[tuple[str, str]] = []  # (variable assigned or "", expression)
        self._uses: dict[str, int] = {}  # variable -> line of its last use
        self._known: dict[Ref, str] = {}
        self._written: dict[str, str] = {}  # an expression -> its variable
        self._twins: dict[int, str] = {}  # a value whose expression was written before -> that variable
        self._returned = {ref.buffer for ref in piece.targets}
        storages = [buffer.storage for buffer in trace.buffers]
        self._rewritten = {storage for storage in storages if storages.count(storage) > 1}
        self._runs = {run.first: (k, run.device) for k, run in enumerate(draw_runs(trace, set(piece.ops)))}
        self._halves: set[int] = set()
        self._read: set[str] = set()  # variables that the op being written reads
        self.namespace: dict[str, Any] = {
            "as_strided": torch.as_strided,
            "window": window,
            "math": math,
            "set_random_state": set_random_state,
            "torch": torch,
        }
        for index in piece.ops:
            if index not in self._halves:
                self._write_op(index)
        self._results = [self._variable(ref) for ref in piece.targets]

    def compile(self) -> Rebuild:
        """The function."""
        kept = set(self._results)
        end = f"    return [{', '.join(self._results)}]"
        function: Rebuild = self._compiled("rebuild", self._source("rebuild(P, I, K, C, S, R)", kept, {}, end))
        return function

    @cached_property
    def tell_rebuilt(self) -> TellRebuilt:
        """The function that tells of each pack as soon as it is there."""
        made = {name: line for line, (names, _) in enumerate(self._lines) for name in names.replace(",", "").split()}
        tells: dict[int, list[str]] = {}
        last, kept = [], set[str]()
        for place, (ref, name) in enumerate(zip(self._piece.targets, self._results, strict=True)):
            # A storage that is written again may be written through another variable.
            if name not in made or self._trace.buffers[ref.buffer].storage in self._rewritten:
                kept.add(name)
                last.append(f"    T({place}, {name})")
            else:
                tells.setdefault(made[name], []).append(f"    {name} = T({place}, {name})")
        end = "\n".join([*last, "    return"])
        source = self._source("tell_rebuilt(T, P, I, K, C, S, R)", kept, tells, end)
        function: TellRebuilt = self._compiled("tell_rebuilt", source)
        return function

    def _compiled(self, name: str, source: str) -> Any:
        exec(compile(source, f"<rebuild of {self._trace.class_name}>", "exec"), self.namespace)
        function = self.namespace.pop(name)
        function.__doc__ = source
        return function

    def _source(self, signature: str, kept: set[str], after: Mapping[int, Sequence[str]], end: str) -> str:
        """The function's lines, with some ``after`` those of these numbers; variables but ``kept`` are dropped."""
        symbols = [binding.symbol for binding in self._trace.guards.bindings]
        lines = [f"def {signature}:"]
        if any(symbol in expression for symbol in symbols for _, expression in self._lines):
            lines.append(f"    {', '.join(symbols)}, = S")
        dying: dict[int, list[str]] = {}
        for variable, line in self._uses.items():
            if variable not in kept:
                dying.setdefault(line, []).append(variable)
        for number, (variable, expression) in enumerate(self._lines):
            lines.append(f"    {variable} = {expression}" if variable else f"    {expression}")
            lines += after.get(number, ())
            if number in dying:
                lines.append(f"    del {', '.join(dying[number])}")
        lines.append(end)
        return "\n".join(lines)

    def _write_op(self, index: int) -> None:
        op = self._whole(self._trace.ops[index])
        if index in self._runs:
            number, device = self._runs[index]
            self._lines.append(("", f"set_random_state({self._constant(device, 'device')}, R[{number}])"))
        if op.is_view and op.single and self._folds(self._trace.values[op.outputs[0] or 0]):
            return
        self._read = set()
        arguments = [self._argument(item) for item in op.args]
        arguments += [f"{key}={self._argument(item)}" for key, item in op.kwargs.items()]
        kernel = self._constant(kernel_for(op), f"op_{getattr(op.target, '__name__', 'x').replace('.', '_')}")
        call = f"{kernel}({', '.join(arguments)})"
        self._uses.update(dict.fromkeys(self._read, len(self._lines)))
        if op.single and op.outputs[0] is not None and self._is_pure(op):
            twin = self._written.get(call)
            if twin is not None:
                self._twins[op.outputs[0]] = twin
                return
            if self._is_worth_holding(op, op.outputs[0]):
                self._written[call] = f"v{op.outputs[0]}"
        fresh = [v for v in op.outputs if v is not None and f"v{v}" not in self._uses]
        for value in fresh:
            self._uses[f"v{value}"] = len(self._lines)
        if op.single and fresh:
            self._lines.append((f"v{fresh[0]}", call))
        elif op.single or not fresh:
            self._lines.append(("", call))
        else:
            line = len(self._lines)
            names = [f"v{v}" if v is not None else f"unused{line}_{k}" for k, v in enumerate(op.outputs)]
            self._uses.update({name: line for name in names if name.startswith("unused")})
            self._lines.append((", ".join(names) + ",", call))

    def _whole(self, op: TracedOp) -> TracedOp:
        """An op that was recorded in two halves runs as one kernel where the slice needs both."""
        if op.index + 1 not in self._piece.ops:
            return op
        second = self._trace.ops[op.index + 1]
        if second.target not in SECOND_HALVES:
            return op
        self._halves.add(second.index)
        return replace(op, outputs=(*second.outputs, op.outputs[1]))

    def _is_pure(self, op: TracedOp) -> bool:
        """Whether the op, written again with the same arguments, would make the same tensor again."""
        if op.draw is not None:
            return False
        storages = {self._trace.buffers[buffer].storage for buffer in (*op.reads, *op.writes)}
        return storages.isdisjoint(self._rewritten)

    def _is_worth_holding(self, op: TracedOp, made: int) -> bool:
        """Whether an equal op that comes later reads what ``op`` made, and that is not made once more instead.

        That of which the slice returns a view is there anyway. Anything else that is quickly made would only be held
        for longer.
        """
        return op.is_view or self._trace.values[made].buffer in self._returned or traits_of(op.name).product

    def _argument(self, item: Any) -> str:
        if isinstance(item, Ref):
            return self._variable(item)
        if isinstance(item, SizeRef):
            return source_of(item.size)
        if isinstance(item, tuple | list):
            inner = ", ".join(self._argument(part) for part in item)
            return f"[{inner}]" if isinstance(item, list) else f"({inner},)" if item else "()"
        if item is None or isinstance(item, bool | int | str) or (isinstance(item, float) and math.isfinite(item)):
            return repr(item)
        return self._constant(item, "c")

    def _constant(self, item: Any, prefix: str) -> str:
        for name, known in self.namespace.items():
            if known is item:
                return name
        name = f"{prefix}_{len(self.namespace)}"
        self.namespace[name] = item
        return name

    def _variable(self, ref: Ref) -> str:
        name = self._known.get(ref) or self._find(ref)
        self._known[ref] = name
        if not name.endswith("]"):
            self._read.add(name)
        return name

    def _find(self, ref: Ref) -> str:
        trace = self._trace
        value, buffer = trace.values[ref.value], trace.buffers[ref.buffer]
        if ref.buffer in self._held:
            return self._from_held(ref.buffer, value)
        base = trace.values[buffer.base]
        if buffer.origin.kind == "op":
            if value.producer is not None and not self._folds(value):
                return self._written_as(value)
            name = self._written_as(base)
            return name if base.same_window(value) else self._derive(f"as_strided({name}, {_geometry(value)})", name)
        root = self._root(buffer.origin.kind, buffer.origin.index)
        if ref.value == base.index:
            return root
        if value.producer is not None:
            return self._written_as(value)
        return self._derive(f"window({root}, {_geometry(value)})", None)

    def _written_as(self, value: Value) -> str:
        """The variable of a value that an op makes."""
        return self._twins.get(value.index, f"v{value.index}")

    def _folds(self, value: Value) -> bool:
        """Whether a chain of views ending in ``value`` is written as one window into a row-major product."""
        buffer = self._trace.buffers[value.buffer]
        base = self._trace.values[buffer.base]
        if buffer.index in self._held or buffer.storage in self._rewritten or buffer.origin.kind != "op":
            return False
        made_by = None if base.producer is None else self._trace.ops[base.producer].target
        return made_by in ROW_MAJOR and value.dtype is base.dtype

    def _root(self, kind: str, index: int) -> str:
        if kind == "input":
            return f"I[{self._inputs[index]}]"
        return f"P[{self._parameters[index]}]" if kind == "parameter" else f"C[{index}]"

    def _from_held(self, buffer: int, value: Value) -> str:
        k, position = self._held[buffer]
        pack = self._trace.values[self._trace.packs[position].value]
        if pack.same_window(value):
            return f"K[{k}]"
        return self._derive(f"as_strided(K[{k}], {_geometry(value)})", None)

    def _derive(self, expression: str, used: str | None) -> str:
        known = self._written.get(expression)
        if known is not None:
            return known
        name = self._written[expression] = f"w{len(self._lines)}"
        if used:
            self._uses[used] = max(self._uses.get(used, 0), len(self._lines))
        self._lines.append((name, expression))
        return name


def _geometry(value: Value) -> str:
    shape = "".join(f"{source_of(size)}, " for size in value.shape)
    stride = "".join(f"{source_of(size)}, " for size in value.stride)
    return f"({shape}), ({stride}), {source_of(value.offset)}"
