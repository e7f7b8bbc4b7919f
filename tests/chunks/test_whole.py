"""Where chunks would lose a gradient or change a result, an MLP stays whole and says why, or the run stops."""

from __future__ import annotations

import random

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig

import hf_ckpt
from hf_ckpt.chunks.chunked_forward import ChunkedForward
from hf_ckpt.chunks.measured import ChunkedParts, parts_in
from hf_ckpt.errors import ModelStructureError
from hf_ckpt.policy.decision import Role

from ..models import batch, fingerprint, step


class Small(nn.Module):
    """An MLP that widens and narrows."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up = nn.Linear(4, 8)
        self.down = nn.Linear(8, 4)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.down(self.up(hidden).tanh())


def chunked(module: nn.Module, chunks: int = 2) -> ChunkedForward:
    forward = ChunkedForward("layers.0.mlp", module, chunks)
    module.forward = forward
    return forward


def given(tokens: int = 6, **options) -> torch.Tensor:
    return torch.randn(1, tokens, 4, generator=torch.Generator().manual_seed(0)).to(**options).requires_grad_()


def llama() -> nn.Module:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(
        LlamaConfig(
            hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=256,
            use_cache=False,
        )
    ).train()  # fmt: skip


def put_outside(linear: nn.Linear) -> nn.Parameter:
    """An adapter that no module holds, as kohya's scripts and LyCORIS put it on."""
    weight, whole = nn.Parameter(torch.full_like(linear.weight, 0.1)), linear.forward
    linear.forward = lambda hidden: whole(hidden) + nn.functional.linear(hidden, weight)
    return weight


def test_an_adapter_outside_of_the_model_stops_the_first_backward():
    module = Small()
    put_outside(module.up)
    chunked(module)
    with pytest.raises(ModelStructureError, match=r"`layers\.0\.mlp` also trains a tensor of shape \(8, 4\)"):
        module(given()).sum().backward()


def test_where_nothing_known_gets_a_gradient_the_mlp_stays_whole():
    module = Small().requires_grad_(False)
    weight = put_outside(module.up)
    forward = chunked(module)
    module(given().detach()).sum().backward()
    assert weight.grad is not None
    assert forward.use.why_whole == "no gradient goes through it"


def test_a_device_whose_random_state_torch_cannot_take():
    forward = chunked(Small().to("meta"))
    forward(torch.ones(1, 4, 4, device="meta"))
    assert forward.use.why_whole == "random numbers on meta cannot be drawn again in backward"


def test_random_numbers_of_python_stop_the_first_forward():
    class Skipping(Small):
        def forward(self, hidden):
            return super().forward(hidden) * (random.random() < 2)

    module = Skipping()
    chunked(module)
    with pytest.raises(ModelStructureError, match=r"draws random numbers of Python's or NumPy's"):
        module(given())


def test_zero3_and_flat_parameters():
    module, hidden = Small(), given()
    forward = chunked(module)
    module.up.weight.ds_id = 0
    module(hidden)
    assert "ZeRO-3" in forward.use.why_whole
    del module.up.weight.ds_id, module.up._parameters["weight"]
    module.up.weight = nn.Parameter(torch.randn(32))[:].view(8, 4)
    module(hidden)
    assert "use FSDP2" in forward.use.why_whole


def test_a_tensor_that_is_only_kept_on_the_module_is_no_weight():
    class Keeping(Small):
        def forward(self, hidden):
            self.last = super().forward(hidden)
            return self.last

    module = Keeping()
    forward = chunked(module)
    for _ in range(2):
        module(given()).sum().backward()
    assert forward.use.in_chunks == 2


def test_alora_counts_tokens():
    adapter = LoraConfig(r=2, target_modules=["up_proj"], task_type="CAUSAL_LM", alora_invocation_tokens=[5])
    handle = hf_ckpt.apply(model := get_peft_model(llama(), adapter), "mlp(2)")
    with handle.measure():
        step(model)
    assert "aLoRA" in handle.report().chunked[0].reason
    assert handle.report().chunked[0].ran_in_chunks == 0


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (lambda hidden: (hidden, hidden), "returns something else than one tensor"),
        (lambda hidden: hidden.repeat(1, 1, 2), "is not a whole MLP"),
        (lambda hidden: hidden.cumsum(1), "does not compute each token apart"),
        (lambda hidden: hidden * (torch.arange(hidden.shape[1]) >= hidden.shape[1] - 2)[:, None], "each token apart"),
    ],
    ids=["tuple", "wider", "sum over tokens", "counts from the end"],
)  # fmt: skip
def test_a_result_that_chunks_would_change_stops_the_first_forward(result, why):
    module = Small()
    module.forward = result
    chunked(module)
    with pytest.raises(ModelStructureError, match=why):
        module(given(12))


def test_rows_that_are_no_numbers_decide_nothing():
    module, hidden = Small(), given().detach()
    forward = chunked(module)
    hidden[:, 0] = torch.nan
    module(hidden)
    assert not forward.use.known_apart
    module(given())
    assert forward.use.known_apart


