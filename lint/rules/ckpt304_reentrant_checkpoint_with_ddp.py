"""Reentrant checkpoints under DDP with `find_unused_parameters` or with a block they share.

## What it does
Flags the reentrant variant in a model that `DistributedDataParallel` wraps with `find_unused_parameters=True`, or whose
forward pass checkpoints one and the same block several times, unless the graph is static (`static_graph=True`,
`_set_static_graph()`). Lightning's Trainer and Fabric wrap a model by their `strategy`, accelerate by the
`DistributedDataParallelKwargs` that it is given. The same for a Trainer whose arguments say
`ddp_find_unused_parameters=True`, when they are built or later, or that trains a PEFT adapter and sets another `ddp_*`
argument without this one: for adapters the Trainer switches it on, as it does for a model of the program that
checkpoints by itself, without the switch of transformers. ms-swift trains an adapter unless told otherwise, so
there `NPROC_PER_NODE` above 1 and a reentrant variant are enough. `prepare_model_for_kbit_training` of a quantized
model chooses the reentrant variant unless told otherwise (CKPT103).

## Why is this bad?
The reentrant variant runs a backward pass of its own inside the backward pass. DDP has marked those parameters as
unused, or as ready after the block's first segment, and raises `RuntimeError: Expected to mark a variable ready only
once` in the first step.

## Bad
```python
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, x):
        return checkpoint(self.block, self.embed(x), use_reentrant=True)  # error

class Recurrent(Net):
    def forward(self, x):
        x = self.embed(x)
        for _ in range(3):
            x = checkpoint(self.block, x, use_reentrant=True)  # error
        return x

def train(rank):
    return DDP(Net(), device_ids=[rank], find_unused_parameters=True), DDP(Recurrent(), device_ids=[rank])
```
```python
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.update = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, x):
        x = self.embed(x)
        for _ in range(3):
            x = checkpoint(self.update, x, use_reentrant=True)  # error
        return x

class Stereo(Flow):
    def forward(self, x):
        return self.update(self.embed(x))

def train(task, rank):
    model = Flow() if task == "flow" else Stereo()
    return DDP(model.to(rank), device_ids=[rank], find_unused_parameters=task == "stereo")
```
```python
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM

def build(name, rank):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})  # error
    return DistributedDataParallel(model.train(), device_ids=[rank], find_unused_parameters=True)
```
```python
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForCausalLM

def build(name, rank, batches):
    model = AutoModelForCausalLM.from_pretrained(name, load_in_4bit=True)
    model = get_peft_model(prepare_model_for_kbit_training(model), LoraConfig())  # error: CKPT103
    model = DistributedDataParallel(model, device_ids=[rank], find_unused_parameters=True)  # error
    for batch in batches:
        model(**batch).loss.backward()
```
```python
from peft import LoraConfig
from transformers import TrainingArguments
from trl import SFTConfig, SFTTrainer

plain = TrainingArguments(
    "out",
    ddp_find_unused_parameters=True,
    gradient_checkpointing=True,
    gradient_checkpointing_kwargs={"use_reentrant": True},  # error
)
adapters = SFTConfig(
    "out",
    ddp_timeout=7200,
    gradient_checkpointing_kwargs={"use_reentrant": True},  # error
)
SFTTrainer("base", args=adapters, peft_config=LoraConfig()).train()
```
```yaml
# llamafactory-cli train this.yaml
model_name_or_path: meta-llama/Llama-3.2-1B
stage: sft
finetuning_type: lora
dataset: identity
template: llama3
output_dir: out
per_device_train_batch_size: 1
use_reentrant_gc: true  # error
ddp_find_unused_parameters: true
```
```yaml
# axolotl train this.yaml
base_model: NousResearch/Llama-3.2-1B
datasets:
  - path: teknium/GPT4-LLM-Cleaned
    type: alpaca
micro_batch_size: 2
gradient_checkpointing: true
gradient_checkpointing_kwargs:  # error
  use_reentrant: true
ddp_find_unused_parameters: true
```
```yaml
# swift sft this.yaml
model: Qwen/Qwen3-8B
tuner_type: lora
dataset: AI-ModelScope/alpaca-gpt4-data-en
gradient_checkpointing_kwargs:  # error
  use_reentrant: true
ENV:
  NPROC_PER_NODE: 2
```

```python
import lightning as L
import torch.nn as nn
from accelerate import Accelerator, DistributedDataParallelKwargs
from lightning.fabric import Fabric
from lightning.fabric.strategies import DDPStrategy
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, x):
        return checkpoint(self.block, self.embed(x), use_reentrant=True)  # error

class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, index):
        return self.net(batch).sum()

L.Trainer(strategy="ddp_find_unused_parameters_true").fit(Lit())
fabric = Fabric(strategy=DDPStrategy(find_unused_parameters=True)).setup(Net())
accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])
model = accelerator.prepare(Net())
```
```python
from transformers import TrainingArguments

args = TrainingArguments(
    "out",
    activation_checkpointing=True,
    activation_checkpointing_kwargs={"use_reentrant": True},  # error
)
args.ddp_find_unused_parameters = True
```

```python
import torch
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModel

class Classifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = AutoModel.from_pretrained("base"), torch.nn.Linear(768, 2)
        self.encoder.gradient_checkpointing_enable({"use_reentrant": True})  # error

    def forward(self, ids):
        return self.head(self.encoder(ids).last_hidden_state[:, 0])

model = DistributedDataParallel(Classifier().train(), find_unused_parameters=True)
```
```python
import torch.nn as nn
from torch.utils.checkpoint import checkpoint
from transformers import Trainer, TrainingArguments

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.block = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, x):
        return {"loss": checkpoint(self.block, self.embed(x), use_reentrant=True).mean()}  # error

def make(trial):
    return Net()

Trainer(model_init=make, args=TrainingArguments("out", ddp_broadcast_buffers=False)).train()
```

## Good
```python
import pytorch_lightning as pl
import torch.nn as nn
from accelerate import Accelerator, DistributedDataParallelKwargs
from pytorch_lightning.strategies import DDPStrategy
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, x):
        return checkpoint(self.block, self.embed(x), use_reentrant=True)

class Lit(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, index):
        return self.net(batch).sum()

pl.Trainer(strategy="ddp").fit(Lit())
pl.Trainer(strategy=DDPStrategy(find_unused_parameters=True, static_graph=True)).fit(Lit())
accelerator = Accelerator(kwargs_handlers=[DistributedDataParallelKwargs(gradient_as_bucket_view=True)])
model = accelerator.prepare(Net())
```
```python
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.reentrant = reentrant
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=True)
        return x

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())

    def forward(self, x):
        for _ in range(3):
            x = checkpoint(self.block, x, use_reentrant=False)
        return x

def older_spelling(rank):
    model = DDP(Net(True), device_ids=[rank], find_unused_parameters=True)
    model._set_static_graph()
    return model

def train(rank, unused):
    return (
        DDP(Net(True), device_ids=[rank]),
        DDP(Net(True), device_ids=[rank], find_unused_parameters=True, static_graph=True),
        DDP(Net(True), device_ids=[rank], find_unused_parameters=unused),
        DDP(Recurrent(), device_ids=[rank], find_unused_parameters=True),
        DDP(Net(True) if unused else Recurrent(), device_ids=[rank], find_unused_parameters=not unused),
        DDP(Net(True) if unused else Recurrent(), device_ids=[rank]),
    )
```
```python
from peft import LoraConfig
from transformers import TrainingArguments
from trl import SFTConfig, SFTTrainer

reentrant = {"use_reentrant": True}
plain = TrainingArguments("out", ddp_timeout=7200, gradient_checkpointing=True, gradient_checkpointing_kwargs=reentrant)
default = TrainingArguments("out", ddp_find_unused_parameters=True, gradient_checkpointing=True)
adapters = SFTConfig("out", ddp_find_unused_parameters=False, gradient_checkpointing_kwargs=reentrant)
SFTTrainer("base", args=adapters, peft_config=LoraConfig()).train()
one_device = SFTConfig("out", gradient_checkpointing_kwargs=reentrant)
SFTTrainer("base", args=one_device, peft_config=LoraConfig()).train()
```
```yaml
model_name_or_path: meta-llama/Llama-3.2-1B
stage: sft
finetuning_type: lora
dataset: identity
template: llama3
output_dir: out
use_reentrant_gc: false
ddp_find_unused_parameters: true
```
```yaml
base_model: NousResearch/Llama-3.2-1B
datasets:
  - path: teknium/GPT4-LLM-Cleaned
    type: alpaca
micro_batch_size: 2
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
ddp_find_unused_parameters: true
```
```yaml
model: Qwen/Qwen3-8B
tuner_type: lora
dataset: AI-ModelScope/alpaca-gpt4-data-en
ENV:
  NPROC_PER_NODE: 2
```

## Fix safety
Unsafe: the non-reentrant variant runs instead of none at all.

## Evidence
```python
import os
import tempfile
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

class Net(torch.nn.Module):
    def __init__(self, reentrant, shared):
        super().__init__()
        self.embed = torch.nn.Linear(8, 8)
        self.blocks = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(1 if shared else 3)])
        self.reentrant = reentrant

    def forward(self, x):
        x = self.embed(x)
        for index in range(3):
            x = checkpoint(self.blocks[index % len(self.blocks)], x, use_reentrant=self.reentrant).tanh()
        return x

def problem(reentrant, shared=False, **options):
    model = DDP(Net(reentrant, shared), **options)
    try:
        for _ in range(2):
            model(torch.ones(2, 8)).sum().backward()
    except RuntimeError as error:
        return str(error)
    return ""

def work(rank, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    once = "Expected to mark a variable ready only once"
    assert problem(True) == ""
    assert once in problem(True, find_unused_parameters=True)
    assert once in problem(True, shared=True)
    for shared in (False, True):
        assert problem(True, shared, static_graph=True, find_unused_parameters=True) == ""
        assert problem(False, shared, find_unused_parameters=True) == ""
    dist.barrier()
    os._exit(0)  # gloo's threads may abort an interpreter that ends while they run

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (f"{folder}/store",), nprocs=2)
```
```python
# slow
import os
import tempfile
import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments

class Net(torch.nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.embed, self.block, self.reentrant = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), reentrant

    def forward(self, x):
        return {"loss": checkpoint(self.block, self.embed(x), use_reentrant=self.reentrant).mean()}

class OfTransformers(PreTrainedModel):
    def __init__(self, reentrant):
        super().__init__(PretrainedConfig())
        self.net = Net(reentrant)

    def forward(self, x):
        return self.net(x)

def problem(model, path, **options):
    args = TrainingArguments(
        f"{path}-out", use_cpu=True, report_to="none", max_steps=2, save_strategy="no", disable_tqdm=True, **options
    )
    try:
        Trainer(model, args, train_dataset=[{"x": torch.ones(8)}] * 32).train()
    except RuntimeError as error:
        return str(error)
    return ""

def work(rank, path):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="0")
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    once = "Expected to mark a variable ready only once"
    for kind in (Net, OfTransformers):
        assert once in problem(kind(True), path) and once in problem(kind(True), path, ddp_find_unused_parameters=True)
        assert problem(kind(False), path) == problem(kind(True), path, ddp_find_unused_parameters=False) == ""
    dist.barrier()
    os._exit(0)  # gloo's threads may abort an interpreter that ends while they run

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (f"{folder}/store",), nprocs=2)
```

## References
huggingface/peft#313, huggingface/trl#921, #4782; pytorch/pytorch#81296; transformers 5.23 `trainer.py`
(`find_unused_parameters` of a model, by its class and its switch); ms-swift 4.6 `trainers/mixin.py`
(`_fix_gradient_checkpointing`: the reentrant variant by default up to 3.5, the other one under DDP since).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.objects.containers import children_of
from ..facts.values import Absent, Dict, Instance, Result, equals, is_absent, options, same
from ..finding import Applicability, Severity
from ..model.conditions.guards import own_guards
from ..model.events import (
    AdapterAttach,
    Checkpoint,
    CheckpointSequential,
    DdpWrap,
    HfEnable,
    KbitPrepare,
    SwiftArgs,
    TorchCheckpoint,
    TrainerArgs,
    TrainerBuild,
)
from ..model.events.extract import args_of
from ..model.frozen.freezing import is_frozen
from ..model.libraries.launchers import data_parallel, trained_region
from ..model.libraries.quantized import is_quantized, sets_in_layers
from ..model.libraries.sharding import root
from ..model.libraries.trainer import (
    FINDS_UNUSED,
    default_versions,
    enable_reentrant,
    finds_unused,
    is_enabled,
    object_of,
    trainer_reentrant,
)
from ..model.needs import together
from ..model.regions.reused_segments import is_reused
from ..model.report import Remark, Report, Rewrite, SetKey, SetKeyword
from ..model.results.dropped import is_whole
from ..model.types import unwrapped
from ..model.variant import hf_kwargs_reentrant

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.libraries.launchers import DataParallel
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT304", "reentrant-checkpoint-with-ddp", Severity.ERROR
NEEDS = (
    *together(
        (DdpWrap, "DDPStrategy", "DDPPlugin", "DDPSpawn", "ddp_find", "strategy"),
        (TorchCheckpoint, HfEnable, KbitPrepare),
    ),
    *together("ddp_", ("use_reentrant", "checkpointing", TorchCheckpoint), TrainerArgs),
    # LLaMA-Factory checkpoints without a word, and reentrant.
    ("ddp_find_unused_parameters", "finetuning_type"),
    # So does ms-swift.
    *together(SwiftArgs, ("NPROC_PER_NODE", "NNODES", "ddp_find_unused_parameters")),
)
_SWITCHES = tuple(f"{kind}_checkpointing_{way}" for kind in ("gradient", "activation") for way in ("enable", "disable"))


def check(run: Run) -> Iterator[Report]:
    """Report reentrant regions in models that DDP cannot follow."""
    if run.is_compiled:
        return  # The compiler ignores `use_reentrant`.
    for wrap in data_parallel(run):
        if equals(wrap.is_static, True) is not False or _becomes_static(run, wrap):
            continue
        finds = equals(wrap.finds_unused, True) is True
        for event in _reentrant_segments(run, wrap):
            if finds or (isinstance(event, Checkpoint) and is_reused(run, event)):
                yield _report(event.node, wrap.node, SetKeyword(event.node, "use_reentrant", "False"))
        for enable in run.of(HfEnable):
            together = _is_in(enable.model, wrap.module) and not enable.place.excludes(wrap.place)
            if finds and together and enable_reentrant(run, enable) and not is_frozen(run, enable.model):
                yield _hf_report(enable, wrap.node)
        for prepare in _preparations(run) if finds else ():
            if _is_in(prepare.model, wrap.module) and not prepare.place.excludes(wrap.place):
                yield _report_at_wrap(wrap.node, prepare)
    for args, value in _distributed_arguments(run):
        if is_enabled(run, args, value) and trainer_reentrant(run, args):
            yield _hf_report(args, None)


def _preparations(run: Run) -> Iterator[KbitPrepare]:
    """The preparations for quantized training that certainly leave the model with the reentrant variant."""
    if any(run.of(TrainerBuild)) or any(run.method_calls(*_SWITCHES)) or sets_in_layers(run):
        return
    for prepare in run.of(KbitPrepare):
        turned_on = is_absent(prepare.enables) is True or equals(prepare.enables, True) is True
        is_certain = turned_on and not any(own_guards(prepare.place))
        is_reentrant = is_certain and hf_kwargs_reentrant(prepare.kwargs, default=True)
        if is_reentrant and is_quantized(run, prepare.model, prepare.place):
            yield prepare


def _is_in(model: Value, outer: Value) -> bool:
    """Whether ``outer`` is ``model`` itself, or a module of the file that holds it."""
    wanted = root(model)
    waiting, seen = [root(outer)], set[int]()
    while waiting:
        value = waiting.pop()
        if value is wanted:
            return True
        if isinstance(value, Instance) and id(value.cls) not in seen:
            seen.add(id(value.cls))
            waiting += map(unwrapped, children_of(value))
    return False


def _becomes_static(run: Run, wrap: DataParallel) -> bool:
    """Whether `_set_static_graph()` is called on the wrapped model, or on one that may be it."""
    models = (model for call in run.method_calls("_set_static_graph") for model in options(call.receiver))
    return any(not isinstance(model, Result) or same(model, Result(wrap.call)) for model in models)


def _reentrant_segments(run: Run, wrap: DataParallel) -> list[Checkpoint | CheckpointSequential]:
    # One of several models is a region of its own: when it runs, it is the one that was chosen.
    regions = (trained_region(run, option) for option in options(unwrapped(wrap.module)))
    inside = {call.node for region in regions for call in region.calls}
    sequential = (it for it in run.of(CheckpointSequential) if not is_whole(it))
    events: list[Checkpoint | CheckpointSequential] = [*run.of(Checkpoint), *sequential]
    return [event for event in events if event.reentrant and event.node in inside]


def _distributed_arguments(run: Run) -> Iterator[tuple[TrainerArgs, Value]]:
    """Arguments under which the Trainer lets DDP look for unused parameters."""
    adapted = [args for trainer in run.of(TrainerBuild) if _has_adapter(run, trainer) for args in options(trainer.args)]
    for args in run.of(TrainerArgs):
        if isinstance(args, SwiftArgs):
            if _swift_finds_unused(args):
                yield args, Result(args.call)
            continue
        given = {name for name in args.call.kwargs if name.startswith("ddp_")}
        values = [value for value in adapted if (found := args_of(value)) is not None and found.node is args.node]
        finds = finds_unused(run, args)
        if equals(finds, True):
            yield args, values[0] if values else object_of(args)
        elif isinstance(finds, Absent) and given and values:
            yield args, values[0]


def _swift_finds_unused(args: SwiftArgs) -> bool:
    """Whether DDP looks for unused parameters: the Trainer switches it on for adapters, and LoRA is the default."""
    if args.is_sharded is not False or args.is_by_unsloth or not args.trains_layers:
        return False
    given = args.call.keyword(FINDS_UNUSED)
    by_default = is_absent(given) is True and args.has_several_processes and args.trains_adapter
    return equals(given, True) is True or by_default


def _has_adapter(run: Run, trainer: TrainerBuild) -> bool:
    config = trainer.peft_config
    if getattr(getattr(config, "call", None), "name", "").startswith("peft."):
        return True
    return any(root(attach.model) is root(trainer.model) for attach in run.of(AdapterAttach))


def _hf_report(setting: HfEnable | TrainerArgs, wrap: ast.Call | None) -> Report:
    kwargs = setting.kwargs
    literal = kwargs.display if isinstance(kwargs, Dict) else None
    change = SetKey(literal, "use_reentrant", "False") if literal is not None else None
    report = _report(literal if literal is not None else setting.node, wrap, change)
    return report._replace(versions=default_versions(setting))


def _report_at_wrap(wrap: ast.Call, prepare: KbitPrepare) -> Report:
    """The report of a variant that CKPT103 names where it is chosen."""
    report = _report(wrap, None, None)
    return report._replace(notes=(Remark(prepare.node, "this turns checkpointing on, the reentrant variant"),))


def _report(node: ast.AST, wrap: ast.Call | None, change: SetKeyword | SetKey | None) -> Report:
    fix = Rewrite(Applicability.UNSAFE, "Use the non-reentrant variant", (change,)) if change is not None else None
    return Report(
        node,
        "under DDP the reentrant variant marks parameters ready twice, and the first backward pass raises a "
        "RuntimeError; use the non-reentrant variant",
        notes=(Remark(wrap, "DDP wraps the model here"),) if wrap is not None else (),
        fix=fix,
    )
