"""Torch's checkpoint wrappers around the layers of a language model that keeps a key/value cache.

## What it does
Flags `apply_activation_checkpointing`, `checkpoint_wrapper` and the FSDP checkpointing of accelerate and of Fabric on a
causal language model of transformers, or an encoder-decoder that keeps its cache in training too (T5 and its kin), that
this file trains in a loop of its own, or in the step of a LightningModule, without a word about its `use_cache`, which
is on by default. Models that a Trainer trains (it turns the cache off), models with transformers' own checkpointing (it
leaves the cache out), models that `**kwargs` or a `config` from elsewhere may set up, and encoders are fine.

## Why is this bad?
The recomputation of a layer appends its keys and values to the cache again. In the reentrant variant the loss stays
the same and the gradients of `k_proj` and `v_proj` are exactly zero in every layer. In the other variant (and in both
with eager attention) the step fails as soon as a batch has padding. The first step of T5 fails in both: its decoder
finds the cross-attention's keys in the cache and computes something else the second time. Whisper, M2M100 and UMT5 fail
so in the non-reentrant variant.

## Bad
```python
import functools
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

def train(name, batches, optimizer):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.train()
    apply_activation_checkpointing(  # error
        model,
        functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT),
        lambda module: isinstance(module, LlamaDecoderLayer),
    )
    for batch in batches:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
```
```python
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from transformers import AutoModelForCausalLM

def train(name, batches, optimizer):
    plugin = FullyShardedDataParallelPlugin(activation_checkpointing=True)  # error
    accelerator = Accelerator(fsdp_plugin=plugin)
    model = accelerator.prepare(AutoModelForCausalLM.from_pretrained(name))
    model.train()
    for batch in batches:
        accelerator.backward(model(**batch).loss)
        optimizer.step()
        optimizer.zero_grad()
```
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from transformers import T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Block

def checkpoint_blocks(model, blocks):
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, blocks))  # error

def train(name, batches, optimizer):
    model = FSDP(T5ForConditionalGeneration.from_pretrained(name))
    checkpoint_blocks(model, T5Block)
    model.train()
    for batch in batches:
        output = model(input_ids=batch["source_ids"], labels=batch["target_ids"])
        output["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
```
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

def distill(name, teacher_name, batches, distance):
    teacher = AutoModelForCausalLM.from_pretrained(teacher_name, use_cache=False)
    draft = AutoModelForCausalLM.from_pretrained(name)
    teacher.config.use_cache = False
    model = AutoModelForCausalLM.from_pretrained(name).train()
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))  # error
    for batch in batches:
        distance(model(**batch), teacher(**batch, use_cache=False)).backward()
    draft.generate(use_cache=True)
```

```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import AutoModelForCausalLM

def train(loader):
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
    layer_class = type(model.model.layers[0])
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, layer_class))  # error
    model.train()
    for batch in loader:
        model(**batch).loss.backward()
```

```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from transformers import Qwen2Config, Qwen2ForCausalLM

def train(batches, optimizer):
    model = Qwen2ForCausalLM(Qwen2Config(num_hidden_layers=2))
    decoder = model.get_decoder()
    for i, layer in enumerate(decoder.layers):
        decoder.layers[i] = checkpoint_wrapper(layer)  # error
    for batch in batches:
        model(**batch).loss.backward()
        optimizer.step()
```

## Good
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from transformers import T5ForConditionalGeneration

def train(batches):
    model = T5ForConditionalGeneration.from_pretrained("t5-small").train()
    encoder = model.get_encoder()
    for i, block in enumerate(encoder.block):
        encoder.block[i] = checkpoint_wrapper(block)  # an encoder keeps no cache
    for batch in batches:
        model(**batch).loss.backward()
```
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import AutoModelForCausalLM

def train(loader):
    model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-0.5B")
    mlp_class = type(model.model.layers[0].mlp)
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, mlp_class))
    model.train()
    for batch in loader:
        model(**batch).loss.backward()
```
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

def train(name, batches):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    model.config.use_cache = False
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))
    for batch in batches:
        model(**batch).loss.backward()
```
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    BartForConditionalGeneration,
    LlamaConfig,
    MT5ForConditionalGeneration,
    T5ForConditionalGeneration,
    Trainer,
    TrainingArguments,
)
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaMLP
from transformers.models.bart.modeling_bart import BartDecoderLayer
from transformers.models.bert.modeling_bert import BertLayer
from transformers.models.mt5.modeling_mt5 import MT5LayerFF

def with_trainer(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))
    Trainer(model, TrainingArguments("out")).train()

def encoder(name, batches):
    model = AutoModelForSequenceClassification.from_pretrained(name).train()
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, BertLayer))
    for batch in batches:
        model(**batch).loss.backward()

def encoder_of_t5(name, batches):
    model = T5ForConditionalGeneration.from_pretrained(name).train()
    for index, block in enumerate(model.encoder.block):
        model.encoder.block[index] = checkpoint_wrapper(block)
    for batch in batches:
        model(**batch).loss.backward()

def whole_encoder(name, batches):
    model = T5ForConditionalGeneration.from_pretrained(name).train()
    model.encoder = checkpoint_wrapper(model.encoder)
    for batch in batches:
        model(**batch).loss.backward()

def each_mlp(name, batches):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    for layer in model.model.layers:
        layer.mlp = checkpoint_wrapper(layer.mlp)
    for batch in batches:
        model(**batch).loss.backward()

def turns_its_cache_off_where_there_are_labels(name, batches):
    model = BartForConditionalGeneration.from_pretrained(name).train()
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, BartDecoderLayer))
    for batch in batches:
        model(**batch).loss.backward()

def only_the_feed_forward(name, batches):
    model = MT5ForConditionalGeneration.from_pretrained(name).train()
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, MT5LayerFF))
    for batch in batches:
        model(**batch).loss.backward()

def only_the_mlp(name, batches):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, LlamaMLP))
    for batch in batches:
        model(**batch).loss.backward()

def keywords_from_elsewhere(cfg, batches):
    model = AutoModelForCausalLM.from_pretrained(cfg.name, **cfg.model_kwargs).train()
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))
    for batch in batches:
        model(**batch).loss.backward()

def config_from_elsewhere(cfg, batches):
    model = AutoModelForCausalLM.from_pretrained(cfg.name, config=cfg.load()).train()
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))
    for batch in batches:
        model(**batch).loss.backward()

def built_from_elsewhere(cfg, batches):
    model = AutoModelForCausalLM.from_config(LlamaConfig(**cfg.sizes)).train()
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))
    for batch in batches:
        model(**batch).loss.backward()
```
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

def by_the_configuration_of_another(batches):
    config = LlamaConfig()
    other = AutoModelForCausalLM.from_config(config)
    other.config.use_cache = False
    model = AutoModelForCausalLM.from_config(config).train()
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))
    for batch in batches:
        model(**batch).loss.backward()
```
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

def in_the_forward_pass(name, batches):
    model = AutoModelForCausalLM.from_pretrained(name).train()
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))
    for batch in batches:
        model(**batch, use_cache=False).loss.backward()
```
```python
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

def both(name, teacher_name, batches):
    teacher = AutoModelForCausalLM.from_pretrained(teacher_name)
    model = AutoModelForCausalLM.from_pretrained(name).train()
    for one in (teacher, model):
        one.config.use_cache = False
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, LlamaDecoderLayer))
    for batch in batches:
        model(**batch).loss.backward()
```

## Evidence
```python
import functools
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl, apply_activation_checkpointing, checkpoint_wrapper,
)
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

def gradients(variant=None, padding=False, **config):
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, **config,
    )).train()
    if variant is not None:
        wrapper = functools.partial(checkpoint_wrapper, checkpoint_impl=variant)
        apply_activation_checkpointing(model, wrapper, lambda module: isinstance(module, LlamaDecoderLayer))
    ids = torch.arange(3, 19).reshape(2, 8)
    mask = torch.ones_like(ids)
    mask[0, :3] = 0 if padding else 1
    loss = model(input_ids=ids, attention_mask=mask, labels=ids).loss
    loss.backward()
    return loss.item(), model.model.layers[0].self_attn.v_proj.weight.grad

loss, wanted = gradients()
same_loss, lost = gradients(CheckpointImpl.REENTRANT)
assert same_loss == loss and wanted.norm() > 0 and lost.norm() == 0
for variant in CheckpointImpl:
    assert torch.allclose(gradients(variant, use_cache=False)[1], wanted)
    try:
        gradients(variant, padding=True)
    except RuntimeError as error:
        assert "must match the size" in str(error)
    else:
        raise AssertionError("no error")
    gradients(variant, padding=True, use_cache=False)
```
```python
import functools
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl, apply_activation_checkpointing, checkpoint_wrapper,
)
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Block

def step(variant, **config):
    model = T5ForConditionalGeneration(T5Config(
        vocab_size=32, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2, decoder_start_token_id=0, **config,
    )).train()
    wrapper = functools.partial(checkpoint_wrapper, checkpoint_impl=variant)
    apply_activation_checkpointing(model, wrapper, lambda module: isinstance(module, T5Block))
    ids = torch.arange(2, 16).reshape(2, 7)
    model(input_ids=ids, labels=ids[:, :5].contiguous()).loss.backward()

for variant in CheckpointImpl:
    step(variant, use_cache=False)
    try:
        step(variant)
    except RuntimeError:
        continue
    raise AssertionError("no error")
```

## References
transformers 5.23 `integrations/sdpa_attention.py`, `cache_utils.py` (`DynamicLayer.update` concatenates);
huggingface/transformers#28056, #28499, #34928; Lightning-AI/pytorch-lightning#19267.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Absent, Ref, Result, Value, options, same
from ..finding import Severity
from ..model.events import (
    AcceleratePrepare,
    Backward,
    BlockWrapping,
    CheckpointWrap,
    FsdpPlugin,
    HfEnable,
    TrainerBuild,
)
from ..model.flow.mentions import attributes_in, mentions
from ..model.libraries.accelerate import checkpoints_layers, prepared_with
from ..model.libraries.sharding import attributes, root
from ..model.names import canonical
from ..model.regions.bodies import classes_checked
from ..model.report import Report
from ..model.state.lightning_training import is_lightning_step
from ..model.state.modes import Modes
from ..model.tensors.gradient_free import is_gradient_free
from ..model.types import object_of_class, origins, unwrapped

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Call
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT111", "kv-cache-in-checkpoint", Severity.ERROR
NEEDS = (
    (BlockWrapping, "transformers"),
    (CheckpointWrap, "transformers"),
    (FsdpPlugin, AcceleratePrepare, "transformers"),
)

#: How the classes that call the attention end; `LlamaMLP` and the norms touch no cache.
_ATTENDING = ("DecoderLayer", "Block", "Attention", "Layer")
#: Parts of a layer or of a model that take no cache, by the names of their attributes.
_WITHOUT_CACHE = ("mlp", "feed_forward", "ffn", "fc1", "fc2", "lm_head", "embed_tokens", "shared", "wte", "norm")
#: Encoder-decoders that keep the cache when labels are given (Bart and its kin turn it off then) and fail in both
#: variants: small models of all were run with transformers 5.23.
_FAILING = tuple(
    f"transformers.{family}ForConditionalGeneration"
    for family in ("T5", "MT5", "LongT5", "SwitchTransformers", "Pop2Piano", "NllbMoe", "Speech2Text")
)
#: Those that fail in the non-reentrant variant, run likewise; a step of the other one ends without an error.
_FAILING_NON_REENTRANT = tuple(
    f"transformers.{family}ForConditionalGeneration" for family in ("UMT5", "M2M100", "Whisper")
)


def check(run: Run) -> Iterator[Report]:
    """Report wrappers around layers that write the cache again when they are recomputed."""
    if any(run.of(TrainerBuild)) or any(run.of(HfEnable)):
        return
    for node, model, reentrant in (*_wrapped(run), *_by_accelerator(run)):
        if _is_trained_language_model(run, model, reentrant) and not _may_be_set(run, model):
            causal = not _keeps_cache_with_labels(model, reentrant)
            if not causal:
                effect = "the first step fails"
            elif reentrant:
                effect = "`k_proj` and `v_proj` get a gradient of exactly zero"
            else:
                effect = "the step fails as soon as a batch has padding"
            yield Report(
                node,
                f"the recomputation appends keys and values to the cache a second time: {effect}; "
                "set `model.config.use_cache = False`",
                severity=Severity.WARNING if causal and not reentrant else None,
                versions=None if causal else "transformers>=5.0",
            )


def _wrapped(run: Run) -> Iterator[tuple[ast.AST, Value, bool | None]]:
    for event in run.of(BlockWrapping):
        kinds, model = classes_checked(event.check, run.bodies), unwrapped(event.model)
        if isinstance(event.check, Absent) or any(_attends(kind) or _is_class_of_layer(kind, model) for kind in kinds):
            yield event.node, model, event.reentrant
    for wrap in run.of(CheckpointWrap):
        model = root(wrap.module)
        if not same(model, unwrapped(wrap.module)) and _may_take_cache(wrap.module, model):
            yield wrap.node, model, wrap.reentrant


def _may_take_cache(module: Value, model: Value) -> bool:
    """Whether the part ``module`` of ``model`` may be a layer of a decoder, by the attributes that lead there."""
    names = list(attributes(module))
    if not names:
        return True
    encodes = "encoder" in names and _keeps_cache_with_labels(model, False)
    return not encodes and not names[0].endswith(_WITHOUT_CACHE)


def _attends(kind: Value) -> bool:
    if not isinstance(kind, Ref) or not kind.name.startswith("transformers."):
        return False
    return kind.name.endswith(_ATTENDING) and "Encoder" not in kind.name


def _is_class_of_layer(kind: Value, model: Value) -> bool:
    """Whether ``kind`` is the class of a part of ``model`` that may take a cache: `type(model.model.layers[0])`."""
    part = object_of_class(kind)
    if part is None:
        return False
    # The blocks of T5's encoder are of the class of those of its decoder.
    is_shared = isinstance(model, Result) and "T5" in model.call.name
    return same(root(part), model) and not same(unwrapped(part), model) and (is_shared or _may_take_cache(part, model))


def _by_accelerator(run: Run) -> Iterator[tuple[ast.AST, Value, bool | None]]:
    for plugin, prepare in prepared_with(run):
        if checkpoints_layers(run, plugin):
            for value in prepare.objects:
                yield plugin.node, unwrapped(value), False


def _is_trained_language_model(run: Run, model: Value, reentrant: bool | None) -> bool:
    if not isinstance(model, Result):
        return False
    name = canonical(model.call.name)
    causal = name.startswith("transformers.") and ("ForCausalLM" in name or "LMHeadModel" in name)
    if not causal and not _keeps_cache_with_labels(model, reentrant):
        return False
    if not _has_default_cache(model.call, name):
        return False
    trains = any(run.of(Backward))
    return any((trains or _is_of_step(run, it)) and not is_gradient_free(it) for it in Modes(run, model).forwards)


def _is_of_step(run: Run, forward: Call) -> bool:
    """Whether Lightning goes back from what ``forward`` gives."""
    function = forward.place.function
    return function is not None and is_lightning_step(run, function)


def _may_be_set(run: Run, model: Value) -> bool:
    """Whether something in the program may set `use_cache` of ``model``, whose load says nothing about it."""
    if not mentions(run.program, "use_cache"):
        return False
    if not isinstance(model, Result) or attributes_in(run.program).may_set("config"):
        return True
    return mentions(run.program, "use_cache", apart_from=_about_others(run, model.call))


def _about_others(run: Run, load: Call) -> set[ast.AST]:
    """The calls and attributes that certainly set `use_cache` of another model than ``load`` gave, or of no model."""
    found: list[tuple[ast.AST, bool]] = []
    for call in run.program.calls:
        if "use_cache" in call.kwargs:
            found.append((call.node, call.method == "generate" or _is_another(call.func, load) or _loads(call, load)))
    for write in run.writes:
        if write.field == "use_cache" and write.target is not None:
            found.append((write.target, _is_another(root(write.obj), load)))
    return {node for node, _ in found} - {node for node, is_another in found if not is_another}


def _is_another(value: Value, load: Call) -> bool:
    """Whether ``value`` is certainly a model or a configuration that ``load`` has nothing to do with."""
    return all(isinstance(option, Result) and _loads(option.call, load) for option in origins(value))


def _loads(call: Call, load: Call) -> bool:
    """Whether ``call`` gives an object of transformers that is not what ``load`` gave, nor shares its configuration."""
    configs = options(load.argument(None, "config")), options(load.argument(0, "config"))
    own = {load.node, *(config.node for found in configs for config in found)} - {None}
    given = {option.node for value in (*call.args, *call.kwargs.values()) for option in options(value)}
    return canonical(call.name).startswith("transformers.") and call.node not in own and own.isdisjoint(given)


def _keeps_cache_with_labels(model: Value, reentrant: bool | None) -> bool:
    """Whether it is an encoder-decoder that fails in this variant because it keeps its cache."""
    name = canonical(model.call.name) if isinstance(model, Result) else ""
    failing = (*_FAILING, *_FAILING_NON_REENTRANT) if reentrant is False else _FAILING
    return name.removesuffix(".from_pretrained").removesuffix("._from_config") in failing


def _has_default_cache(load: Call, name: str) -> bool:
    """Whether nothing that this file does not show can have switched the cache off."""
    config = load.argument(None if name.endswith(".from_pretrained") else 0, "config")
    return not load.open_kwargs and all(_is_default(option) for option in options(config))


def _is_default(config: Value) -> bool:
    """Whether ``config`` is not given, or certainly one of transformers as it comes."""
    match config:
        case Absent():
            return True
        case Result(call):
            name = canonical(call.name)
            return name.startswith("transformers.") and "Config" in name and not call.open_kwargs
    return False
