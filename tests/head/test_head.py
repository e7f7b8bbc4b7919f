"""The chunked head against the plain one: same loss, same gradients, nothing left behind."""

import copy
import logging

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    BertConfig,
    Cohere2Config,
    Gemma2Config,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    GraniteConfig,
    LlamaConfig,
    MixtralConfig,
    Qwen3Config,
)

from hf_ckpt.errors import CkptError, ConflictError, ModelStructureError, PolicyError
from hf_ckpt.head.deferred import DeferredLogits
from hf_ckpt.head.install import install

SIZE = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 211,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
CONFIGS = {
    "llama": LlamaConfig(**SIZE),
    "llama-tied": LlamaConfig(**SIZE, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZE),
    "gemma2-softcapped": Gemma2Config(**SIZE, final_logit_softcapping=3.0),
    "gemma3": Gemma3TextConfig(**SIZE),
    "cohere2-scaled": Cohere2Config(**SIZE, logit_scale=0.3),
    "granite-scaled": GraniteConfig(**SIZE, logits_scaling=2.0),
    "mixtral-aux": MixtralConfig(**SIZE, num_local_experts=4, output_router_logits=True),
    "gpt2": GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=211, bos_token_id=1, eos_token_id=2),
    "gpt_neox": GPTNeoXConfig(
        num_hidden_layers=2, hidden_size=32, intermediate_size=64, num_attention_heads=2, vocab_size=211
    ),
}


#: Kernels round each chunk's weight gradient to bfloat16 (half an ulp is 2**-9), as they do the unchunked one.
BFLOAT16 = 2**-7


def build(name, dtype=torch.float32):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIGS[name], dtype=dtype).train()


def batch(tokens=37):
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 211, (3, tokens), generator=generator)
    labels = ids.clone()
    labels[0, :20] = -100
    labels[2] = -100
    return {"input_ids": ids, "labels": labels}


def step(model, scale=1.0, **extra):
    model.zero_grad()
    torch.manual_seed(7)
    out = model(**batch(), **extra)
    (out.loss * scale).backward()
    return out.loss.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def both(model, chunks, **options):
    plain = step(model, **options)
    handle = install(model, chunks)
    chunked = step(model, **options)
    assert handle.uses == 1
    handle.restore()
    return plain, chunked


def assert_equal(plain, chunked):
    assert torch.equal(plain[0], chunked[0])
    assert plain[1].keys() == chunked[1].keys()
    assert [n for n in plain[1] if not torch.equal(plain[1][n], chunked[1][n])] == []


def assert_close(plain, chunked, rtol=1e-5):
    """Equal within float32 summation order: relative to the largest entry of each gradient."""
    torch.testing.assert_close(chunked[0], plain[0], rtol=rtol, atol=0)
    assert plain[1].keys() == chunked[1].keys()
    for name, gradient in plain[1].items():
        torch.testing.assert_close(chunked[1][name], gradient, rtol=rtol, atol=rtol * float(gradient.abs().max()))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("items", [None, 50, torch.tensor(50)], ids=["mean", "items", "items tensor"])
def test_one_chunk_is_bitwise_equal(name, items):
    options = {} if items is None else {"num_items_in_batch": items}
    assert_equal(*both(build(name), 1, **options))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("chunks", [2, 5, 1000])
def test_chunks_are_equal_within_summation_order(name, chunks):
    assert_close(*both(build(name), chunks, num_items_in_batch=50))


@pytest.mark.parametrize("name", ["llama", "gemma2-softcapped", "llama-tied"])
def test_bfloat16(name):
    assert_equal(*both(build(name, torch.bfloat16), 1))
    assert_close(*both(build(name, torch.bfloat16), 4), rtol=BFLOAT16)


def test_autocast():
    model = build("llama")
    with torch.autocast("cpu", torch.bfloat16):
        assert_equal(*both(model, 1))
        assert_close(*both(model, 4), rtol=BFLOAT16)


@pytest.mark.parametrize("scale", [0.25, 3.0])
def test_a_scaled_loss(scale):
    model = build("llama")
    (assert_equal if scale == 0.25 else assert_close)(*both(model, 1, scale=scale))


@pytest.mark.parametrize("targets", [["q_proj", "v_proj"], ["q_proj", "lm_head"]], ids=["body", "head"])
def test_lora(targets):
    model = get_peft_model(build("llama"), LoraConfig(r=4, target_modules=targets, lora_dropout=0.0))
    model.print_trainable_parameters()
    assert_equal(*both(model, 1))
    assert_close(*both(model, 4))


def test_a_frozen_body():
    model = build("llama")
    model.model.requires_grad_(False)
    assert_equal(*both(model, 1))


def test_no_label_at_all_is_nan_as_before():
    model = build("llama")
    labels = torch.full((1, 8), -100)
    install(model, 3)
    assert model(input_ids=torch.ones(1, 8, dtype=torch.long), labels=labels).loss.isnan()


def test_shifted_labels_are_taken_as_they_are():
    model = build("llama")
    inputs = batch()
    shifted = torch.nn.functional.pad(inputs["labels"], (0, 1), value=-100)[..., 1:]
    want = model(**inputs).loss
    install(model, 1)
    assert torch.equal(model(**inputs, shift_labels=shifted).loss, want)


