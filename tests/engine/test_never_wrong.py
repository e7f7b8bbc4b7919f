"""Whatever a layer does, its gradients are those of no checkpointing, or there is one clear error."""

from __future__ import annotations

import copy
import pickle
import threading
from operator import attrgetter
from typing import Any

import pytest
import torch
from torch import nn

from hf_ckpt.engine import Mode, TracedReplay
from hf_ckpt.errors import PolicyError
from hf_ckpt.ledger import Source
from hf_ckpt.policy.decision import Decision, Keep, RecomputeExcept, RecomputeLayer, RecomputeSegment, SaveableOps

from . import stacks
from .stacks import PlainLayer, Stack, gradients, hidden_states
from .zoo import batch, build, equal, install, step, uninstall


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (stacks.ChoosesByData, "shapes depend on data"),
        (stacks.ReadsAnItem, "shapes depend on data"),
        (stacks.Counts, "calls changes from call to call"),
    ],
)
def test_untraceable_layers_are_replayed_whole(kind: type[PlainLayer], reason: str) -> None:
    expected = gradients(Stack(kind))
    stack = Stack(kind)
    engines = stack.checkpoint()
    for _ in range(12):
        assert equal(gradients(stack), expected)
    assert engines[0].report().mode is Mode.WHOLE
    assert reason in engines[0].report().reason
    assert engines[0].report().replays


@pytest.mark.parametrize("kind", [stacks.WritesItsOwnTensors, stacks.CallsAnAutogradFunction, PlainLayer])
def test_traceable_layers_are_traced(kind: type[PlainLayer]) -> None:
    expected = gradients(Stack(kind))
    stack = Stack(kind)
    engines = stack.checkpoint()
    for _ in range(3):
        assert equal(gradients(stack), expected)
    assert engines[0].report().mode is Mode.SYMBOLIC
    assert engines[0].report().kept_bytes == 0


def test_a_kernel_that_torch_cannot_see_into_is_traced() -> None:
    expected = gradients(Stack(stacks.CallsAForeignKernel))
    stack = Stack(stacks.CallsAForeignKernel)
    engines = stack.checkpoint()
    for _ in range(12):
        assert equal(gradients(stack), expected)
    assert engines[0].report().mode is Mode.PER_SHAPE
    assert engines[0].report().kept_bytes == 0
    assert engines[0].report().replays


def test_a_view_of_a_parameter_cut_to_the_length_is_traced() -> None:
    stack, reference = Stack(stacks.CutsAParameter), Stack(stacks.CutsAParameter)
    engines = stack.checkpoint()
    for length in (5, 7, 5):
        assert equal(gradients(stack, length), gradients(reference, length))
    assert engines[0].report().mode is Mode.SYMBOLIC


def test_an_error_while_a_trace_is_prepared_is_whole_layer_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    from hf_ckpt.engine import clear_traces
    from hf_ckpt.engine.running import lookup

    def breaks(*_: object, **__: object) -> None:
        raise IndexError("broken on purpose")

    expected = gradients(Stack())
    for what, reason in (("recipe_for", "could not be used"), ("describe", "could not be looked up")):
        clear_traces()
        stack = Stack()
        engines = stack.checkpoint()
        with monkeypatch.context() as patch:
            patch.setattr(lookup, what, breaks)
            for _ in range(2):
                assert equal(gradients(stack), expected)
        assert engines[0].report().mode is Mode.WHOLE
        assert reason in engines[0].report().reason
        assert "IndexError: broken on purpose" in engines[0].report().reason


