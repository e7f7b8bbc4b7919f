"""All that stands on a model, and all that a thread has switched on: what a policy must leave as it was."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import torch
import torch._dynamo.config
import torch._functorch.config
import torch.nn.modules.module as nn_module
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from transformers import GenerationConfig, PretrainedConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

#: Owner -> attribute -> what stands there. Held, so that a new object cannot take an old one's place.
State = dict[str, dict[str, Any]]
_CONFIGS = (PretrainedConfig, GenerationConfig)


def model_state(model: nn.Module) -> State:
    """Attributes and hooks of every module, its class, its configs and its parameters. The training mode is not kept."""
    state: State = {}
    for name, module in model.named_modules():
        state[f"module {name}"] = {k: _content(v) for k, v in vars(module).items() if k != "training"}
        state[f"class {type(module).__qualname__}"] = dict(vars(type(module)))
        for place, config in _configs(module):
            state[f"{place} of {name}"] = dict(vars(config))
    for name, parameter in model.named_parameters():
        hooks = (parameter._backward_hooks, parameter._post_accumulate_grad_hooks)
        state[f"parameter {name}"] = {"requires_grad": parameter.requires_grad} | {
            str(place): list((hooks_of or {}).values()) for place, hooks_of in enumerate(hooks)
        }
    return state


def changed(before: State, after: State) -> list[str]:
    """What differs, by name, sorted."""
    missing = object()
    return sorted(
        f"{owner}: {name}"
        for owner in before.keys() | after.keys()
        for name in before.get(owner, {}).keys() | after.get(owner, {}).keys()
        if not _stands(before.get(owner, {}).get(name, missing), after.get(owner, {}).get(name, missing))
    )


def thread_state() -> dict[str, Any]:
    """What the thread and torch have switched on: equal before and after whatever cleans up behind itself."""
    return {
        "saved-tensor hooks": torch._C._autograd._top_saved_tensors_default_hooks(True) is not None,
        "dispatch modes": list(_get_current_dispatch_mode_stack()),
        "function modes": list(_get_current_function_mode_stack()),
        "grad mode": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "autocast cache": torch.is_autocast_cache_enabled(),
        "default dtype": torch.get_default_dtype(),
        "global hooks": [len(vars(nn_module)[name]) for name in vars(nn_module) if _is_hook_table(name)],
        "torch's log": logging.getLogger("torch._subclasses.fake_tensor").disabled,
        "fake tensors": torch._dynamo.config.fake_tensor_cache_enabled,
        "addresses": torch._functorch.config.fake_tensor_allow_unsafe_data_ptr_access,
        "recursion limit": sys.getrecursionlimit(),
    }


def _is_hook_table(name: str) -> bool:
    return name.startswith("_global_") and isinstance(vars(nn_module)[name], dict)


def _configs(module: nn.Module) -> Iterator[tuple[str, Any]]:
    pending = [(name, value) for name, value in vars(module).items() if isinstance(value, _CONFIGS)]
    while pending:
        name, config = pending.pop()
        yield name, config
        pending += [(f"{name}.{key}", value) for key, value in vars(config).items() if isinstance(value, _CONFIGS)]


def _content(value: Any) -> Any:
    """A table's content, for hooks come and go in the same one."""
    return list(value.items()) if isinstance(value, dict) else value


def _stands(before: Any, after: Any) -> bool:
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(_stands, before, after))
    if isinstance(before, tuple) and isinstance(after, tuple):
        return len(before) == len(after) and all(map(_stands, before, after))
    return before is after or (isinstance(before, bool | int | str | float) and before == after)
