"""Applying and restoring leaves no trace, and the policy survives what others do to a model."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

from hf_ckpt import apply
from hf_ckpt.errors import CkptError, ConflictError, PolicyError

from ..models import batch, build, build_vlm, fingerprint, same, step

#: (policy, engine): every kind of region there is.
MECHANISMS = (
    ("full", "traced"),
    ("attention+norm", "traced"),
    ("budget=0.5", "traced"),
    ("full", "torch"),
    ("attention+norm", "torch"),
    ("dots_saveable", "torch"),
    ("segments(2)", "torch"),
)
each_mechanism = pytest.mark.parametrize(("policy", "engine"), MECHANISMS, ids=["-".join(m) for m in MECHANISMS])


@each_mechanism
def test_restore_leaves_no_trace(policy: str, engine: str) -> None:
    model = build("llama", lora=True)
    step(model)  # transformers registers hooks of its own in the first forward
    before, keys = fingerprint(model), list(model.state_dict())
    handle = apply(model, policy, engine=engine)
    assert list(model.state_dict()) == keys
    with handle.measure():
        step(model)
    handle.restore()
    model.zero_grad()
    assert fingerprint(model) == before
    handle.restore()  # a second time changes nothing
    assert fingerprint(model) == before


@each_mechanism
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["copy", "pickle"])
def test_copies_keep_the_policy_and_their_own_weights(policy: str, engine: str, duplicate) -> None:
    model = build("llama")
    reference = step(model)
    apply(model, policy, engine=engine)
    twin = duplicate(model)
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()  # a copy that still called the original would notice
    assert same(step(twin), reference)


@each_mechanism
def test_switching_off_and_on_again(policy: str, engine: str) -> None:
    """TRL does so around generation, PEFT while it prepares a model."""
    model = build("llama")
    reference = step(model)
    handle = apply(model, policy, engine=engine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        model.gradient_checkpointing_disable()
        with handle.measure():
            assert same(step(model), reference)
        assert sum(layer.replays for layer in handle.report().layers) == 0
        model.gradient_checkpointing_enable({"use_reentrant": True})
    with handle.measure():
        assert same(step(model), reference)
    assert all(layer.replays > 0 for layer in handle.report().layers)
    handle.restore()


def test_takes_over_without_double_checkpointing() -> None:
    model = build("llama")
    reference = step(model)
    model.gradient_checkpointing_enable()  # the name that every supported version has
    handle = apply(model, "every(2)")
    with handle.measure():
        assert same(step(model), reference)
    assert [layer.replays for layer in handle.report().layers] == [1, 0, 1, 0]
    handle.restore()
    assert all(layer.gradient_checkpointing for layer in model.model.layers), "what the user had is back"


def test_kv_cache_is_off_on_every_sub_config() -> None:
    model = build_vlm()
    model.config.text_config.use_cache = True
    handle = apply(model, "full")
    assert model.config.text_config.use_cache is False
    handle.restore()
    assert model.config.text_config.use_cache is True


def test_generation_is_untouched() -> None:
    model = build("llama").eval()
    prompt = batch(1, 5)
    before = model.generate(prompt, max_new_tokens=6, do_sample=False)
    apply(model, "attention+norm")
    assert torch.equal(model.generate(prompt, max_new_tokens=6, do_sample=False), before)


def test_evaluation_and_no_grad_do_not_recompute() -> None:
    model = build("llama")
    handle = apply(model, "attention")
    handle.start_measuring()
    with torch.no_grad():
        model(input_ids=batch())
    model.eval()(input_ids=batch())
    handle.stop_measuring()
    assert not handle.report().measured


def test_user_hooks_and_accumulation() -> None:
    model = build("llama")
    seen: list[torch.Size] = []
    model.model.layers[1].register_forward_hook(lambda m, a, out: seen.append(getattr(out, "shape", None)))

    def two_backwards() -> list[torch.Tensor]:
        model.zero_grad()
        torch.manual_seed(1)
        for length in (12, 7):
            ids = batch(2, length)
            model(input_ids=ids, labels=ids).loss.backward()
        return [p.grad.clone() for p in model.parameters()]

    reference = two_backwards()
    for policy, engine in MECHANISMS:
        handle = apply(model, policy, engine=engine)
        assert all(torch.equal(a, b) for a, b in zip(two_backwards(), reference, strict=True)), policy
        handle.restore()
    assert len(seen) >= 10


def test_two_forwards_before_a_backward() -> None:
    model = build("llama")

    def run() -> list[torch.Tensor]:
        model.zero_grad()
        torch.manual_seed(1)
        (model(input_ids=batch(2, 9)).logits.sum() + model(input_ids=batch(1, 5)).logits.sum()).backward()
        return [p.grad.clone() for p in model.parameters()]

    reference = run()
    for policy, engine in MECHANISMS:
        handle = apply(model, policy, engine=engine)
        assert all(torch.equal(a, b) for a, b in zip(run(), reference, strict=True)), policy
        handle.restore()


@each_mechanism
def test_a_forward_that_raises_leaves_nothing_open(policy: str, engine: str) -> None:
    model = build("llama")
    reference = step(model)
    apply(model, policy, engine=engine)

    def fail(*_: object) -> None:
        raise RuntimeError("out of order")

    hook = model.model.layers[1].mlp.register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of order"):
        step(model)
    hook.remove()
    x = torch.ones(3, requires_grad=True)
    (x * x).sum().backward()  # a saved-tensor hook left behind would show here
    assert same(step(model), reference)


def test_double_checkpointing_is_refused() -> None:
    model = build("llama")
    handle = apply(model, "full")
    with pytest.raises(ConflictError, match="has an hf-ckpt policy already"):
        apply(model, "full")
    handle.restore()
    layer = type(model.model.layers[0])
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, layer))
    with pytest.raises(ConflictError, match="wrapped in torch's CheckpointWrapper"):
        apply(model, "full")


def test_data_parallel_copies_are_refused():
    wrapped = torch.nn.DataParallel(build("llama"))
    wrapped.device_ids = [0, 1]  # what it has where two GPUs are visible
    with pytest.raises(ConflictError, match=r"nn.DataParallel runs this model on 2 GPUs, .* CUDA_VISIBLE_DEVICES=0"):
        apply(wrapped, "full")


def test_a_refused_policy_leaves_the_model_alone() -> None:
    model = build("llama")
    before = fingerprint(model)
    for policy, engine in (
        ("layers(9)", "traced"),
        ("full@first(2)+save_only_these_names(nonsense)@last(1)", "traced"),
        ("full@first(2)+(dots_saveable+norm)@last(2)", "torch"),
    ):
        with pytest.raises(CkptError):
            apply(model, policy, engine=engine)
    assert fingerprint(model) == before


class PlainBlock(nn.Module):
    """A decoder block that knows nothing of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm = nn.LayerNorm(16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(x)


class PlainModel(nn.Module):
    """A model outside transformers: no switch, no config."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(PlainBlock() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize("policy", ["full", "attention+norm", "mlp", "dots_saveable", "segments(2)"])
def test_models_without_transformers_switch(policy: str) -> None:
    torch.manual_seed(0)
    model = PlainModel().train()
    x = torch.randn(2, 5, 16)

    def run() -> list[torch.Tensor]:
        model.zero_grad()
        model(x).square().mean().backward()
        return [p.grad.clone() for p in model.parameters()]

    reference = run()
    handle = apply(model, policy)
    with handle.measure():
        assert all(torch.equal(a, b) for a, b in zip(run(), reference, strict=True))
    assert all(layer.replays for layer in handle.report().layers)
    handle.restore()


@pytest.mark.parametrize("policy", ["full+offload", "budget=0.5+offload"])
def test_offload_needs_a_device_to_come_from(policy: str) -> None:
    with pytest.raises(PolicyError, match="they are in host memory already"):
        apply(build("llama"), policy)


@pytest.mark.cuda
def test_offload_is_bitwise_on_a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("offload copies from a CUDA device, and there is none here")
    model = build("qwen3").cuda()
    ids = batch().cuda()
    reference = step(model, ids)
    handle = apply(model, "budget=0.3+offload")
    for _ in range(3):
        assert same(step(model, ids), reference)
    handle.restore()


@pytest.mark.parametrize("policy", ["head(1)", "full+head(1)", "budget=100GiB+head(1)"])
def test_one_chunk_is_the_models_own_head_under_any_factor(policy):
    ids = torch.arange(24).reshape(2, 12) % 90

    def gradients(model):
        torch.manual_seed(1)
        (0.3 * model(input_ids=ids, labels=ids).loss).backward()
        return [parameter.grad for parameter in model.parameters()]

    model = build("llama")
    plain = gradients(build("llama"))
    apply(model, policy)
    assert all(map(torch.equal, gradients(model), plain))
