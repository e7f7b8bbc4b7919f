"""Checkpointing that recomputes layers that are frozen from the bottom up.

## What it does
Flags checkpointing on a transformers model whose whole backbone the file freezes (`model.model`, `model.bert`, ...) and
only the head trains, unless `disable_input_require_grads()` is called. Models with a PEFT adapter are not meant.

## Why is this bad?
transformers makes the embedding output require a gradient when checkpointing is turned on, so the backward pass goes
through every frozen layer down to the embedding, recomputing each of them: measured 1.96 times the FLOPs of the step
for gradients that nobody uses. Without the hook, or without checkpointing, autograd stops at the first trainable layer.

## Bad
```python
from transformers import AutoModelForSequenceClassification

model = AutoModelForSequenceClassification.from_pretrained("base")
for parameter in model.bert.parameters():
    parameter.requires_grad = False
model.gradient_checkpointing_enable()  # error
model.train()
```

## Good
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

def head_only(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    model.bert.requires_grad_(False)
    model.gradient_checkpointing_enable()
    model.disable_input_require_grads()
    return model.train()

def last_layers(name):
    model = AutoModelForSequenceClassification.from_pretrained(name)
    model.bert.requires_grad_(False)
    model.bert.encoder.requires_grad_(True)
    model.gradient_checkpointing_enable()
    return model.train()

def adapter(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.model.requires_grad_(False)
    model.gradient_checkpointing_enable()
    return get_peft_model(model, LoraConfig()).train()
```

## Evidence
```python
import torch
from transformers import LlamaConfig, LlamaForCausalLM

def layer_runs(prepare):
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=3, num_attention_heads=2,
            num_key_value_heads=1,
        )
    )
    model.model.requires_grad_(False)
    prepare(model)
    model.train()
    count = 0

    def seen(module, args, kwargs):
        nonlocal count
        count += 1

    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(seen, with_kwargs=True)
    ids = torch.ones(1, 4, dtype=torch.long)
    model(input_ids=ids, labels=ids).loss.backward()
    return count

def hooked(model):
    model.activation_checkpointing_enable()

def unhooked(model):
    model.activation_checkpointing_enable()
    model.disable_input_require_grads()

assert layer_runs(lambda model: None) == 3
assert layer_runs(hooked) == 6
assert layer_runs(unhooked) == 3
```

## References
transformers 5.23 `modeling_utils.py` (`enable_input_require_grads` in `_activation_checkpointing_enable`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Attr, Element, Value
from ..finding import Severity
from ..model.events import AdapterAttach, GradientSwitch, GradientSwitchWrite, HfEnable
from ..model.libraries.sharding import root
from ..model.report import Remark, Report
from ..model.types import is_hf_model, unwrapped

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT405", "recompute-of-frozen-layers", Severity.WARNING
NEEDS = ((HfEnable, GradientSwitch),)
VERSIONS = {"transformers": ">=5.0"}
#: The attributes under which models of transformers keep everything but the head.
_BACKBONES = frozenset(
    ("model", "base_model", "bert", "roberta", "distilbert", "deberta", "electra", "transformer", "gpt_neox", "xlnet")
)


def check(run: Run) -> Iterator[Report]:
    """Report switches that make the backward pass go through frozen layers."""
    if any(run.of(AdapterAttach)) or any(run.method_calls("disable_input_require_grads", "add_adapter")):
        return
    changes = list(_changes(run))
    for enable in run.of(HfEnable):
        frozen = [node for target, freezes, node in changes if freezes and _is_backbone(target, enable.model)]
        thawed = any(not freezes and _reaches_backbone(target, enable.model) for target, freezes, _ in changes)
        if frozen and not thawed:
            yield Report(
                enable.node,
                "the backbone is frozen, but checkpointing makes the embeddings require gradients: every frozen layer "
                "is recomputed and differentiated for nothing; call `model.disable_input_require_grads()`",
                notes=(Remark(frozen[0], "the backbone is frozen here"),),
            )


def _changes(run: Run) -> Iterator[tuple[Value, bool, ast.AST]]:
    """Every change of `requires_grad`: of what, whether it certainly freezes, and where."""
    for switch in run.of(GradientSwitch):
        # A condition in a loop over parameters chooses some of them.
        certain = not (isinstance(switch, GradientSwitchWrite) and switch.place.guards)
        yield _without_elements(switch.module), switch.freezes and certain, switch.node


def _without_elements(value: Value) -> Value:
    while isinstance(value, Element):
        value = value.of
    return value


def _is_backbone(target: Value, model: Value) -> bool:
    match target:
        case Attr(base=base, name=name) if name in _BACKBONES:
            return unwrapped(base) is unwrapped(model) and is_hf_model(base)
    return False


def _reaches_backbone(target: Value, model: Value) -> bool:
    """Whether a change may touch the backbone: anything of this model but a named head, or something unknown."""
    if isinstance(target, Attr) and unwrapped(target.base) is unwrapped(model):
        return target.name in _BACKBONES
    return root(target) is root(model) or not isinstance(target, Attr)
