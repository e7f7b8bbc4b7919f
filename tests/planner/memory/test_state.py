"""Predicted static state against the real thing after one real step."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.optimization import Adafactor

from hf_ckpt.planner.memory.device_memory import device_memory, process_limit
from hf_ckpt.planner.memory.optimizers import rule_for
from hf_ckpt.planner.memory.state import static_state, storage_bytes


def config():
    """A new one: ``from_config`` writes the dtype of the model into the config that it is given."""
    return LlamaConfig(
        num_hidden_layers=2,
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=4,
        vocab_size=300,
        tie_word_embeddings=True,
    )


def model(dtype=torch.float32):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config(), dtype=dtype).train()


def train_one_step(net, optimizer):
    ids = torch.arange(16).reshape(1, 16)
    net(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()


OPTIMIZERS = {
    "AdamW": lambda ps: torch.optim.AdamW(ps),
    "SGD": lambda ps: torch.optim.SGD(ps, lr=0.1),
    "SGD momentum": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9),
    "Adagrad": lambda ps: torch.optim.Adagrad(ps),
    "Adafactor": lambda ps: Adafactor(ps, lr=0.1, relative_step=False, scale_parameter=False),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_prediction_before_the_first_step(name, dtype, lora):
    net = model(dtype)
    if lora:
        net = get_peft_model(net, LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    optimizer = OPTIMIZERS[name]([p for p in net.parameters() if p.requires_grad])
    before = static_state(net, optimizer)
    assert before.optimizer_known
    train_one_step(net, optimizer)
    after = static_state(net, optimizer)
    assert before.parameters == storage_bytes(net.parameters())
    assert before.gradients == after.gradients_now > 0
    steps = 4 * len(list(net.parameters())) + 64
    assert after.optimizer_now == pytest.approx(before.optimizer, abs=max(steps, 0.02 * before.optimizer))
    assert after.to_come <= steps


def test_tied_weights_count_once():
    net = model()
    assert static_state(net).parameters == sum(4 * p.numel() for p in net.parameters())


def test_a_model_without_weights_counts_the_same():
    with torch.device("meta"):
        dry = AutoModelForCausalLM.from_config(config())
    assert static_state(dry, "adamw_torch") == static_state(model(), "adamw_torch")


@pytest.mark.parametrize(
    ("name", "moments", "itemsize"),
    [
        ("adamw_torch_fused", 2, None),
        ("adamw_torch", 2, None),
        ("adamw_8bit", 2, 1),
        ("adamw_bnb_8bit", 2, 1),
        ("AdamW8bit", 2, 1),
        ("paged_adamw_8bit", 0, None),
        ("lion_8bit", 1, 1),
        ("sgd", 0, None),
        ("adagrad", 1, None),
    ],
)
def test_names_of_training_arguments(name, moments, itemsize):
    rule = rule_for(name)
    assert (rule.moments, rule.itemsize, rule.known) == (moments, itemsize, True)


def test_an_unknown_optimizer_is_taken_for_adam():
    assert not rule_for("shampoo").known
    assert not static_state(model(), "shampoo").optimizer_known


def test_process_limit(tmp_path):
    assert process_limit(tmp_path) is None
    (tmp_path / "memory.max").write_text("max\n")
    assert process_limit(tmp_path) is None
    (tmp_path / "memory.max").write_text("1073741824\n")
    assert process_limit(tmp_path) == 1 << 30
    assert device_memory(torch.device("cpu")).used > 1 << 20
