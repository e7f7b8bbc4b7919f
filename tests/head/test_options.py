"""The head's predicted bytes against bytes counted in a real step."""

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.weak import WeakIdKeyDictionary
from transformers import AutoModelForCausalLM, LlamaConfig

from hf_ckpt.head.install import install
from hf_ckpt.head.options import HeadShape, head_option, head_options
from hf_ckpt.head.shape import head_shape

TOKENS, VOCABULARY = 256, 4000
CONFIG = LlamaConfig(
    num_hidden_layers=1,
    hidden_size=32,
    intermediate_size=32,
    num_attention_heads=2,
    vocab_size=VOCABULARY,
    use_cache=False,
)


class PeakBytes(TorchDispatchMode):
    """The peak of the bytes made under it."""

    def __init__(self):
        super().__init__()
        self.storages, self.peak = WeakIdKeyDictionary(), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in tree_iter(out):
            if isinstance(x, torch.Tensor):
                self.storages[x.untyped_storage()] = x.untyped_storage().nbytes()
        self.peak = max(self.peak, sum(self.storages.values()))
        return out


def peak(model, autocast=False):
    ids = torch.randint(0, VOCABULARY, (2, TOKENS // 2))
    with PeakBytes() as counted:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
    return counted.peak


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("trained", [True, False])
def test_predicted_peaks(dtype, trained):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG, dtype=dtype)
    model.lm_head.requires_grad_(trained)
    shape = head_shape(model, TOKENS)
    counted, predicted = [], []
    for chunks in (1, 4, 16):
        model.zero_grad()
        handle = install(model, chunks)
        counted.append(peak(model))
        handle.restore()
        predicted.append(head_option(shape, chunks, 1e10).nbytes)
    # What the rest of the step takes is the same in all three.
    rest = [c - p for c, p in zip(counted, predicted, strict=True)]
    assert max(rest) - min(rest) < 0.001 * predicted[0]


@pytest.mark.parametrize("width", [32, 512])
@pytest.mark.parametrize("trained", [True, False])
def test_predicted_peaks_where_autocast_copies_the_weights(trained, width):
    torch.manual_seed(0)
    config = LlamaConfig(**{**CONFIG.to_diff_dict(), "hidden_size": width, "tie_word_embeddings": False})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.lm_head.requires_grad_(trained)
    shape = replace(head_shape(model, TOKENS), copied=2)
    rest = []
    for chunks in (1, 4):
        model.zero_grad()
        handle = install(model, chunks)
        rest.append(peak(model, autocast=True) - head_option(shape, chunks, 1e10).nbytes)
        handle.restore()
    gradient_of_hidden_states = 4 * TOKENS * width  # not counted
    assert abs(rest[0] - rest[1]) <= gradient_of_hidden_states


def test_options_get_smaller_and_dearer():
    shape = head_shape(AutoModelForCausalLM.from_config(CONFIG, dtype=torch.float32), TOKENS)
    options = head_options(shape, 1e10)
    assert [o.chunks for o in options] == [1, 2, 4, 8, 16, 32, 64]
    assert [o.seconds for o in options] == sorted(o.seconds for o in options)
    assert options[0].seconds == 0
    assert options[-1].nbytes < options[0].nbytes / 8


def test_more_chunks_are_options_while_logits_are_most_of_what_the_head_takes():
    def chunks(tokens, norm_chunks):
        shape = HeadShape(tokens, 128256, 1024, 2, trained=False, norm_chunks=norm_chunks)
        return [o.chunks for o in head_options(shape, 1e12)][-1]

    assert chunks(500_000, 16) == 256
    assert chunks(500_000, 1) == 128  # the norm before it takes as much then
    assert chunks(100, 16) == 64


@pytest.mark.parametrize("trained", [True, False])
def test_a_head_holds_less_until_backward_than_its_backward_takes(trained):
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG, dtype=torch.float32)
    model.lm_head.requires_grad_(trained)
    model.model.requires_grad_(False)
    model.model.norm.requires_grad_()
    ids = torch.randint(0, VOCABULARY, (2, TOKENS // 2))
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    for chunks in (1, 16):
        handle = install(model, chunks) if chunks > 1 else None
        with PeakBytes() as counted:
            made = model(input_ids=ids, labels=ids)
            held = sum(n for s, n in counted.storages.items() if s.data_ptr() not in weights)
        option = head_option(head_shape(model, TOKENS), chunks, 1e10)
        assert 0.99 * held <= option.held <= 1.4 * held
        assert option.held < option.nbytes
        del made
    handle.restore()


def test_a_model_without_a_head_has_no_shape():
    assert head_shape(torch.nn.Linear(2, 2), 8) is None
