"""Predicted against counted memory.

On CPU: bytes that the decoder layers hold after the forward, predicted from the metadata of the layers' calls, against
the storages that autograd really holds, for ten architectures, five policies, full fine-tuning and LoRA. Exits 1 when one of
them is more than 1 % off or a gradient differs from the uncheckpointed one by a bit.

On CUDA (``--cuda``): the predicted peak of a step against ``torch.cuda.max_memory_allocated``, at most 5 % off.

    python tests/benchmarks/predict.py [--only llama] [--cuda]
"""

from __future__ import annotations

import argparse
import sys
import warnings

import torch
import transformers
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

import hf_ckpt
from hf_ckpt.anatomy import read_anatomy
from hf_ckpt.engine import ledger_of, select
from hf_ckpt.head.options import head_option
from hf_ckpt.head.shape import head_shape
from hf_ckpt.planner.assemble import assemble
from hf_ckpt.planner.budget import held_without_checkpointing
from hf_ckpt.planner.calibrate import calibration
from hf_ckpt.planner.problem import HeadOption, LayerPlan, Limits, assess
from hf_ckpt.planner.solve import solve
from hf_ckpt.planner.state import gradient_bytes, static_state
from hf_ckpt.policy import decide, parse_policy

POLICIES = ("none", "full", "attention", "mlp", "budget=0.5")
SMALL = {
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 211,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
ARCHITECTURES = {
    "llama": ("LlamaConfig", SMALL),
    "qwen2": ("Qwen2Config", SMALL),
    "qwen3": ("Qwen3Config", SMALL | {"head_dim": 16}),
    "gemma3": ("Gemma3TextConfig", SMALL | {"head_dim": 16}),
    "mistral": ("MistralConfig", SMALL),
    "phi3": ("Phi3Config", SMALL),
    "olmo2": ("Olmo2Config", SMALL),
    "granite": ("GraniteConfig", SMALL),
    "gpt2": ("GPT2Config", {"n_layer": 3, "n_embd": 64, "n_head": 4, "vocab_size": 211}),
    "mixtral": ("MixtralConfig", SMALL | {"num_local_experts": 4}),
}


def build(name: str, lora: bool, device: torch.device, **larger: int) -> torch.nn.Module:
    torch.manual_seed(0)
    config_name, sizes = ARCHITECTURES[name]
    config = getattr(transformers, config_name)(**(sizes | larger))
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).to(device)
    if lora:
        # PEFT adapts fused expert weights without dropout only.
        targets = ["q_proj", "v_proj"] if name == "mixtral" else "all-linear"
        model = get_peft_model(model, LoraConfig(r=4, target_modules=targets, lora_dropout=0.1))
    return model.train()


def batch(device: torch.device, rows: int = 2, length: int = 48) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(3, 200, (rows, length), generator=generator).to(device)


