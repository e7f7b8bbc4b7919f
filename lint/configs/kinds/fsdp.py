"""The file that `fsdp_config` of the training arguments names: options of FSDP and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..arguments import give_content

if TYPE_CHECKING:
    from ...facts.values import Dict
    from ...facts.walk import Program
    from . import Config

LABEL = "FSDP"
#: As transformers and accelerate name them, with or without `fsdp_` before it.
_OPTIONS = frozenset(
    (
        *("version", "activation_checkpointing", "activation_cpu_offload", "auto_wrap_policy", "min_num_params"),
        *("transformer_layer_cls_to_wrap", "backward_prefetch", "backward_prefetch_policy", "forward_prefetch"),
        *("limit_all_gathers", "use_orig_params", "sync_module_states", "cpu_ram_efficient_loading", "offload_params"),
        *("reshard_after_forward", "sharding_strategy", "state_dict_type", "mixed_precision_policy"),
        *("xla", "xla_fsdp_v2", "xla_fsdp_settings", "xla_fsdp_grad_ckpt"),
    )
)


def matches(root: Dict) -> bool:
    """Options of FSDP only."""
    return bool(root.items) and all(name.removeprefix("fsdp_") in _OPTIONS for name in root.items)


def apply(config: Config, program: Program) -> None:
    """Give its content to the training arguments that name the file; by itself it sets nothing up."""
    give_content(program, "fsdp_config", config.document)
