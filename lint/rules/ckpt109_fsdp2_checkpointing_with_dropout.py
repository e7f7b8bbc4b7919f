"""FSDP2's activation checkpointing of accelerate on a model with dropout.

## What it does
Flags `activation_checkpointing` in the `fsdp_config` of `TrainingArguments` (version 2, the default) or in
`FullyShardedDataParallelPlugin(fsdp_version=2, ...)` when the model that trains has dropout: a `lora_dropout` above
zero, a model built from a configuration with dropout in its layers, or weights on the Hub whose configuration has it
(GPT-2, BERT, RoBERTa, T5, BART, OPT) in train mode. Models whose dropout is zero or not known, and
models on which transformers' own checkpointing is on as well (it restores the random state inside), are fine. The same
for `fsdp_activation_checkpointing` in the accelerate configuration that a script is checked with (`ckpt-lint train.py
--config fsdp.yaml`), and for ms-swift with `--fsdp fsdp2`, whose LoRA has a dropout of 0.05 by default.

## Why is this bad?
accelerate wraps every layer with `preserve_rng_state=False`, so the recomputation draws another dropout mask than the
forward pass did. The loss is bit-identical and there is no warning, but gradients are off by 59 % (dropout 0.1) to
111 % (`lora_dropout` 0.3).

## Bad
```python
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

args = SFTConfig(  # error
    "out",
    gradient_checkpointing=False,
    fsdp=True,
    fsdp_config={"activation_checkpointing": True},  # error: CKPT110
)
SFTTrainer("base", args=args, peft_config=LoraConfig(r=8, lora_dropout=0.1)).train()
```
```python
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from transformers import GPT2Config, GPT2LMHeadModel

plugin = FullyShardedDataParallelPlugin(fsdp_version=2, activation_checkpointing=True)  # error
accelerator = Accelerator(fsdp_plugin=plugin)
model = accelerator.prepare(GPT2LMHeadModel(GPT2Config(n_layer=4, use_cache=False)))
```
```python
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from transformers import GPT2LMHeadModel

plugin = FullyShardedDataParallelPlugin(fsdp_version=2, activation_checkpointing=True)  # error
accelerator = Accelerator(fsdp_plugin=plugin)
model = accelerator.prepare(GPT2LMHeadModel.from_pretrained("gpt2-xl", use_cache=False))
model.train()
```
```yaml
# swift sft this.yaml
model: Qwen/Qwen3-8B
tuner_type: lora
dataset: AI-ModelScope/alpaca-gpt4-data-en
fsdp: fsdp2  # error
```

## Good
```yaml
model: Qwen/Qwen3-8B
tuner_type: lora
lora_dropout: 0
dataset: AI-ModelScope/alpaca-gpt4-data-en
fsdp: fsdp2
```
```python
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

def no_dropout(name):
    args = TrainingArguments("out", fsdp=True, fsdp_config={"activation_checkpointing": True})
    Trainer(AutoModelForCausalLM.from_pretrained(name), args).train()

def checkpointing_of_transformers(name):
    args = TrainingArguments("out", fsdp=True, gradient_checkpointing=True, fsdp_config={"reshard_after_forward": True})
    model = AutoModelForCausalLM.from_pretrained(name)
    Trainer(get_peft_model(model, LoraConfig(r=8, lora_dropout=0.1)), args).train()

def by_hand():
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, activation_checkpointing=True)
    accelerator = Accelerator(fsdp_plugin=plugin)
    config = GPT2Config(resid_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
    return accelerator.prepare(GPT2LMHeadModel(config))

def loaded_without_dropout():
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, activation_checkpointing=True)
    accelerator = Accelerator(fsdp_plugin=plugin)
    model = GPT2LMHeadModel.from_pretrained("gpt2-xl", use_cache=False, resid_pdrop=0.0, attn_pdrop=0.0)
    return accelerator.prepare(model).train()

def loaded_in_eval_mode():
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, activation_checkpointing=True)
    return Accelerator(fsdp_plugin=plugin).prepare(GPT2LMHeadModel.from_pretrained("gpt2-xl", use_cache=False))

def first_version(name):
    plugin = FullyShardedDataParallelPlugin(fsdp_version=1, activation_checkpointing=True)
    model = AutoModelForCausalLM.from_pretrained(name, use_cache=False)
    return Accelerator(fsdp_plugin=plugin).prepare(get_peft_model(model, LoraConfig(r=8, lora_dropout=0.1)))
```

## Evidence
```python
from types import SimpleNamespace
import torch
from accelerate import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_apply_ac
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

def gradients(dropout, wrapped=False, nested=False):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, use_cache=False,
    )
    lora = LoraConfig(r=4, lora_dropout=dropout, init_lora_weights=False, target_modules=["q_proj", "v_proj"])
    model = get_peft_model(LlamaForCausalLM(config), lora).train()
    if nested:
        model.base_model.model.activation_checkpointing_enable()
    if wrapped:
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2, auto_wrap_policy="transformer_based_wrap", activation_checkpointing=True,
            transformer_cls_names_to_wrap=["LlamaDecoderLayer"],
        )
        plugin.set_auto_wrap_policy(model)
        model = fsdp2_apply_ac(SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin)), model)
    ids = torch.arange(3, 19).reshape(2, 8)
    torch.manual_seed(1)
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    found = [weight.grad.flatten() for weight in model.parameters() if weight.grad is not None]
    return loss.item(), torch.cat(found)

for dropout in (0.0, 0.1):
    (loss, wanted), (same_loss, lost) = gradients(dropout), gradients(dropout, wrapped=True)
    assert loss == same_loss
    error = float((lost - wanted).norm() / wanted.norm())
    assert error < 1e-6 if dropout == 0 else error > 0.1, (dropout, error)
    _, repaired = gradients(dropout, wrapped=True, nested=True)
    assert torch.allclose(repaired, wanted)
```

## References
accelerate 1.15 `accelerate/utils/fsdp_utils.py` (`fsdp2_apply_ac`: `checkpoint_wrapper(layer,
preserve_rng_state=False)`); transformers 5.23 `training_args.py` (`fsdp_config.get("version", 2)`); ms-swift 4.6
`config/fsdp2.json`, `arguments/tuner_args.py`; pytorch/torchtitan#1323.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Absent, Const, Dict, Value, equals, is_absent, options, truth
from ..finding import Severity
from ..model.events import AcceleratePrepare, FsdpPlugin, HfEnable, SwiftArgs, TrainerArgs, TrainerBuild
from ..model.events.extract import args_of
from ..model.libraries.accelerate import checkpoints_layers, prepared_with
from ..model.libraries.trainer import is_enabled, object_of, where
from ..model.needs import together
from ..model.report import Remark, Report
from ..model.state.randomness import Draw, adapter_dropout, config_dropout, loaded_dropout
from ..model.variant import from_json

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT109", "fsdp2-checkpointing-with-dropout", Severity.ERROR
NEEDS = (
    *together("activation_checkpointing", "fsdp_config", TrainerArgs),
    ("activation_checkpointing", FsdpPlugin, AcceleratePrepare),
    ("fsdp2", SwiftArgs),
)
VERSIONS = {"accelerate": ">=1.13"}
_HAPPENS = (
    "accelerate recomputes the layers without restoring the random state: with dropout, gradients are silently wrong"
)


def check(run: Run) -> Iterator[Report]:
    """Report FSDP2 checkpointing of a model that certainly drops."""
    if any(run.of(HfEnable)):
        return
    yield from _by_swift(run)
    for node, models in (*_by_trainer(run), *_by_accelerator(run)):
        draw = next((draw for model in models if (draw := _dropout(run, model)) is not None), None)
        if draw is not None:
            yield Report(
                node,
                f"{_HAPPENS}; use `activation_checkpointing=True` of the training arguments, or "
                "`model.activation_checkpointing_enable()`, or a dropout of 0",
                notes=(Remark(draw.node, f"`{draw.what}` is above zero"),),
            )


def _by_swift(run: Run) -> Iterator[Report]:
    """ms-swift's preset of FSDP2 checkpoints every layer, and the adapter it trains drops unless told not to."""
    for args in run.of(SwiftArgs):
        if args.wraps_layers and args.drops:
            preset, rate = args.setting("fsdp"), args.setting("lora_dropout")
            yield Report(
                where(preset, args.node),
                f"{_HAPPENS}; LoRA of ms-swift drops 5 % unless `lora_dropout` says otherwise: give it 0, or a file "
                "of your own without `activation_checkpointing` to `fsdp`",
                notes=(Remark(where(rate, args.node), "`lora_dropout` is above zero"),)
                if is_absent(rate) is False
                else (),
            )


