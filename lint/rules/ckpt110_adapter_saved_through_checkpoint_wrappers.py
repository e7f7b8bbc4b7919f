"""Saving a PEFT adapter from a model that holds checkpoint wrappers.

## What it does
Flags a model that gets a PEFT adapter and whose layers are wrapped by torch's `checkpoint_wrapper`, directly, through
`apply_activation_checkpointing`, or through FSDP's own activation checkpointing (`fsdp_config` of `TrainingArguments`,
accelerate's `FullyShardedDataParallelPlugin`), when the adapter is saved (`get_peft_model_state_dict` included) or a
Trainer trains it. A program that takes the wrappers off before it saves, or saves the parameters under their own names
(`state_dict=dict(model.named_parameters())`), is fine.

## Why is this bad?
Since peft 0.21 the adapter's tensors are looked up by module names, which contain `_checkpoint_wrapped_module`, among
state-dict keys, which do not. Nothing matches: `save_pretrained` writes an adapter file with 0 tensors and no error.
The training is lost.

## Bad
```python
from peft import LoraConfig, get_peft_model
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

model = get_peft_model(AutoModelForCausalLM.from_pretrained("base"), LoraConfig())
apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))  # error
model.save_pretrained("adapter")
```
```python
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

args = SFTConfig(
    "out",
    gradient_checkpointing=False,
    fsdp="full_shard",
    fsdp_config={"activation_checkpointing": True},  # error
)
SFTTrainer("base", args=args, peft_config=LoraConfig()).train()
```
```python
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

plugin = FullyShardedDataParallelPlugin(  # error
    fsdp_version=2,
    auto_wrap_policy="transformer_based_wrap",
    activation_checkpointing=True,
)
accelerator = Accelerator(fsdp_plugin=plugin)
model = get_peft_model(AutoModelForCausalLM.from_pretrained("base"), LoraConfig())
model = accelerator.prepare(model)
state = accelerator.get_state_dict(model)
accelerator.unwrap_model(model).save_pretrained("adapter", state_dict=state)
```

## Good
```python
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = get_peft_model(AutoModelForCausalLM.from_pretrained("base"), LoraConfig())
args = TrainingArguments("out", save_strategy="no", fsdp=True, fsdp_config={"activation_checkpointing": True})
Trainer(model, args).train()
```
```python
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointWrapper,
    apply_activation_checkpointing,
)
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

def with_the_models_own(name):
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(name), LoraConfig())
    model.gradient_checkpointing_enable()
    model.save_pretrained("adapter")

def without_adapter(model, is_block):
    apply_activation_checkpointing(model, check_fn=is_block)
    model.save_pretrained("full")

def another_model(model, teacher, is_block):
    apply_activation_checkpointing(teacher, check_fn=is_block)
    get_peft_model(model, LoraConfig()).save_pretrained("adapter")

def taken_off_before(name):
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(name), LoraConfig())
    apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, CheckpointWrapper):
                setattr(parent, name, child._checkpoint_wrapped_module)
    model.save_pretrained("adapter")

def around_the_adapters(name):
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(name), LoraConfig())
    # What holds an adapter is not wrapped.
    apply_activation_checkpointing(model, check_fn=lambda m: not any(isinstance(p, LoraLayer) for p in m.modules()))
    model.save_pretrained("adapter")

def full_training(model):
    args = TrainingArguments("out", fsdp="full_shard", fsdp_config={"activation_checkpointing": True})
    Trainer(model, args).train()
```
```python
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

def prepared(name, policy, wrap):
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy=policy, activation_checkpointing=wrap)
    accelerator = Accelerator(fsdp_plugin=plugin)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(name), LoraConfig())
    return accelerator, accelerator.prepare(model)

def no_layers(name):
    accelerator, model = prepared(name, "no_wrap", True)
    accelerator.unwrap_model(model).save_pretrained("adapter")

def left_open(name, wrap):
    accelerator, model = prepared(name, "transformer_based_wrap", wrap)
    accelerator.unwrap_model(model).save_pretrained("adapter")

def whole_state(name):
    accelerator, model = prepared(name, "transformer_based_wrap", True)
    torch.save(accelerator.get_state_dict(model), "model.pt")

def another_model(name):
    accelerator, teacher = prepared(name, "transformer_based_wrap", True)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(name), LoraConfig())
    model.save_pretrained("adapter")
    return teacher
```

## Evidence
```python
import tempfile
from types import SimpleNamespace
from accelerate import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_apply_ac
from peft import LoraConfig, get_peft_model
from safetensors import safe_open
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

def saved(wrap):
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1,
    )
    adapter = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(LlamaForCausalLM(config), adapter)
    if wrap == "torch":
        apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))
    elif wrap:
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2, auto_wrap_policy=wrap, transformer_cls_names_to_wrap=["LlamaDecoderLayer"],
        )
        plugin.activation_checkpointing = True
        model = fsdp2_apply_ac(SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin)), model)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, state_dict=model.state_dict())
        with safe_open(f"{folder}/adapter_model.safetensors", "pt") as file:
            return len(file.keys())

assert saved(wrap="") == 8
assert saved(wrap="torch") == saved(wrap="transformer_based_wrap") == 0
```

## References
peft 0.21 `peft/tuners/tuners_utils.py` (`_get_tuner_state_dict_key_prefixes`); peft 0.20 writes all tensors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Absent, Attr, Dict, Param, Partial, Ref, Result, Value, equals, options
from ..finding import Severity
from ..model.conditions.guards import is_optional
from ..model.events import (
    AdapterAttach,
    ApplyCheckpointing,
    CheckpointWrap,
    FsdpPlugin,
    TrainerArgs,
    TrainerBuild,
    WrapperCheckpointing,
)
from ..model.events.extract import args_of
from ..model.libraries.accelerate import checkpoints_layers, prepared_with
from ..model.libraries.sharding import attributes, root
from ..model.libraries.trainer import where
from ..model.names import canonical
from ..model.regions.bodies import classes_checked
from ..model.report import Remark, Report
from ..model.types import same_object
from ..model.wrapping.taken_off import comes_before, may_be_taken_off

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Call, Place
    from ..model.events import AcceleratePrepare, Event
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT110", "adapter-saved-through-checkpoint-wrappers", Severity.ERROR
NEEDS = (
    ("peft", CheckpointWrap),
    ("peft", ApplyCheckpointing),
    ("peft", "activation_checkpointing"),
)
VERSIONS = {"peft": ">=0.21"}
_SAVES = ("save_pretrained", "save_model", "push_to_hub")
#: The function that gives the tensors of the adapter, for whatever saves them.
_STATE = "peft.get_peft_model_state_dict"
#: Methods that give the model without the adapter.
_MERGES = ("merge_and_unload", "unload")
#: Attributes by which wrappers give the model inside.
_SAME_MODEL = frozenset(("module", "_orig_mod"))


def check(run: Run) -> Iterator[Report]:
    """Report wrappers put into a model whose adapter is saved."""
    if not any(_saving(run)):
        return
    prepared = list(prepared_with(run))
    for attach in run.of(AdapterAttach):
        for wrap in run.of(WrapperCheckpointing):
            if _is_around(run, wrap, attach) and any(_finds(run, save, wrap, attach.model) for save in _saving(run)):
                yield _report(wrap.node, attach.node)
        yield from _by_accelerator(run, attach, prepared)
    for trainer in run.of(TrainerBuild):
        adapter = _adapter_of(run, trainer)
        for args in (args_of(value) for value in options(trainer.args)):
            if adapter is None or args is None or not _saves_behind(run, trainer, args):
                continue
            if (node := _wrapping(args)) is not None:
                yield _report(node, adapter)


def _is_around(run: Run, wrap: WrapperCheckpointing, attach: AdapterAttach) -> bool:
    """Whether ``wrap`` goes around layers of the very model that gets the adapter."""
    is_one = root(wrap.module) is root(attach.model) and not wrap.place.excludes(attach.place)
    return is_one and not _asks_for_adapters(run, wrap)


def _saving(run: Run) -> Iterator[Call]:
    """The calls that save a model, those by which a Trainer trains it and writes checkpoints included."""
    yield from run.method_calls(*_SAVES)
    yield from run.calls_to(_STATE)
    trainers = {trainer.node: trainer for trainer in run.of(TrainerBuild)}
    for call in run.method_calls("train"):
        own = [trainers[option.node] for option in options(call.receiver) if option.node in trainers]
        if any(_writes_checkpoints(trainer) for trainer in own) or (not own and _trains(call)):
            yield call


def _trains(call: Call) -> bool:
    """Whether ``call`` of `train` is one of a Trainer, which saves what it trains, and no switch of a module."""
    match same_object(call.receiver):
        case Param(name=name) | Attr(name=name):
            return "trainer" in name.lower()
        case Result(made):
            return "trainer" in made.called.lower()
    return False


def _writes_checkpoints(trainer: TrainerBuild) -> bool:
    """Whether nothing keeps ``trainer`` from writing checkpoints while it trains."""
    settings = (args_of(value) for value in options(trainer.args))
    return not any(args is not None and equals(args.setting("save_strategy"), "no") is True for args in settings)


def _finds(run: Run, save: Call, wrap: WrapperCheckpointing, model: Value) -> bool:
    """Whether ``save`` finds the wrappers of ``wrap`` in ``model``."""
    found = comes_before(wrap, save) and not _saves_another(save, model) and _looks_up_names(save)
    return found and not may_be_taken_off(run, wrap, model, save)


def _saves_another(save: Call, model: Value) -> bool:
    """Whether ``save`` is certainly about something else than ``model``: a tokenizer, or what it was merged into."""
    saved = save.argument(0, "model") if save.name else save.receiver
    return all(_is_another(option, root(model)) for option in options(saved))


def _looks_up_names(save: Call) -> bool:
    """Whether it looks for the tensors in a state dict; in `named_parameters()` the names are those of the modules."""
    given = save.argument(1 if save.name else None, "state_dict")
    taken = (getattr(option, "call", None) for option in options(given))
    is_plain = isinstance(given, Absent) or equals(given, None) is True
    return is_plain or all(call is not None and call.called.endswith("state_dict") for call in taken)


def _is_another(saved: Value, model: Value) -> bool:
    saved = root(saved)
    if saved is model or not isinstance(saved, Result):
        return False
    name = canonical(saved.call.name)
    loads = name.startswith(("transformers.", "peft.")) and "Trainer" not in name
    return loads or saved.call.method in _MERGES


def _by_accelerator(
    run: Run, attach: AdapterAttach, prepared: list[tuple[FsdpPlugin, AcceleratePrepare]]
) -> Iterator[Report]:
    """Plugins by which accelerate wraps the layers of the model with the adapter before it is saved."""
    model = root(attach.model)
    for plugin, prepare in prepared:
        wraps = checkpoints_layers(run, plugin) and _wraps_layers(plugin) and prepare.order > attach.order
        if not wraps or not any(root(given) is model for given in prepare.objects):
            continue
        later = (save for save in run.method_calls("save_pretrained") if save.order > prepare.order)
        own = (save for save in later if root(save.receiver) is model and {*attributes(save.receiver)} <= _SAME_MODEL)
        own = (save for save in own if _looks_up_names(save))
        met = (save for save in own if _meet(save.place, plugin, prepare, attach) and not is_optional(save.place))
        saves = [save for save in met if not may_be_taken_off(run, prepare, model, save)]
        if saves:
            node = where(plugin.call.keyword("activation_checkpointing"), plugin.node)
            yield _report(node, attach.node, "`model.gradient_checkpointing_enable()`")


def _meet(place: Place, *events: Event) -> bool:
    """Whether one way through the program comes to ``events`` and to ``place``."""
    return all(
        event.place.function is None
        or (
            event.place.walk == place.walk
            and not event.place.excludes(place)
            and not any(event.place.excludes(other.place) for other in events)
        )
        for event in events
    )


def _wraps_layers(plugin: FsdpPlugin) -> bool:
    """Whether its policy certainly names the layers: accelerate puts wrappers around nothing else."""
    policy = plugin.call.keyword("auto_wrap_policy")
    if isinstance(policy, Partial):
        policy = policy.func
    if isinstance(policy, Ref):
        return policy.name.endswith(".transformer_auto_wrap_policy")
    return equals(policy, "transformer_based_wrap", "TRANSFORMER_BASED_WRAP") is True


def _asks_for_adapters(run: Run, wrap: WrapperCheckpointing) -> bool:
    """Whether the check asks for a layer of peft, by which it may leave out whatever holds an adapter."""
    classes = classes_checked(wrap.check, run.bodies) if isinstance(wrap, ApplyCheckpointing) else []
    return any(isinstance(cls, Ref) and cls.name.startswith("peft.") for cls in classes)


def _adapter_of(run: Run, trainer: TrainerBuild) -> ast.Call | None:
    """Where the model of ``trainer`` gets its adapter."""
    if not isinstance(trainer.peft_config, Absent) and equals(trainer.peft_config, None) is False:
        return trainer.node
    attached = [attach for attach in run.of(AdapterAttach) if root(attach.model) is root(trainer.model)]
    if attached:
        return attached[0].node
    config = getattr(trainer.peft_config, "call", None)
    return trainer.node if config is not None and config.name.startswith("peft.") else None


def _saves_behind(run: Run, trainer: TrainerBuild, args: TrainerArgs) -> bool:
    """Whether the Trainer writes checkpoints, or something else in the program saves the model as it leaves it."""
    if equals(args.setting("save_strategy"), "no") is not True:
        return True
    saves = (save for save in run.method_calls(*_SAVES) if not _saves_another(save, trainer.model))
    return any(not may_be_taken_off(run, trainer, trainer.model, save) for save in saves)


def _wrapping(args: TrainerArgs) -> ast.AST | None:
    """What in the arguments makes FSDP put checkpoint wrappers into the model."""
    config: Value = args.setting("fsdp_config")
    if not isinstance(config, Dict) or isinstance(args.setting("fsdp"), Absent):
        return None
    wanted = config.get("activation_checkpointing")
    if isinstance(wanted, Absent):
        wanted = config.get("fsdp_activation_checkpointing")
    return where(wanted, config.node or args.node) if equals(wanted, True, "true") else None


def _report(node: ast.AST, adapter: ast.AST, instead: str = "`activation_checkpointing=True`") -> Report:
    return Report(
        node,
        "peft finds none of the adapter's tensors behind checkpoint wrappers and saves a file with 0 tensors; "
        f"enable checkpointing on the model ({instead}) instead",
        notes=(Remark(adapter, "this attaches the adapter"),),
    )