def test_gradient_of_the_loss_twice_with_retain_graph():
    model = build("llama")
    install(model, 2)
    loss = model(**batch()).loss
    loss.backward(retain_graph=True)
    once = model.lm_head.weight.grad.clone()
    loss.backward()
    assert torch.equal(model.lm_head.weight.grad, 2 * once)


def test_logits_are_there_for_whoever_reads_them():
    model = build("gemma2-softcapped")
    want = model(**batch())
    install(model, 4)
    out = model(**batch())
    assert isinstance(out.logits, DeferredLogits)
    assert out.logits.shape == want.logits.shape
    assert (out.logits.dtype, out.logits.device) == (want.logits.dtype, want.logits.device)
    assert torch.equal(out.logits.argmax(-1), want.logits.argmax(-1))
    assert torch.equal(out.logits[:, -1], want.logits[:, -1])
    model.zero_grad()
    out.logits.logsumexp(-1).sum().backward()
    got = model.lm_head.weight.grad.clone()
    model.zero_grad()
    want.logits.logsumexp(-1).sum().backward()
    assert torch.equal(got, model.lm_head.weight.grad)


def test_logits_read_after_the_step_are_an_error():
    model = build("llama")
    install(model, 4)
    out = model(**batch())
    out.loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    with pytest.raises(CkptError, match=r"before optimizer.step"):
        out.logits.sum()


@pytest.mark.parametrize("why", ["evaluation", "no labels", "no gradients"])
def test_other_calls_are_untouched(why):
    model = build("llama")
    handle = install(model, 4)
    inputs = batch()
    if why == "evaluation":
        model.eval()
    if why == "no labels":
        del inputs["labels"]
    with torch.set_grad_enabled(why != "no gradients"):
        out = model(**inputs)
    assert type(out.logits) is torch.Tensor
    assert handle.uses == 0


def test_a_failed_forward_leaves_the_switch_off():
    model = build("llama")
    install(model, 4)
    with pytest.raises(ValueError, match="batch_size"):
        model(input_ids=torch.ones(1, 4, dtype=torch.long), labels=torch.ones(1, 9, dtype=torch.long))
    assert type(model.lm_head(torch.zeros(1, 1, 32))) is torch.Tensor


def traces(model):
    return {
        n: (sorted(vars(m)), len(m._forward_hooks), len(m._forward_pre_hooks), len(m._forward_hooks_always_called))
        for n, m in model.named_modules()
    }


def test_restore_leaves_no_trace():
    model = build("llama")
    before = traces(model)
    keys = list(model.state_dict())
    handle = install(model, 4)
    assert list(model.state_dict()) == keys
    step(model)
    handle.restore()
    handle.restore()
    assert traces(model) == before
    assert type(model(**batch()).logits) is torch.Tensor


def test_restore_puts_earlier_instance_attributes_back():
    model = build("llama")
    plain = model.loss_function
    model.loss_function = plain
    forward = model.lm_head.forward
    model.lm_head.forward = forward
    handle = install(model, 4)
    step(model)
    handle.restore()
    assert vars(model)["_loss_function"] is plain
    assert vars(model.lm_head)["forward"] is forward


def test_a_deepcopy_is_on_its_own():
    model = build("llama")
    handle = install(model, 1)
    want = step(model)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.lm_head.weight.mul_(2)
    handle.restore()
    assert_equal(want, step(model))
    assert not torch.equal(step(twin)[0], want[0])
    assert isinstance(twin(**batch()).logits, DeferredLogits)


def test_chunks_can_be_changed():
    model = build("llama")
    handle = install(model, 1)
    want = step(model)
    handle.set_chunks(9)
    assert_close(want, step(model))


def custom_loss(logits, labels, vocab_size, **kwargs):
    return logits.float().logsumexp(-1).mean()


def test_a_custom_loss_is_left_alone(caplog):
    model = build("llama")
    model.loss_function = custom_loss
    with caplog.at_level(logging.WARNING):
        handle = install(model, 4)
    assert not handle.active
    assert "custom_loss" in handle.reason
    assert len(caplog.records) == 1
    handle.restore()
    assert model.loss_function is custom_loss


def test_a_custom_loss_set_later_gets_real_logits():
    model = build("llama")
    install(model, 4)
    model.loss_function = custom_loss
    model(**batch()).loss.backward()
    assert model.lm_head.weight.grad is not None


def test_dropout_in_the_head_is_left_alone():
    config = LoraConfig(r=4, target_modules=["lm_head"], lora_dropout=0.1)
    assert "dropout" in install(get_peft_model(build("llama"), config), 4).reason


def test_a_masked_language_model_is_left_alone():
    config = BertConfig(num_hidden_layers=1, hidden_size=32, num_attention_heads=2, intermediate_size=64, vocab_size=99)
    model = AutoModelForMaskedLM.from_config(config)
    assert not install(model, 4).active


def test_float16_is_left_alone():
    model = build("llama", torch.float16)
    install(model, 4)
    assert type(model(**batch()).logits) is torch.Tensor


def test_bad_input_is_one_sentence():
    model = build("llama")
    with pytest.raises(PolicyError, match="at least one chunk"):
        install(model, 0)
    with pytest.raises(ModelStructureError, match="no output embeddings"):
        install(torch.nn.Linear(2, 2), 4)
    install(model, 4)
    with pytest.raises(ConflictError, match="chunked already"):
        install(model, 4)
