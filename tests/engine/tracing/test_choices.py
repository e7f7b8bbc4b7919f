"""The experts that a router chose in the forward are those that backward goes through, whatever a rebuild computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from hf_ckpt.engine import Mode, clear_traces
from hf_ckpt.engine.recipes import codegen
from hf_ckpt.engine.tracing import trace_call
from hf_ckpt.ledger import Source
from hf_ckpt.policy.decision import Decision, RecomputeExcept, RecomputeLayer, RecomputeSublayers, Role, SaveableOps

from ..zoo import batch, equal, install, step, uninstall

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

EXPERTS = 6  # no other size in these models
_SCORES = 32
_WIDTH = {
    "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 16,
    "max_position_embeddings": 128, "num_key_value_heads": 2, "pad_token_id": 0,
}  # fmt: skip
_LOCAL = {"num_local_experts": EXPERTS, "num_experts_per_tok": 3}
_EXPERTS = {"num_experts": EXPERTS, "num_experts_per_tok": 3, "moe_intermediate_size": 16}
_SPARSE = {"decoder_sparse_step": 1}
_HEAD = {"head_dim": 8}
_ATTENTION = {"layer_types": ["full_attention"]}
_ROUTED = {
    "n_routed_experts": EXPERTS, "num_experts_per_tok": 3, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 0, "n_shared_experts": 1, "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4, "v_head_dim": 8, "num_key_value_heads": 4,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "mixtral": _LOCAL,
    "qwen2_moe": {**_EXPERTS, **_SPARSE, "shared_expert_intermediate_size": 16},
    "qwen3_moe": {**_EXPERTS, **_SPARSE, **_HEAD},
    "qwen3_next": {**_EXPERTS, **_SPARSE, **_HEAD, **_ATTENTION, "shared_expert_intermediate_size": 16},
    "deepseek_v2": {**_ROUTED, "topk_method": "greedy"},
    "deepseek_v3": _ROUTED,
    "olmoe": {"num_experts": EXPERTS, "num_experts_per_tok": 3},
    "flex_olmo": {"num_experts": EXPERTS, "num_experts_per_tok": 3},
    "phimoe": {**_LOCAL, "num_experts_per_tok": 2},
    "granitemoe": _LOCAL,
    "granitemoeshared": {**_LOCAL, "shared_intermediate_size": 16},
    "jamba": {
        "num_experts": EXPERTS, "num_experts_per_tok": 3, "expert_layer_period": 1, "expert_layer_offset": 0,
        "attn_layer_period": 1, "attn_layer_offset": 0, "use_mamba_kernels": False,
    },
    "gpt_oss": {**_LOCAL, **_HEAD, "sliding_window": 8},
    "ernie4_5_moe": {
        "moe_num_experts": EXPERTS, "moe_k": 3, "moe_intermediate_size": 16, "moe_layer_start_index": 0,
    },
    "llama4_text": {**_LOCAL, **_HEAD, "intermediate_size_mlp": 16, "interleave_moe_layer_step": 1},
    "glm4_moe": {**_ROUTED, **_HEAD},
    "dots1": {**_ROUTED, **_HEAD},
    "minimax": {**_LOCAL, **_HEAD, **_ATTENTION},
    "minimax_m2": {**_LOCAL, **_HEAD},
    "hunyuan_v1_moe": {"num_experts": EXPERTS, "moe_topk": 3, **_HEAD},
    "lfm2_moe": {**_EXPERTS, **_ATTENTION, "num_dense_layers": 0},
}  # fmt: skip


class Noise:
    """One unit in the last place, on what the routers' products give while it is switched on."""

    def __init__(self) -> None:
        self.on = False
        self.applied = 0

    def around(self, kernel: Callable[..., Any]) -> Callable[..., Any]:
        def noisy(*args: Any, **kwargs: Any) -> Any:
            output = kernel(*args, **kwargs)
            if not self.on or not isinstance(output, torch.Tensor) or not output.is_floating_point():
                return output
            if output.dim() < 2 or output.shape[-1] != EXPERTS:
                return output
            self.applied += 1
            generator = torch.Generator().manual_seed(self.applied)
            up = torch.randint(0, 2, output.shape, generator=generator).bool()
            return torch.nextafter(output, torch.where(up, torch.inf, -torch.inf).to(output.dtype))

        return noisy


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> Iterator[Noise]:
    noise = Noise()
    plain = codegen.kernel_for
    products = ("mm", "addmm", "linear")

    def kernel_for(op: Any) -> Callable[..., Any]:
        kernel = plain(op)
        return noise.around(kernel) if op.name.split(".")[1] in products else kernel

    monkeypatch.setattr(codegen, "kernel_for", kernel_for)
    clear_traces()
    yield noise
    clear_traces()


