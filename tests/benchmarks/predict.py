"""Predicted against counted memory.

Bytes that the decoder layers hold after the forward, predicted from the metadata of the layers' calls, against the
storages that autograd really holds, for ten architectures, five policies, full fine-tuning and LoRA. Exits 1 when one of
them is more than 1 % off or a gradient differs from the uncheckpointed one by a bit.

With ``--peak``: the predicted peak of a step against ``torch.cuda.max_memory_allocated``, on CPU against the storages
alive, at most 5 % off. Models are in bfloat16 on a GPU, and in float32 on a CPU.

    python -m tests.benchmarks.predict [--only llama] [--peak] [--out FILE]
"""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import TYPE_CHECKING, Any

import torch
import transformers
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

import hf_ckpt
from hf_ckpt.anatomy import read_anatomy
from hf_ckpt.engine import ledger_of, select
from hf_ckpt.head.options import head_option
from hf_ckpt.head.shape import head_shape
from hf_ckpt.measuring.peak import PeakMeter
from hf_ckpt.planner.budget import held_without_checkpointing
from hf_ckpt.planner.calibration.calibrate import calibration
from hf_ckpt.planner.costs.assemble import assemble, under
from hf_ckpt.planner.costs.assess import assess
from hf_ckpt.planner.costs.problem import HeadOption, Limits
from hf_ckpt.planner.memory.state import gradient_bytes, late_gradient_bytes
from hf_ckpt.planner.solver.solve import solve
from hf_ckpt.policy import decide, parse_policy

from .device import deterministic, here
from .record import add_out, record

if TYPE_CHECKING:
    from collections.abc import Sequence

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
#: For ``--peak``: rows and length of the batch, and a model in which layers weigh more than the rest.
PEAK_SIZES = {
    "cpu": ((2, 128), {"num_hidden_layers": 4, "hidden_size": 128, "intermediate_size": 352}),
    "cuda": (
        (4, 1024),
        {"num_hidden_layers": 8, "hidden_size": 1024, "intermediate_size": 2816, "vocab_size": 32000}
        | {"max_position_embeddings": 1024},
    ),
}
GPT2 = {"num_hidden_layers": "n_layer", "hidden_size": "n_embd", "intermediate_size": "n_inner"} | {
    "max_position_embeddings": "n_positions"
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


def layer_plans(model, ledgers, policy, problem) -> list:
    """The plan of every layer under ``policy``."""
    if policy.startswith("budget="):
        share = float(policy.removeprefix("budget="))
        return list(solve(problem, Limits(held=int(share * held_without_checkpointing(problem)))).layers)
    anatomy = read_anatomy(model)
    decisions = decide(parse_policy(policy), anatomy.stacks)
    plans = []
    for layer, ledger in zip(anatomy.layers, ledgers, strict=True):
        plans.append(select(decisions[layer.info.name], ledger, layer.info.sublayers))
    return plans


def predicted_held(name: str, lora: bool, ids: torch.Tensor) -> dict[str, int]:
    model = build(name, lora, ids.device)
    ledgers = ledgers_of(model, ids)
    problem = assemble(ledgers, calibration(ids.device))
    found = {}
    for policy in POLICIES:
        plans = layer_plans(model, ledgers, policy, problem)
        planned = under(problem, plans)
        found[policy] = assess(planned, plans, HeadOption(1, 0)).held + planned.shared
    return found


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


def helds(names: list[str], device: torch.device) -> list[dict[str, Any]]:
    ids, rows = batch(device), []
    for name in names:
        for lora in (False, True):
            for policy, predicted in predicted_held(name, lora, ids).items():
                with deterministic():
                    counted, bitwise = counted_held(name, lora, policy, ids)
                rows.append(row(name, lora, policy, predicted, counted) | {"bitwise_equal": bitwise})
    return rows


def row(name: str, lora: bool, policy: str, predicted: int, counted: int) -> dict[str, Any]:
    tuning, off = "LoRA" if lora else "full", round(predicted / counted - 1, 5)
    print(f"{name:10s}{tuning:8s}{policy:12s}{predicted:14d}{counted:14d}{off:9.2%}", file=sys.stderr)
    found = {"model": name, "tuning": tuning, "policy": policy}
    return found | {"predicted": predicted, "counted": counted, "off": off}


def peaks(names: list[str], device: torch.device) -> list[dict[str, Any]]:
    """Predicted and counted bytes at the peak of a step, above model and optimizer."""
    rows, ids, larger = [], *PEAK_SIZES[device.type]
    ids = batch(device, *ids)
    for name in names:
        sizes = {GPT2.get(k, k): v for k, v in larger.items()} if name == "gpt2" else larger
        for lora in (False, True):
            for policy in POLICIES:
                model = build(name, lora, device, **sizes)
                predicted = predicted_peak(model, policy, ids)
                handle = hf_ckpt.apply(model, policy)
                for _ in range(2):
                    step(model, ids)
                model.zero_grad()
                with PeakMeter(device) as meter:
                    model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
                handle.restore()
                rows.append(row(name, lora, policy, predicted, meter.peak_bytes))
    return rows


def predicted_peak(model: torch.nn.Module, policy: str, ids: torch.Tensor) -> int:
    ledgers = ledgers_of(model, ids)
    head = head_option(head_shape(model, ids.numel()), 1, 1.0)
    grown = [gradient_bytes(layer.module.parameters()) for layer in read_anatomy(model).layers]
    late = late_gradient_bytes(model)
    problem = assemble(
        ledgers,
        calibration(ids.device),
        gradients=grown,
        heads=(head,),
        head_gradients=gradient_bytes(model.parameters()) - sum(grown) - late,
        late_gradients=late,
    )
    plans = layer_plans(model, ledgers, policy, problem)
    return assess(under(problem, plans), plans, head).peak


def misses(rows: list[dict[str, Any]], most: float) -> list[str]:
    """Which predictions are more than ``most`` off, and which gradients are not the uncheckpointed ones."""
    found = []
    for r in rows:
        what = f"{r['model']} {r['tuning']} {r['policy']}"
        if abs(r["off"]) > most:
            found.append(f"{what} is {r['off']:.2%} off")
        if not r.get("bitwise_equal", True):
            found.append(f"gradients of {what} differ")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=list(ARCHITECTURES), default=list(ARCHITECTURES))
    parser.add_argument("--peak", action="store_true", help="peak of a step")
    add_out(parser)
    chosen = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    device = here()
    rows, most = (peaks(chosen.only, device), 0.05) if chosen.peak else (helds(chosen.only, device), 0.01)
    missed = misses(rows, most)
    worst = max(abs(r["off"]) for r in rows)
    quantity = "bytes at the peak" if chosen.peak else "held bytes"
    result = {"quantity": quantity, "allowed": most, "worst": worst, "rows": rows, "missed": missed}
    record(result, chosen.out, device)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
