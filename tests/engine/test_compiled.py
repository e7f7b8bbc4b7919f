"""`compile_recompute`: inductor fuses rebuilds, and not one bit changes, or the rebuild stays uncompiled."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hf_ckpt.callbacks import SelectiveCkpt
from torch import nn

import hf_ckpt
from hf_ckpt.engine import Mode, TracedReplay, clear_traces, exact_ops
from hf_ckpt.errors import PolicyError
from hf_ckpt.policy.decision import RecomputeExcept, RecomputeLayer, SaveableOps
from hf_ckpt.proof.peak import LiveStorages

from .stacks import PlainLayer, Stack, gradients
from .zoo import batch, build, equal, step

if TYPE_CHECKING:
    from collections.abc import Iterator


def has_compiler() -> bool:
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        return bool(get_cpp_compiler())
    except InvalidCxxCompiler:
        return False


needs_compiler = pytest.mark.skipif(not has_compiler(), reason="inductor needs a C++ compiler")
KEEP_PRODUCTS = RecomputeExcept(SaveableOps("dots"))


class NormedLayer(PlainLayer):
    """An RMS norm before a gated MLP: chains that fuse, around a mean, an rsqrt and a tanh that must not."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.linspace(0.5, 1.5, 16))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-6)
        gate = torch.tanh(self.up(self.gain * (hidden * scale)))
        return hidden + self.down((gate * 0.5) * (gate + 1.0))


class WritesRows(PlainLayer):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        mask = torch.ones_like(hidden)
        mask.index_fill_(1, torch.tensor([0]), 0.5)
        return hidden + self.down(torch.tanh(self.up(hidden * mask)))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    clear_traces()
    torch._dynamo.reset()
    yield
    clear_traces()


def compiled(stack: Stack, plan: Any = KEEP_PRODUCTS) -> list[TracedReplay]:
    engines = stack.checkpoint(plan)
    for engine in engines:
        engine.compile_recompute = True
    return engines


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_gradients_are_bitwise_equal(dtype: torch.dtype) -> None:
    reference = Stack(NormedLayer)
    stack = copy.deepcopy(reference)
    engines = compiled(stack)
    for length in (5, 5, 7, 9):
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
            assert equal(gradients(stack, length), gradients(reference, length))
    report = engines[0].report()
    assert (report.mode, report.compiled, report.uncompiled_because) == (Mode.SYMBOLIC, True, "")
    assert report.manner == "traced symbolic, compiled"
    assert report.replays == 4


@needs_compiler
def test_a_dispatch_mode_sees_every_op_and_ends_nothing() -> None:
    reference = Stack(NormedLayer)
    stack = copy.deepcopy(reference)
    engines = compiled(stack)
    with LiveStorages(torch.device("cpu")):
        assert equal(gradients(stack), gradients(reference))
    assert equal(gradients(stack), gradients(reference))
    assert engines[0].report().compiled


@needs_compiler
def test_a_kernel_that_differs_is_not_used(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Inductor sums a mean in another order than eager does; here it may fuse it."""
    monkeypatch.setattr(exact_ops, "is_exact", lambda op, trace: True)
    reference = Stack(NormedLayer)
    stack = copy.deepcopy(reference)
    engines = compiled(stack)
    for _ in range(2):
        assert equal(gradients(stack, 200), gradients(reference, 200))
    for engine in engines:
        report = engine.report()
        assert (report.mode, report.compiled, report.manner) == (Mode.SYMBOLIC, False, "traced symbolic")
        assert "differs from the eager one" in report.uncompiled_because
    assert [r.getMessage().partition(",")[0] for r in caplog.records if r.name.startswith("hf_ckpt")] == [
        "NormedLayer: its rebuild runs uncompiled"
    ]


def test_without_a_compiler_the_rebuild_runs_uncompiled() -> None:
    from torch._inductor import config
    from torch._inductor.utils import fresh_cache

    reference = Stack(NormedLayer)
    stack = copy.deepcopy(reference)
    engines = compiled(stack)
    with config.patch({"cpp.cxx": ("no-such-compiler",)}), fresh_cache():
        for _ in range(2):
            assert equal(gradients(stack), gradients(reference))
    report = engines[0].report()
    assert (report.mode, report.compiled) == (Mode.SYMBOLIC, False)
    assert "inductor failed" in report.uncompiled_because


def test_what_writes_in_place_is_not_tried() -> None:
    reference = Stack(WritesRows)
    stack = copy.deepcopy(reference)
    engines = compiled(stack, RecomputeLayer())
    for _ in range(2):
        assert equal(gradients(stack), gradients(reference))
    report = engines[0].report()
    assert (report.mode, report.compiled) == (Mode.SYMBOLIC, False)
    assert "writes in place" in report.uncompiled_because


def test_only_what_ieee_754_fixes_is_fused() -> None:
    model = build("llama")
    handle = hf_ckpt.apply(model, "full")
    step(model, batch())
    trace = handle.installation.regions[0].replay._last.recipe.trace
    fused = {op.name for op in trace.ops if exact_ops.is_exact(op, trace)}
    handle.restore()
    assert {"aten.mul.Tensor", "aten.add.Tensor", "aten.cat.default", "aten.neg.default", "aten.view.default"} <= fused
    assert fused.isdisjoint({"aten.mm.default", "aten.mean.dim", "aten.rsqrt.default", "aten.silu.default"})


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["llama", "gpt2", "qwen3"])
@pytest.mark.parametrize("bf16", [False, True], ids=["fp32", "bf16-autocast"])
def test_real_layers(architecture: str, bf16: bool) -> None:
    model = build(architecture, num_hidden_layers=1) if architecture != "gpt2" else build(architecture, n_layer=1)
    expected = step(model, batch(), bf16=bf16)
    handle = hf_ckpt.apply(model, "full", compile_recompute=True)
    for _ in range(2):
        assert equal(step(model, batch(), bf16=bf16), expected)
    with handle.measure():
        assert equal(step(model, batch(), bf16=bf16), expected)
    assert handle.report().layers[0].mode == "traced symbolic, compiled"
    assert handle.report().layers[0].uncompiled_because == ""


def test_the_option_needs_the_traced_engine() -> None:
    with pytest.raises(PolicyError, match="compile_recompute"):
        hf_ckpt.apply(build("llama"), "full", engine="torch", compile_recompute=True)


def test_the_option_needs_a_traced_layer() -> None:
    model = build("llama")
    with pytest.raises(PolicyError, match=r"no layer has one under `segments\(2\)`"):
        hf_ckpt.apply(model, "segments(2)", compile_recompute=True)
    hf_ckpt.apply(model, "none", compile_recompute=True).restore()  # and the failed attempt left nothing behind


def test_the_option_travels() -> None:
    callback = SelectiveCkpt("full", compile_recompute=True)
    assert SelectiveCkpt(**callback.state()["args"]).compile_recompute
    engine = TracedReplay("layers.0", RecomputeLayer(), compile_recompute=True)
    assert pickle.loads(pickle.dumps(engine)).compile_recompute