def step(model: torch.nn.Module, ids: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    torch.manual_seed(2)
    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def ledgers_of(model: torch.nn.Module, ids: torch.Tensor) -> list:
    """The ledger of every layer, from how a forward without checkpointing calls it."""
    ledgers = []

    def note(call, *args):
        ledgers.append(ledger_of(call, *args))
        return call(*args)

    modules = [layer.module for layer in read_anatomy(model).layers]
    for module in modules:
        module.gradient_checkpointing, module._gradient_checkpointing_func = True, note
    model(input_ids=ids, use_cache=False)
    for module in modules:
        module.gradient_checkpointing = False
        del module._gradient_checkpointing_func
    return ledgers


def layer_plans(model, ledgers, policy, problem) -> list[LayerPlan]:
    """The plan of every layer under ``policy``."""
    if policy.startswith("budget="):
        share = float(policy.removeprefix("budget="))
        return list(solve(problem, Limits(held=int(share * held_without_checkpointing(problem)))).layers)
    anatomy = read_anatomy(model)
    decisions = decide(parse_policy(policy), anatomy.stacks)
    plans = []
    for layer, ledger in zip(anatomy.layers, ledgers, strict=True):
        selection = select(decisions[layer.info.name], ledger, layer.info.sublayers)
        plans.append(LayerPlan(selection.kept, selection.offloaded))
    return plans


def predicted_held(name: str, lora: bool, ids: torch.Tensor) -> dict[str, int]:
    model = build(name, lora, ids.device)
    ledgers = ledgers_of(model, ids)
    problem = assemble(ledgers, calibration(ids.device))
    return {
        policy: assess(problem, layer_plans(model, ledgers, policy, problem), HeadOption(1, 0)).held + problem.shared
        for policy in POLICIES
    }


def counted_held(name: str, lora: bool, policy: str, ids: torch.Tensor) -> tuple[int, bool]:
    """Bytes the layers hold in a real step, and whether all gradients are bitwise those of no checkpointing."""
    model = build(name, lora, ids.device)
    reference = step(model, ids)
    handle = hf_ckpt.apply(model, policy)
    step(model, ids)
    with handle.measure():
        gradients = step(model, ids)
    held = sum(layer.held_bytes or 0 for layer in handle.report().layers)
    handle.restore()
    return held, all(torch.equal(a, b) for a, b in zip(reference, gradients, strict=True))


def on_cpu(names: list[str]) -> bool:
    ids, fine = batch(torch.device("cpu")), True
    print(f"{'model':10s}{'tuning':8s}{'policy':12s}{'predicted':>12s}{'counted':>12s}{'off':>9s}  gradients")
    for name in names:
        for lora in (False, True):
            predictions = predicted_held(name, lora, ids)
            for policy, predicted in predictions.items():
                counted, bitwise = counted_held(name, lora, policy, ids)
                off = predicted / counted - 1
                fine &= abs(off) <= 0.01 and bitwise
                print(
                    f"{name:10s}{'LoRA' if lora else 'full':8s}{policy:12s}{predicted:12d}{counted:12d}{off:9.3%}"
                    f"  {'bitwise equal' if bitwise else 'DIFFERENT'}"
                )
    return fine


def on_cuda(names: list[str]) -> bool:
    device, fine = torch.device("cuda"), True
    ids = batch(device, 4, 1024)
    larger = {"num_hidden_layers": 8, "hidden_size": 1024, "intermediate_size": 2816, "vocab_size": 32000}
    for name in [n for n in names if n != "gpt2"]:
        for lora in (False, True):
            for policy in POLICIES:
                model = build(name, lora, device, **larger)
                ledgers = ledgers_of(model, ids)
                shape = head_shape(model, ids.numel())
                head = head_option(shape, 1, 1.0)
                layers = read_anatomy(model).layers
                grown = [gradient_bytes(layer.module.parameters()) for layer in layers]
                problem = assemble(
                    ledgers,
                    calibration(device),
                    gradients=grown,
                    heads=(head,),
                    head_gradients=gradient_bytes(model.parameters()) - sum(grown),
                )
                plans = layer_plans(model, ledgers, policy, problem)
                state = static_state(model)
                predicted = state.parameters + state.buffers + assess(problem, plans, head).peak
                handle = hf_ckpt.apply(model, policy)
                for _ in range(2):
                    step(model, ids)
                model.zero_grad()
                torch.cuda.reset_peak_memory_stats()
                model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
                counted = torch.cuda.max_memory_allocated()
                handle.restore()
                off = predicted / counted - 1
                fine &= abs(off) <= 0.05
                print(f"{name:10s}{'LoRA' if lora else 'full':8s}{policy:12s}{predicted:14d}{counted:14d}{off:9.2%}")
    return fine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(ARCHITECTURES), default=list(ARCHITECTURES))
    parser.add_argument("--cuda", action="store_true", help="peak on CUDA instead of held bytes on CPU")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sys.exit(0 if (on_cuda if chosen.cuda else on_cpu)(chosen.only) else 1)


if __name__ == "__main__":
    main()