def undecided(family: str) -> nn.Module:
    """A model whose routers score all experts alike, so that the last bit decides.

    Scores are large: of small ones, the last bit is lost in a softmax, or is not, as the CPU's `exp` rounds.
    """
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[family](**{**_WIDTH, **FAMILIES[family]})).train()
    model.config.use_cache = False
    for name, parameter in model.named_parameters():
        routes = any(word in name for word in ("gate", "router"))
        if routes and parameter.dim() == 2 and parameter.shape[0] == EXPERTS:
            parameter.data.copy_(_SCORES * parameter.data[:1].expand_as(parameter))
    return model


def close(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return all(
        torch.allclose(a, b, rtol=1e-3, atol=1e-3 * float(b.abs().max())) for a, b in zip(ours, theirs, strict=True)
    )


@pytest.mark.parametrize("family", list(FAMILIES))
def test_a_noisy_rebuild_goes_through_the_experts_of_the_forward(family: str, noise: Noise) -> None:
    model = undecided(family)
    uninstall(model)
    expected = step(model, batch())
    engines = install(model, RecomputeLayer())
    for _ in range(2):
        assert equal(step(model, batch()), expected)
    for engine in engines:
        assert engine.report().mode is Mode.SYMBOLIC
        ledger = engine.ledger()
        assert ledger is not None
        kept = [b for b in ledger.saved_activations() if b.source is Source.ONCE]
        assert kept
        assert engine.report().kept_bytes == sum(b.nbytes for b in kept)
        assert all(b.dtype == "int64" for b in kept)
    noise.on = True
    assert close(step(model, batch()), expected)
    assert noise.applied


@pytest.mark.parametrize(
    "decision",
    [
        RecomputeSublayers(frozenset({Role.MLP, Role.EXPERTS, Role.NORM})),
        RecomputeExcept(SaveableOps("nothing")),
        RecomputeExcept(SaveableOps("names", ("bmm",))),
    ],
    ids=["sublayers", "nothing", "names"],
)
def test_under_other_policies_too(decision: Decision, noise: Noise) -> None:
    model = undecided("mixtral")
    uninstall(model)
    expected = step(model, batch())
    install(model, decision)
    step(model, batch())
    noise.on = True
    assert close(step(model, batch()), expected)
    assert noise.applied


def test_without_kept_choices_the_noise_would_change_the_experts(noise: Noise, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_call, "with_single_choices", lambda ops, values: list(ops))
    model = undecided("mixtral")
    uninstall(model)
    expected = step(model, batch())
    install(model, RecomputeLayer())
    step(model, batch())
    noise.on = True
    assert not close(step(model, batch()), expected)


def test_a_maximum_that_only_steadies_a_softmax_is_no_choice() -> None:
    from ..stacks import PlainLayer, Stack, gradients

    class Steadies(PlainLayer):
        def forward(self, hidden: torch.Tensor) -> torch.Tensor:
            inner = self.up(hidden)
            return hidden + self.down(torch.softmax(inner - inner.max(-1, keepdim=True).values, -1))

    stack, reference = Stack(Steadies), Stack(Steadies)
    engines = stack.checkpoint()
    for _ in range(2):
        assert equal(gradients(stack), gradients(reference))
    assert engines[0].report().kept_bytes == 0
