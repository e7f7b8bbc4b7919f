"""What a simulated card needs inside its process: kernels compute nothing, and cuDNN is not there.

* Comparisons of bits look at metadata, and tokens pass for computed apart: values are whatever the memory held.
* transformers takes sequences for packed by the values of position ids; it is told that they are not.
* cuDNN's attention, which Hopper cards run, gives outputs of the shapes of its meta kernel.
* The host has 1 TiB of memory for pinned pages, whatever this machine has: nothing writes them.
* The planner's rates are those of the card's profile, written where it keeps measured ones: the simulated clock knows
  nothing of the host's, by which they are measured.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

_LIBRARY = torch.library.Library("aten", "IMPL")
_RUNTIME = ctypes.CDLL(None)
#: Memory of the simulated card's host.
HOST_BYTES = 1 << 40


def install() -> None:
    """Put all of them in place; once a process, before a model runs."""
    _compare_metadata()
    _nothing_is_packed()
    _run_cudnn_attention()
    _give_rates()
    _give_host_memory()


def _same_metadata(a: torch.Tensor, b: torch.Tensor) -> bool:
    strides = zip(a.shape, a.stride(), b.stride(), strict=True)
    return (a.dtype, a.shape, a.device) == (b.dtype, b.shape, b.device) and all(
        x == y for size, x, y in strides if size > 1
    )


def _compare_metadata() -> None:
    from hf_ckpt.chunks import chunked_forward
    from hf_ckpt.engine.running import first_use

    first_use.same_bits = _same_metadata
    chunked_forward.problem_of = lambda *_, **__: ""


def _nothing_is_packed() -> None:
    from transformers import masking_utils

    masking_utils.find_packed_sequence_indices = lambda position_ids: None


def _run_cudnn_attention() -> None:
    for name in ("_scaled_dot_product_cudnn_attention", "_scaled_dot_product_cudnn_attention_backward"):
        _LIBRARY.impl(name, _AsMeta(getattr(torch.ops.aten, name).default), "CUDA")


class _AsMeta:
    """Runs an op of cuDNN's attention: allocates what its meta kernel says, and takes the time of its FLOPs."""

    def __init__(self, op: Any) -> None:
        self.op = op

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with FakeTensorMode() as fake:
            shapes = self.op(*(fake.from_tensor(a) if isinstance(a, torch.Tensor) else a for a in args), **kwargs)
        # The backward takes the output's gradient first, and five products instead of two.
        backward = "backward" in self.op.name()
        query, key = args[1:3] if backward else args[:2]
        stream = torch.cuda.current_stream(query.device).cuda_stream
        flops = 2.0 * query.numel() * key.shape[-2] * (2.5 if backward else 1.0)
        _RUNTIME.sim_compute(ctypes.c_void_p(stream), ctypes.c_double(flops))
        return tuple(_real(shape, query.device) if isinstance(shape, torch.Tensor) else shape for shape in shapes)


def _real(shape: torch.Tensor, device: torch.device) -> torch.Tensor:
    device = device if shape.device.type == "cuda" else shape.device
    return torch.empty_strided(shape.shape, shape.stride(), dtype=shape.dtype, device=device)


def _give_rates() -> None:
    from dataclasses import replace

    from hf_ckpt.devices.cards import card_named
    from hf_ckpt.planner.calibration import store
    from hf_ckpt.planner.calibration.calibrate import describe

    device = torch.device("cuda")
    rates = replace(card_named(os.environ["SIM_GPU_CARD"]).rates(), device=describe(device))
    store.store(rates, store.cache_folder())


def _give_host_memory() -> None:
    from hf_ckpt.engine.offloading import free_memory

    from .counters import read

    free_memory.free_bytes = lambda *_: HOST_BYTES - read().pinned