def test_an_empty_batch():
    module, hidden = Small(), torch.zeros(0, 6, 4, requires_grad=True)
    chunked(module)
    module(hidden).sum().backward()
    assert hidden.grad.shape == hidden.shape


def test_a_result_without_a_graph_has_zero_gradients():
    module, hidden = Small(), given()
    module.forward = lambda hidden: hidden.detach() * 2
    chunked(module)
    module(hidden).sum().backward()
    assert not hidden.grad.any()
    assert module.up.weight.grad is None


def test_float64_stays_float64():
    plain, module, ours, theirs = Small().double(), Small().double(), *(given(dtype=torch.float64) for _ in range(2))
    chunked(module, 3)
    module(ours).square().sum().backward()
    plain(theirs).square().sum().backward()
    for mine, whole in zip((ours, *module.parameters()), (theirs, *plain.parameters()), strict=True):
        assert torch.allclose(mine.grad, whole.grad, rtol=1e-12, atol=1e-14)


def test_casts_of_chunks_are_no_casts_for_others():
    plain, module = Small(), Small()
    chunked(module, 4)
    for part in (plain, module):
        with torch.autocast("cpu", torch.bfloat16):
            loss = part(given(8)).sum() + part(given(3)).sum()
        loss.backward()
    for ours, theirs in zip(module.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, rtol=5e-2, atol=5e-2)


class Packed(nn.Module):
    """A linear layer of 4 bits, as bitsandbytes packs it: [numel / 2, 1]."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = nn.Parameter(torch.zeros(linear.weight.numel() // 2, 1, dtype=torch.uint8), requires_grad=False)


def test_the_bytes_of_a_chunk_do_not_depend_on_how_weights_are_packed():
    module, packed = Small().requires_grad_(False), Small()
    packed.up, packed.down = Packed(packed.up), Packed(packed.down)
    layers = [nn.ModuleDict({"mlp": part}) for part in (module, packed)]
    bytes_of = [512 * part.token for layer in layers for (part,) in parts_in([chunks_of(layer["mlp"], 2)], [layer])]
    assert bytes_of == [3 * 512 * (8 + 8) * 4] * 2


def chunks_of(module: nn.Module, chunks: int) -> ChunkedParts:
    return ChunkedParts(Role.MLP, chunks, (ChunkedForward("mlp", module, chunks),))


def test_an_mlp_that_runs_whole_takes_no_chunk_and_no_second_forward():
    layer = nn.ModuleDict({"mlp": Small()})
    chunked = chunks_of(layer["mlp"], 64)
    (forward,) = chunked.forwards

    def cut() -> list[str]:
        (parts,) = parts_in([chunked], [layer])
        return [part.module for part in parts]

    assert cut() == ["mlp"]
    forward(given())
    assert cut() == []
    forward(given(64))
    assert cut() == ["mlp"]


def test_a_budget_counts_the_second_forward_of_mlps_that_run_in_chunks_only():
    added = []
    for chunks in (4, 64):  # a batch has 12 tokens
        handle = hf_ckpt.apply(model := llama(), f"budget=100GiB+mlp({chunks})")
        for _ in range(3):
            step(model, batch(2, 12))
        added.append(handle.planner.current.solution.predicted.seconds)
    assert added[0] > 0 == added[1]


def test_the_report_is_about_the_measured_step():
    handle = hf_ckpt.apply(model := llama(), "mlp(4)")
    with handle.measure():
        step(model, batch(2, 2))
    assert "fewer than 4 tokens" in handle.report().chunked[0].reason
    with handle.measure():
        step(model)
    assert (handle.report().chunked[0].ran_in_chunks, handle.report().chunked[0].reason) == (2, "")
    with handle.measure(), torch.no_grad():
        model(input_ids=batch())
    assert not handle.report().chunked or handle.report().chunked[0].ran_in_chunks == 0


def test_an_mlp_that_layers_share_is_one():
    model = llama()
    model.model.layers[1].mlp = model.model.layers[0].mlp
    plain = step(model)
    before = fingerprint(model)
    handle = hf_ckpt.apply(model, "mlp(4)")
    with handle.measure():
        ours = step(model)
    assert handle.report().chunked[0].parts == handle.report().chunked[0].ran_in_chunks == 1
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(ours[1], plain[1], strict=True))
    handle.restore()
    assert fingerprint(model) == before


def test_an_interrupt_in_between_changes_nothing(monkeypatch):
    from hf_ckpt.chunks import install

    model, made = llama(), []

    def interrupted(*args):
        if made:
            raise KeyboardInterrupt
        made.append(change := change_of(*args))
        return change

    change_of = install.AttributeChange
    monkeypatch.setattr(install, "AttributeChange", interrupted)
    before = fingerprint(model)
    with pytest.raises(KeyboardInterrupt):
        hf_ckpt.apply(model, "mlp(4)")
    assert fingerprint(model) == before


def test_a_call_walks_the_modules_once():
    module = Small()
    walks = []

    def modules(*args, **kwargs):
        walks.append(1)
        return nn.Module.modules(module, *args, **kwargs)

    forward = chunked(module)
    module(given()).sum().backward()
    assert forward.use.known_apart
    vars(module)["modules"] = modules
    module(given())
    assert len(walks) == 1
