"""A training on a long sequence on the card of this process: what plans say, what the card gives, what copies cost.

How long the copies to host memory and back hold a step up is what the same step takes less when copies take no time. The
plan stays the same then: its rates are those of the card's profile.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

import hf_ckpt

from .. import stand_ins
from ..counters import Span
from ..judge.cell import measure
from ..models import LLAMA_8B, causal_lm, sharded, token_ids, with_lora

if TYPE_CHECKING:
    from collections.abc import Callable

_RUNTIME = ctypes.CDLL(None)
HALF = torch.bfloat16
CARDS = 8
#: Bytes per second of a link that copies in no time.
AT_ONCE = 1e18


def main(arguments: list[str]) -> dict[str, Any]:
    """Steps of one sequence until they are alike; ``arguments``: the setup (``lora`` or ``fsdp``), policy, and tokens.

    One training a process: FSDP2 keeps the model of an earlier one alive.
    """
    setup, policy, tokens = arguments
    warnings.simplefilter("ignore")
    stand_ins.install()
    torch.backends.cuda.enable_cudnn_sdp(False)  # torch's FlashAttention stands for flash-attn
    length = int(tokens)
    return {"length": length, **_trained(_BUILT[setup](length), length, policy)}


def _trained(model: Any, length: int, policy: str) -> dict[str, Any]:
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, fused=True)
    ids, base = token_ids(1, length), model.get_base_model() if hasattr(model, "get_base_model") else model

    def loss() -> Any:
        return model(input_ids=ids, labels=ids).loss

    found = {"total": torch.cuda.mem_get_info()[1]}
    try:
        handle = hf_ckpt.apply(model, policy, optimizer=optimizer, accumulates_gradients=False)
        found |= asdict(measure(model, base.model.layers[-1], handle, optimizer, loss))
    except Exception as error:
        return found | {"failed": f"{type(error).__name__}: {error}"}
    return found if found["out_of_memory"] else found | _copies(loss)


def _copies(loss: Callable[[], Any]) -> dict[str, Any]:
    as_it_is, link = _step(loss), os.environ["SIM_GPU_LINK"]
    _set_link(str(AT_ONCE))
    at_once = _step(loss)
    _set_link(link)
    return {
        "seconds": as_it_is.now,
        "seconds_at_once": at_once.now,
        "copies": (as_it_is.to_host + as_it_is.to_device) / float(link),
        "to_host": as_it_is.to_host,
        "pinned": as_it_is.pinned_peak,
    }


def _set_link(bytes_per_second: str) -> None:
    os.environ["SIM_GPU_LINK"] = bytes_per_second
    _RUNTIME.sim_read_card()


def _step(loss: Callable[[], Any]) -> Span:
    """A step of forward and backward, from an idle card to an idle card."""
    torch.cuda.synchronize()
    with Span() as span:
        loss().backward()
        torch.cuda.synchronize()
    return span


def _with_adapters(length: int) -> Any:
    model = causal_lm(LLAMA_8B, max_position_embeddings=length)
    return with_lora(model, dropout=0.0, autocast_adapter_dtype=True, target_modules=["q_proj", "v_proj"])


def _sharded(length: int) -> Any:
    model = causal_lm(LLAMA_8B, max_position_embeddings=length, dtype=torch.float32, device="meta")
    return sharded(model, HALF, CARDS)


_BUILT: dict[str, Callable[[int], Any]] = {"lora": _with_adapters, "fsdp": _sharded}