def _by_trainer(run: Run) -> Iterator[tuple[ast.AST, list[Value]]]:
    for args in run.of(TrainerArgs):
        if is_enabled(run, args, object_of(args)):
            continue  # the Trainer refuses (CKPT303)
        config = from_json(args.setting("fsdp_config"))
        if truth(args.setting("fsdp")) and isinstance(config, Dict) and _is_on(config, run):
            node = where(_key(config, "activation_checkpointing"), args.node)
            yield node, [trainer.model for trainer in run.of(TrainerBuild) if _gets(trainer, args)]


def _gets(trainer: TrainerBuild, args: TrainerArgs) -> bool:
    found = (args_of(option) for option in options(trainer.args))
    return any(other is not None and other.node is args.node for other in found)


def _is_on(config: Dict, run: Run) -> bool:
    version = _key(config, "version")
    is_second = equals(version, 2, "2")
    if isinstance(version, Absent):
        is_second = run.versions.may_be("transformers", ">=5.23")
    return bool(is_second) and equals(_key(config, "activation_checkpointing"), True, "true", "True") is True


def _key(config: Dict, name: str) -> Value:
    """The setting, by its plain name or the one with ``fsdp_`` in front."""
    prefixed = config.get(f"fsdp_{name}")
    return config.get(name) if isinstance(prefixed, Absent) else prefixed


def _by_accelerator(run: Run) -> Iterator[tuple[ast.AST, list[Value]]]:
    for plugin, prepare in prepared_with(run):
        if checkpoints_layers(run, plugin) and equals(plugin.version, 2):
            yield plugin.node, prepare.objects


def _dropout(run: Run, model: Value) -> Draw | None:
    found = adapter_dropout(run, model) or (None if isinstance(model, Const) else config_dropout(model))
    return found or loaded_dropout(run, model)
