"""One published training on the card of this process: bytes allocated, reserved, and of the whole card."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from tests.published.older_loss import older_loss

from .. import stand_ins
from ..models import in_four_bits, token_ids
from ..models import sharded as sharded_over

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HALF = torch.bfloat16


def run(config: Mapping[str, Any], options: Mapping[str, Any], samples: Sequence[float], older: bool) -> dict[str, int]:
    """Steps of samples of these shares of the length, and the most of all that each kind of bytes came to."""
    warnings.simplefilter("ignore")
    stand_ins.install()
    model = _built(config, options)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, fused=True)
    for share in samples:
        ids = token_ids(options["batch"], int(share * options["length"]))
        with torch.autocast("cuda", HALF, enabled=bool(options["autocast"])):
            loss, logits = _loss(model, ids, older=older)
        loss.backward()
        del loss, logits  # the caller had them until here
        optimizer.step()
        model.zero_grad(set_to_none=True)
    free, total = torch.cuda.mem_get_info()
    beside = total - free - torch.cuda.memory_reserved()
    reserved = torch.cuda.max_memory_reserved()
    return {"allocated": torch.cuda.max_memory_allocated(), "reserved": reserved, "card": reserved + beside}


def _loss(model: Any, ids: torch.Tensor, *, older: bool) -> tuple[torch.Tensor, Any]:
    """The loss, and what the caller got with it."""
    if older:
        return older_loss(model(input_ids=ids).logits, ids)
    return model(input_ids=ids, labels=ids).loss, None


def _built(config: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    fields = {name: value for name, value in config.items() if name not in ("model_type", "architectures")}
    wide = torch.float32 if options["master"] else HALF
    whole = not options["fsdp"] and not options["load_in_4bit"]
    with torch.device("cuda" if whole else "meta"):
        made = CONFIG_MAPPING[config["model_type"]](**{"max_position_embeddings": 131072, **fields, "use_cache": False})
        attention = "eager" if options["attention"] == "eager" else "sdpa"
        model = AutoModelForCausalLM.from_config(made, dtype=wide, attn_implementation=attention).train()
    if options["load_in_4bit"]:
        model = in_four_bits(model)
    if options["prepare_kbit"]:
        for parameter in model.parameters():
            if parameter.dtype is HALF:
                parameter.data = parameter.data.float()
    if options["lora"]:
        model = _adapted(model, options, "meta" if options["fsdp"] else "cuda")
    if options["policy"].startswith("full"):
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return _spread(model, options)


def _adapted(model: Any, options: Mapping[str, Any], device: str) -> Any:
    from peft import LoraConfig, get_peft_model

    names = options["lora_target"] or "all-linear"
    adapter = LoraConfig(r=options["lora"], lora_dropout=options["lora_dropout"], target_modules=names)
    with torch.device(device):
        made = get_peft_model(model, adapter, autocast_adapter_dtype=bool(options["autocast"]))
    return made.to(device).train() if device == "cuda" else made.train()


def _spread(model: Any, options: Mapping[str, Any]) -> Any:
    if options["fsdp"]:
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        sharded_over(base, HALF, options["gpus"])
    if options["ddp"]:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", rank=0, world_size=options["gpus"], store=FakeStore())
        return torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    return model
