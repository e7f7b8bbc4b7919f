"""Small real models under a batch planner."""

import torch
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig

from hf_ckpt.anatomy import read_anatomy
from hf_ckpt.engine import TracedReplay
from hf_ckpt.planner.batches.batch_planner import BatchPlanner, PlannedLayer
from hf_ckpt.planner.budget import DeviceMemory, parse_budget
from hf_ckpt.planner.costs.roofline import Calibration
from hf_ckpt.policy.decision import RecomputeLayer

RATES = Calibration(
    device="test",
    matmul={"half": 1e11, "single": 5e10},
    attention={"half": 5e10, "single": 2e10},
    stream=1e10,
    special={"half": 2e9, "single": 5e9},
    gather=3e9,
    random=3e9,
    per_op=1e-6,
    per_layer=1e-5,
)
CONFIGS = {
    "llama": LlamaConfig(
        num_hidden_layers=5,
        hidden_size=32,
        intermediate_size=64,
        num_attention_heads=2,
        vocab_size=97,
        use_cache=False,
    ),
    "gpt2-dropout": GPT2Config(n_layer=3, n_embd=32, n_head=2, vocab_size=97, use_cache=False),
}


def build(name="llama"):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(CONFIGS[name]).train()


def conduct(model, budget, **options):
    layers = []
    for layer in read_anatomy(model).layers:
        module, engine = layer.module, TracedReplay(layer.info.name, RecomputeLayer(), layer.info.sublayers)
        module.gradient_checkpointing, module._gradient_checkpointing_func = True, engine
        layers.append(PlannedLayer(module, engine))
    planner = BatchPlanner(model, layers, parse_budget(budget), RATES, **options)
    planner.attach()
    return planner


def nothing_used(total=None):
    """A device whose memory is all there for activations."""
    return lambda device: DeviceMemory(total, 0)
