"""The ways to checkpoint one decoder layer that the benchmarks compare: each makes a ``_gradient_checkpointing_func``.

``None`` means no checkpointing of that layer.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from hf_ckpt.anatomy.roles import sublayers_by_role
from hf_ckpt.engine import TracedReplay
from hf_ckpt.policy.decision import Decision, RecomputeExcept, RecomputeLayer, SaveableOps

Engine = Callable[..., Any] | None
Rival = Callable[[int, nn.Module], Engine]

_aten = torch.ops.aten
_MM = {_aten.mm.default, _aten.addmm.default}
_SAVED = _MM | {
    _aten.bmm.default,
    _aten._scaled_dot_product_flash_attention_for_cpu.default,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_cudnn_attention.default,
}


def none(index: int, layer: nn.Module) -> Engine:
    return None


def torch_full(index: int, layer: nn.Module) -> Engine:
    return functools.partial(checkpoint, use_reentrant=False)


def every_second(index: int, layer: nn.Module) -> Engine:
    """transformers' ``every_n_layers: 2``."""
    return torch_full(index, layer) if index % 2 == 0 else None


def torch_sac(index: int, layer: nn.Module) -> Engine:
    """torch's selective checkpointing, keeping every matmul and attention kernel."""

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        return CheckpointPolicy.MUST_SAVE if op in _SAVED else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    return functools.partial(checkpoint, use_reentrant=False, context_fn=contexts)


def torchtitan_sac(index: int, layer: nn.Module) -> Engine:
    """The same with torchtitan's rule: every second matmul is recomputed."""

    def contexts() -> Any:
        matmuls = {False: 0, True: 0}

        def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            if op in _MM:
                matmuls[context.is_recompute] += 1
                if matmuls[context.is_recompute] % 2 == 0:
                    return CheckpointPolicy.PREFER_RECOMPUTE
            return CheckpointPolicy.MUST_SAVE if op in _SAVED else CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(policy)

    return functools.partial(checkpoint, use_reentrant=False, context_fn=contexts)


def torch_remat(index: int, layer: nn.Module) -> Engine:
    """Meta's torch_remat: attention and every linear outside it are saved regions, the rest is recomputed."""
    import torch_remat as remat

    saved = ("self_attn", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    plain = {name: layer.get_submodule(name).forward for name in saved}

    def region(name: str) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            output = remat.region(plain[name], name, recompute=False)(*args, **kwargs)
            for tensor in output if isinstance(output, tuple) else (output,):
                if isinstance(tensor, torch.Tensor):
                    remat.recompute_needs_tensor(tensor)
            return output

        return forward

    regions = {name: region(name) for name in saved}

    def run(call: Callable[..., Any], *args: Any) -> Any:
        def body(*inputs: Any) -> Any:
            for name, forward in regions.items():
                layer.get_submodule(name).forward = forward
            try:
                return call(*inputs)
            finally:
                for name in regions:
                    del layer.get_submodule(name).forward

        return remat.checkpoint(region_name=f"layer{index}")(body)(*args)

    return run


def traced(decision: Decision) -> Rival:
    """Ours, with one decision for every layer."""
    return lambda index, layer: TracedReplay(f"layer{index}", decision, sublayers_by_role(layer))


DOTS = RecomputeExcept(SaveableOps("dots"))
FULL = RecomputeLayer()
