"""What a user may do with a model, in any order: after every step the gradients are those of an untouched twin."""

from __future__ import annotations

import copy
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import hf_ckpt

from ..models import VOCABULARY
from ..module_state import thread_state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import nn

POLICIES = (
    ("full", "traced"), ("balanced", "traced"), ("attention", "traced"), ("dots_saveable", "traced"),
    ("budget=0.5", "traced"), ("budget=100GiB+head(1)", "traced"), ("norm+mlp@first(1)", "torch"), ("segments(2)", "torch"),
)  # fmt: skip
MODELS = ("gpt2", "adapters")
_SPECIAL = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}

batches = st.tuples(st.integers(1, 3), st.sampled_from((3, 8, 13)), st.integers(0, 3))


# A KV cache, which checkpointing switches off, would send copies of keys through other kernels in the twin.
@cache
def _built(name: str) -> nn.Module:
    torch.manual_seed(0)
    if name == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=VOCABULARY, use_cache=False, **_SPECIAL)
        )
    return adapted_llama()


def adapted_llama() -> Any:
    """A Llama with dropout and two LoRA adapters on different modules, one of them with dropout."""
    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=16, intermediate_size=32, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=2,
            vocab_size=VOCABULARY, attention_dropout=0.1, use_cache=False, **_SPECIAL,
        )
    )  # fmt: skip
    adapter = LoraConfig(r=2, lora_dropout=0.2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    model = get_peft_model(model, adapter, "a")
    model.add_adapter("b", LoraConfig(r=3, target_modules=["v_proj", "up_proj"], init_lora_weights=False))
    return model


class OursAndTwin(RuleBasedStateMachine):
    """One model under policies and its twin without: whatever is done to one is done to the other."""

    #: Of all examples of this process.
    examples = 0
    steps = 0

    @initialize(name=st.sampled_from(MODELS))
    def start(self, name: str) -> None:
        """A model and its twin."""
        type(self).examples += 1
        self.has_adapters = name == "adapters"
        self.ours, self.twin = (copy.deepcopy(_built(name)).train() for _ in range(2))
        self.handle: hf_ckpt.Handle | None = None
        self.thread = thread_state()

    @property
    def both(self) -> Iterator[Any]:
        """The two models."""
        return iter((self.ours, self.twin))

    def applied(self) -> bool:
        """Whether a policy is on."""
        return self.handle is not None

    @rule(policy=st.sampled_from(POLICIES))
    def apply_or_restore(self, policy: tuple[str, str]) -> None:
        """A policy goes on, or the one that is on comes off."""
        if self.handle is None:
            self.handle = hf_ckpt.apply(self.ours, policy[0], engine=policy[1])
        else:
            self.handle.restore()
            self.handle = None
            assert not list(left_on(self.ours))

    @rule(on=st.booleans())
    def transformers_switch(self, on: bool) -> None:
        """transformers' own switch, while a policy is on or not."""
        for model in self.both:
            model.gradient_checkpointing_enable() if on else model.gradient_checkpointing_disable()

    @rule(mode=st.booleans())
    def mode(self, mode: bool) -> None:
        """Training or evaluation mode."""
        for model in self.both:
            model.train(mode)

    @rule(batch=batches)
    def step(self, batch: tuple[int, int, int]) -> None:
        """A training step."""
        self.compare(lambda model: _loss(model, batch))

    @rule(first=batches, second=batches)
    def several_forwards(self, first: tuple[int, int, int], second: tuple[int, int, int]) -> None:
        """Two forwards before one backward."""
        self.compare(lambda model: _loss(model, first) + 0.5 * _loss(model, second))

    @rule(batch=batches, other=batches)
    def no_grad_inside(self, batch: tuple[int, int, int], other: tuple[int, int, int]) -> None:
        """A forward without gradients between a forward and its backward."""

        def loss(model: Any) -> torch.Tensor:
            kept = _loss(model, batch)
            with torch.no_grad():
                outer = _loss(model, other)
                with torch.enable_grad():
                    inner = _loss(model, other)
            return kept + inner * outer

        self.compare(loss)

    @rule(batch=batches)
    def dropped(self, batch: tuple[int, int, int]) -> None:
        """A forward whose backward never comes."""
        for model in self.both:
            _loss(model, batch)

    @rule(batch=batches)
    def generate(self, batch: tuple[int, int, int]) -> None:
        """Tokens are generated."""
        made = []
        for model in self.both:
            torch.manual_seed(2)  # dropout draws in training mode
            made.append(model.generate(input_ids=_ids(batch), max_new_tokens=2, do_sample=False))
        assert torch.equal(*made)

    @rule(batch=batches)
    def evaluate(self, batch: tuple[int, int, int]) -> None:
        """Logits without gradients."""
        made = []
        for model in self.both:
            torch.manual_seed(3)
            with torch.no_grad():
                made.append(model(input_ids=_ids(batch)).logits)
        assert torch.equal(*made)

    @precondition(lambda self: self.has_adapters)
    @rule(name=st.sampled_from(("a", "b")))
    def adapter(self, name: str) -> None:
        """Another adapter is trained from now on."""
        for model in self.both:
            model.set_adapter(name)

    @precondition(lambda self: self.has_adapters)
    @rule(batch=batches)
    def without_adapter(self, batch: tuple[int, int, int]) -> None:
        """A reference forward with the adapters off, beside one with them on."""

        def loss(model: Any) -> torch.Tensor:
            kept = _loss(model, batch)
            with torch.no_grad(), model.disable_adapter():
                return kept + _loss(model, batch)

        self.compare(loss)

    @rule(share=st.sampled_from((2, 3)), trained=st.booleans())
    def freeze(self, share: int, trained: bool) -> None:
        """Every second or third weight is frozen, or trained again."""
        for model in self.both:
            for parameter in list(model.parameters())[::share]:
                parameter.requires_grad_(trained)

    @rule(batch=batches)
    def deepcopy(self, batch: tuple[int, int, int]) -> None:
        """A copy, made with or without a policy on it, trains as a copy of the twin does."""
        _check_same(*(_result(copy.deepcopy(model), lambda model: _loss(model, batch)) for model in self.both))

    @rule()
    def save_and_load(self) -> None:
        """The state is the twin's, and the twin can be loaded with it."""
        saved = copy.deepcopy(self.ours.state_dict())
        assert list(saved) == list(self.twin.state_dict())
        for model in self.both:
            model.load_state_dict({key: value * 0.5 for key, value in saved.items()})

    @rule(dtype=st.sampled_from((torch.float32, torch.bfloat16)))
    def dtype(self, dtype: torch.dtype) -> None:
        """Weights in another type."""
        for model in self.both:
            model.to(dtype)

    @invariant()
    def leaves_the_thread_alone(self) -> None:
        """No hook or mode stays open."""
        if hasattr(self, "thread"):
            assert thread_state() == self.thread

    def compare(self, loss: Callable[[Any], torch.Tensor]) -> None:
        """A step of both, and the optimizer's."""
        type(self).steps += 1
        _check_same(*(_result(model, loss) for model in self.both))
        for model in self.both:
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.01 * parameter.grad

    def teardown(self) -> None:
        """One more step after whatever came before; then nothing of ours is left on a model."""
        if not hasattr(self, "thread"):  # it did not begin
            return
        self.compare(lambda model: _loss(model, (2, 8, 0)))
        if self.handle is not None:
            self.handle.restore()
            assert not list(left_on(self.ours))


def left_on(model: nn.Module) -> Iterator[str]:
    """Where something of hf_ckpt's stands on a model."""
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            for part in value.values() if isinstance(value, dict) else (value,):
                owner = getattr(part, "__self__", part)
                if type(owner).__module__.startswith("hf_ckpt"):
                    yield f"{name}: {key}"


def _ids(batch: tuple[int, int, int]) -> torch.Tensor:
    size, length, seed = batch
    return torch.randint(3, VOCABULARY, (size, length), generator=torch.Generator().manual_seed(seed))


def _loss(model: Any, batch: tuple[int, int, int]) -> torch.Tensor:
    ids = _ids(batch)
    return model(input_ids=ids, labels=ids).loss


def _result(model: Any, loss: Callable[[Any], torch.Tensor]) -> list[torch.Tensor | None]:
    model.zero_grad()
    torch.manual_seed(1)
    found = loss(model)
    if found.requires_grad:
        found.backward()
    after = torch.get_rng_state()
    return [found.detach(), after, *(parameter.grad for parameter in model.parameters())]


def _check_same(ours: list[torch.Tensor | None], theirs: list[torch.Tensor | None]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        assert a is None or torch.equal(_bits(a), _bits(b))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).contiguous().view(torch.uint8)