@pytest.mark.parametrize("where", ["CheckedFrame._places_that_differ", "same_bits"])
def test_no_memory_for_the_comparison_says_nothing_about_the_trace(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from hf_ckpt.engine import clear_traces
    from hf_ckpt.engine.running import first_use

    clear_traces()
    failures = iter(range(6))
    works = attrgetter(where)(first_use)

    def runs_out(*args: Any) -> Any:
        if next(failures, None) is not None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return works(*args)

    monkeypatch.setattr(f"hf_ckpt.engine.running.first_use.{where}", runs_out)
    expected = gradients(Stack())
    stack = Stack()
    engines = stack.checkpoint()
    for _ in range(5):
        assert equal(gradients(stack), expected)
    assert [engine.report().mode for engine in engines] == [Mode.SYMBOLIC] * 2
    assert [engine.report().traces for engine in engines] == [1, 1]
    assert engines[0].report().replays


def test_a_symbolic_trace_that_differs_is_answered_by_one_for_these_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    from hf_ckpt.engine import clear_traces

    clear_traces()
    stack, reference = Stack(stacks.LooksForSymbols), Stack(stacks.LooksForSymbols)
    engines = stack.checkpoint()
    for _ in range(4):
        assert equal(gradients(stack), gradients(reference))
    assert [engine.report().mode for engine in engines] == [Mode.PER_SHAPE] * 2
    assert engines[0].report().replays
    clear_traces()


def test_a_layer_that_writes_its_input_is_replayed_from_what_it_held() -> None:
    stack, reference = Stack(stacks.WritesItsInput), Stack(stacks.WritesItsInput)
    engines = stack.checkpoint()
    for length in (5, 5, 7):
        assert equal(gradients(stack, length), gradients(reference, length))
    assert "writes an input of the layer in place" in engines[0].report().reason
    assert engines[0].report().replays == 3


def test_hidden_state_is_caught_by_the_first_comparison() -> None:
    stack = Stack(stacks.DependsOnTheWorld, count=1)
    (engine,) = stack.checkpoint()
    x = hidden_states()
    for _ in range(3):  # a shared trace, one for these shapes, one of its own
        stack(x).sum().backward()
        assert torch.isfinite(x.grad).all()
    assert "tanh" not in engine.report().reason
    assert "differs from the real one" in engine.report().reason


def test_retain_graph_gives_the_same_gradients_twice() -> None:
    stack = Stack()
    stack.checkpoint()
    expected = gradients(Stack())
    for _ in range(2):
        x = hidden_states()
        loss = stack(x).pow(2).sum()
        for _ in range(2):
            x.grad = None
            loss.backward(retain_graph=True)
            assert torch.equal(x.grad, expected[0])
        x.grad = None
        loss.backward()
        assert torch.equal(x.grad, expected[0])
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def test_double_backward() -> None:
    def second_order(stack: Stack) -> list[torch.Tensor]:
        x = hidden_states()
        (grad,) = torch.autograd.grad(stack(x).pow(2).sum(), x, create_graph=True)
        return list(torch.autograd.grad(grad.pow(2).sum(), [x, *stack.parameters()], allow_unused=True))

    expected = second_order(Stack())
    stack = Stack()
    stack.checkpoint()
    for _ in range(2):
        for ours, theirs in zip(second_order(stack), expected, strict=True):
            assert (ours is None and theirs is None) or torch.equal(ours, theirs)


def test_autograd_grad_for_some_inputs() -> None:
    stack, reference = Stack(), Stack()
    stack.checkpoint()
    for _ in range(2):
        ours = torch.autograd.grad(stack(hidden_states()).sum(), [stack.layers[1].down.weight])
        theirs = torch.autograd.grad(reference(hidden_states()).sum(), [reference.layers[1].down.weight])
        assert torch.equal(ours[0], theirs[0])


def test_two_forwards_before_a_backward_in_either_order() -> None:
    expected = [gradients(Stack(), length) for length in (5, 7)]
    stack = Stack()
    stack.checkpoint()
    for order in ((0, 1), (1, 0)):
        inputs = [hidden_states(5), hidden_states(7)]
        losses = [stack(x).pow(2).sum() for x in inputs]
        for i in order:
            losses[i].backward()
        assert all(torch.equal(x.grad, e[0]) for x, e in zip(inputs, expected, strict=True))


def test_an_exception_in_forward_leaves_no_trace() -> None:
    class Fails(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("broken on purpose")

    expected = gradients(Stack())
    stack = Stack()
    stack.checkpoint()
    assert equal(gradients(stack), expected)
    down = stack.layers[1].down
    stack.layers[1].down = Fails()
    with pytest.raises(ValueError, match="broken on purpose"):
        gradients(stack)
    stack.layers[1].down = down
    assert equal(gradients(stack), expected)


def test_a_hook_that_changes_values_is_honoured() -> None:
    def doubled(stack: Stack) -> None:
        stack.layers[0].up.register_forward_hook(lambda module, args, output: output * 2)

    reference, stack = Stack(), Stack()
    doubled(reference)
    engines = stack.checkpoint()
    gradients(stack)
    doubled(stack)
    for _ in range(2):
        assert equal(gradients(stack), gradients(reference))
    assert engines[0].report().mode is Mode.WHOLE
    assert "on up changes what it computes" in engines[0].report().reason
    assert engines[1].report().mode is Mode.SYMBOLIC


def test_a_hook_that_begins_to_change_values_is_an_error() -> None:
    stack, factor = Stack(), [None]
    stack.layers[0].up.register_forward_hook(lambda module, args, output: factor[0] and output * factor[0])
    stack.checkpoint()
    gradients(stack)
    factor[0] = 2
    with pytest.raises(RuntimeError, match="on up changes what it computes"):
        gradients(stack)


def test_hooks_that_look_run_once_and_layers_stay_traced() -> None:
    """Before and after, with a graph of their own, and on what is written in place afterwards."""
    seen: list[torch.Tensor] = []

    def look(module: nn.Module, args: Any, output: torch.Tensor) -> None:
        seen.append(output.pow(2).mean())

    reference, stack = Stack(), Stack()
    for layer in stack.layers:
        layer.up.register_forward_hook(look)
        layer.up.register_forward_pre_hook(lambda module, args, kwargs: None, with_kwargs=True)
        layer.down.register_forward_pre_hook(lambda module, args: seen.append(args[0].detach().norm()))
    engines = stack.checkpoint()
    for _ in range(3):
        seen.clear()
        assert equal(gradients(stack), gradients(reference))
        assert len(seen) == 4
        assert seen[0].requires_grad
    assert [(engine.report().mode, engine.report().kept_bytes) for engine in engines] == [(Mode.SYMBOLIC, 0)] * 2
    assert all(len(m._forward_hooks) <= 1 and len(m._forward_pre_hooks) <= 1 for m in stack.modules())


@pytest.mark.parametrize("kind", ["in place", "weight", "argument"])
def test_hooks_that_change_something_else_than_their_output(kind: str) -> None:
    def add(stack: Stack) -> None:
        up = stack.layers[0].up
        if kind == "weight":
            torch.nn.utils.weight_norm(up)
        elif kind == "argument":
            up.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
        else:
            up.register_forward_hook(lambda module, args, output: _twice(output))

    reference, stack = Stack(), Stack()
    add(reference)
    add(stack)
    engines = stack.checkpoint()
    for _ in range(3):
        assert equal(gradients(stack), gradients(reference))
    assert engines[0].report().mode is Mode.WHOLE
    assert ("changes what it computes" in engines[0].report().reason) or ("replaces" in engines[0].report().reason)


def _twice(output: torch.Tensor) -> None:
    output.mul_(2)


@pytest.mark.parametrize("cut", ["length", "batch", "transposed"])
def test_an_input_that_is_not_contiguous_is_traced(cut: str) -> None:
    def strided(whole: torch.Tensor) -> torch.Tensor:
        if cut == "transposed":
            return whole.transpose(0, 1)
        return whole[:, :5] if cut == "length" else whole[1:]

    def run(stack: Stack) -> list[torch.Tensor]:
        stack.zero_grad()
        whole = torch.linspace(-1, 1, 3 * 9 * 16).view(3, 9, 16).requires_grad_()
        hidden = strided(whole.clone())
        for layer in stack.layers:
            hidden = layer(hidden)
        hidden.pow(2).sum().backward()
        return [whole.grad, *(p.grad for p in stack.parameters())]

    reference, stack = Stack(), Stack()
    engines = stack.checkpoint()
    for _ in range(3):
        assert equal(run(stack), run(reference))
    assert all(engine.report().mode is Mode.SYMBOLIC and engine.report().replays for engine in engines)


def test_backward_hooks_and_tensor_hooks_run() -> None:
    seen = []
    stack = Stack()
    stack.checkpoint()
    stack.layers[0].up.register_full_backward_hook(lambda module, grads, outputs: seen.append("module"))
    stack.layers[0].up.weight.register_hook(lambda grad: seen.append("tensor"))
    expected = gradients(Stack())
    assert equal(gradients(stack), expected)
    assert equal(gradients(stack), expected)
    assert sorted(seen) == ["module", "module", "tensor", "tensor"]


def test_a_module_shared_by_two_layers() -> None:
    def shared(stack: Stack) -> Stack:
        stack.layers[1].up = stack.layers[0].up
        return stack

    expected = gradients(shared(Stack()))
    stack = shared(Stack())
    stack.checkpoint()
    for _ in range(2):
        assert equal(gradients(stack), expected)


def test_one_layer_called_twice() -> None:
    def tied(stack: Stack) -> Stack:
        stack.layers[1] = stack.layers[0]
        return stack

    expected = gradients(tied(Stack()))
    stack = tied(Stack())
    stack.checkpoint()
    for _ in range(2):
        assert equal(gradients(stack), expected)


def test_threads_share_layers() -> None:
    stack, reference = Stack(), Stack()
    stack.checkpoint()
    results: dict[int, torch.Tensor] = {}

    def work(index: int) -> None:
        for _ in range(5):
            x = hidden_states(4 + index)
            (results[index],) = torch.autograd.grad(stack(x).pow(2).sum(), x)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, ours in results.items():
        x = hidden_states(4 + index)
        assert torch.equal(ours, torch.autograd.grad(reference(x).pow(2).sum(), x)[0])
    assert len(results) == 4


def test_an_input_written_between_forward_and_backward_is_an_error() -> None:
    stack = Stack(count=1)
    stack.checkpoint()
    gradients(stack)
    x = hidden_states(needs_grad=False)
    loss = stack(x).sum()
    x.add_(1.0)
    with pytest.raises(RuntimeError, match=r"layers\.0.*modified in place"):
        loss.backward()


@pytest.mark.parametrize("plan", [RecomputeLayer(), RecomputeExcept(SaveableOps("dots"))])
def test_a_parameter_stepped_between_forward_and_backward_is_an_error(plan: Decision) -> None:
    stack = Stack(count=1)
    stack.checkpoint(plan)
    gradients(stack)
    loss = stack(hidden_states()).sum()
    with torch.no_grad():
        stack.layers[0].up.weight.add_(1.0)
    with pytest.raises(RuntimeError, match=r"up\.weight was modified in place"):
        loss.backward()


def test_switches_inside_the_layer_are_seen() -> None:
    model, reference = build("llama", lora=True), build("llama", lora=True)
    uninstall(reference)
    engines = install(model, RecomputeLayer())

    def set_dropout(probability: float) -> None:
        for m in (model, reference):
            for module in m.modules():
                if isinstance(module, nn.Dropout):
                    module.p = probability

    def freeze(flag: bool) -> None:
        for m in (model, reference):
            for name, parameter in m.named_parameters():
                if "lora_A" in name and "q_proj" in name:
                    parameter.requires_grad_(flag)

    inputs = batch()
    switches = [lambda: None, lambda: set_dropout(0.3), lambda: freeze(False), lambda: freeze(True)]
    for switch in switches:
        switch()
        for _ in range(2):
            assert equal(step(model, inputs), step(reference, inputs))
    for m in (model, reference):
        m.base_model.model.model.layers[0].self_attn.q_proj.eval()
    assert equal(step(model, inputs), step(reference, inputs))
    assert all(engine.report().mode is Mode.SYMBOLIC for engine in engines)


def test_lengths_and_batch_sizes_share_few_traces() -> None:
    model, reference = build("llama"), build("llama")
    uninstall(reference)
    engines = install(model, RecomputeLayer())
    for size, length, pad in [
        (2, 12, 0),
        (3, 9, 0),
        (1, 30, 0),
        (1, 5, 0),
        (2, 17, 3),
        (4, 8, 2),
        (2, 31, 0),
        (3, 32, 7),
    ]:
        inputs = batch(size, length, pad)
        assert equal(step(model, inputs), step(reference, inputs)), (size, length, pad)
        assert engines[0].report().mode is Mode.SYMBOLIC
    assert engines[0].report().traces <= 4


def test_router_logits_recorded_by_transformers_do_not_force_a_replay() -> None:
    model = build("mixtral", output_router_logits=True, router_aux_loss_coef=0.1)
    reference = build("mixtral", output_router_logits=True, router_aux_loss_coef=0.1)
    uninstall(reference)
    engines = install(model, RecomputeLayer())
    for _ in range(2):
        assert equal(step(model, batch()), step(reference, batch()))
    assert engines[0].report().mode is Mode.SYMBOLIC


def test_an_engine_is_copied_and_pickled_without_what_it_learned() -> None:
    stack = Stack()
    stack.checkpoint()
    expected = gradients(stack)
    twin = copy.deepcopy(stack)
    assert twin.layers[0]._gradient_checkpointing_func is not stack.layers[0]._gradient_checkpointing_func
    assert equal(gradients(twin), expected)
    engine = pickle.loads(pickle.dumps(stack.layers[0]._gradient_checkpointing_func))
    assert engine.layer == "layers.0"
    assert engine.plan == RecomputeLayer()
    assert engine.report().forwards == 0


def test_the_plan_switches_between_calls() -> None:
    stack = Stack()
    engines = stack.checkpoint()
    expected = gradients(Stack())
    for plan in (RecomputeLayer(), Keep(), RecomputeLayer()):
        for engine in engines:
            engine.plan = plan
        assert equal(gradients(stack), expected)
    assert engines[0].report().replays == 2
    with pytest.raises(PolicyError, match="engine=torch"):
        engines[0].plan = RecomputeSegment(0, 1)


def test_layers_of_older_transformers_are_resolved() -> None:
    import functools

    layer = PlainLayer()
    reference = copy.deepcopy(layer)
    engine = TracedReplay("old", RecomputeLayer())
    for call in (functools.partial(nn.Module.__call__.__get__(layer)), layer.__call__):
        for _ in range(2):
            x, y = hidden_states(), hidden_states()
            engine(call, x).sum().backward()
            reference(y).sum().backward()
            assert torch.equal(x.grad, y.grad)
    assert engine.report().mode is Mode.SYMBOLIC


def test_nothing_outlives_the_backward() -> None:
    import gc
    import weakref

    stack = Stack()
    stack.checkpoint()
    gradients(stack)
    gc.collect()
    gc.disable()
    try:
        x = hidden_states()
        middle = stack.layers[0](x)
        alive = weakref.ref(middle)
        stack.layers[1](middle).sum().backward()
        del middle
        assert alive() is None
    finally:
        gc.enable()


def test_a_submodule_replaced_or_patched_is_seen() -> None:
    stack, reference = Stack(), Stack()
    engines = stack.checkpoint()
    gradients(stack)
    for s in (stack, reference):
        s.layers[0].up = nn.Sequential(s.layers[0].up, nn.ReLU())
    assert equal(gradients(stack), gradients(reference))
    for s in (stack, reference):
        plain = s.layers[0].up[1].forward
        s.layers[0].up[1].forward = lambda x, plain=plain: plain(x) * 2
    assert equal(gradients(stack), gradients(reference))
    assert engines[0].report().replays == 3


def test_two_states_take_turns_without_new_traces() -> None:
    model = build("llama", lora=True)
    engines = install(model, RecomputeLayer())
    for _ in range(6):
        for flag in (False, True):
            model.base_model.model.model.layers[0].self_attn.train(flag)
            step(model, batch())
    assert engines[0].report().mode is Mode.SYMBOLIC
    assert engines[0].report().traces == 2


def test_one_line_a_reason_not_one_a_step(caplog: pytest.LogCaptureFixture) -> None:
    stack = Stack(stacks.ChoosesByData, count=1)
    stack.checkpoint()
    for _ in range(3):
        gradients(stack)
    assert [r.getMessage() for r in caplog.records if r.name.startswith("hf_ckpt")] == [
        "layers.0: whole-layer replay, because its shapes depend on data (aten.nonzero.default)"
    ]


def test_a_layer_that_looks_at_its_length_is_traced_a_few_times_then_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    from hf_ckpt.engine import clear_traces
    from hf_ckpt.engine.tracing import cache

    monkeypatch.setattr(cache, "_MAX_SYMBOLIC", 2)
    monkeypatch.setattr(cache, "_MAX_SHAPES", 2)
    clear_traces()
    stack, reference = Stack(stacks.LooksAtItsLength), Stack(stacks.LooksAtItsLength)
    engines = stack.checkpoint()
    modes = []
    for length in (3, 4, 5, 6, 7, 8, 3):
        assert equal(gradients(stack, length), gradients(reference, length))
        modes.append(engines[0].report().mode)
    assert modes == [Mode.SYMBOLIC] * 2 + [Mode.PER_SHAPE] * 2 + [Mode.WHOLE] * 2 + [Mode.SYMBOLIC]
    clear_traces()


def test_tracing_draws_no_random_numbers_and_leaves_the_layer_alone() -> None:
    from hf_ckpt.engine import clear_traces, ledger_of

    clear_traces()
    model = build("gpt2", lora=True)
    layer = model.base_model.model.transformer.h[0]
    weights = {name: (id(p), p._version) for name, p in layer.named_parameters()}
    before = torch.get_rng_state()
    ledger = ledger_of(layer.forward, torch.zeros(2, 7, 32, requires_grad=True))
    assert torch.equal(before, torch.get_rng_state())
    assert weights == {name: (id(p), p._version) for name, p in layer.named_parameters()}
    assert any(buffer.source is Source.RANDOM for buffer in ledger.buffers)


def test_an_optimizer_that_steps_during_backward_works() -> None:
    def train(stack: Stack) -> list[torch.Tensor]:
        for parameter in stack.parameters():
            optimizer = torch.optim.SGD([parameter], lr=0.1)
            parameter.register_post_accumulate_grad_hook(lambda p, o=optimizer: o.step() or o.zero_grad())
        for _ in range(3):
            stack(hidden_states()).pow(2).sum().backward()
        return [p.detach() for p in stack.parameters()]

    expected = train(Stack())
    for plan in (RecomputeLayer(), RecomputeExcept(SaveableOps("dots"))):
        stack = Stack()
        stack.checkpoint(plan)
        assert equal(train(stack), expected)


def test_a_fused_dropout_draws_its_mask_again() -> None:
    stack, reference = Stack(stacks.DropsOutFused), Stack(stacks.DropsOutFused)
    engines = stack.checkpoint()
    for seed in range(3):
        torch.manual_seed(seed)
        expected = gradients(reference)
        torch.manual_seed(seed)
        assert equal(gradients(stack), expected)
    report = engines[0].report()
    assert report.mode is Mode.SYMBOLIC
    assert report.kept_bytes == 0
    assert report.rebuilt_bytes == 2 * 5 * 32 * (4 + 4 + 1)  # tanh, what dropout made of it, and its mask
