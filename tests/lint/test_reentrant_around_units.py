"""Who makes FSDP units of layers that are in reentrant wrappers already: whoever it is, it is said to gather twice."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from started import found

SCRIPT = """\
import functools
import torch
from torch import nn
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper, CheckpointImpl
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, transformer_auto_wrap_policy
from transformers import AutoModelForCausalLM, LlamaForCausalLM, Trainer, TrainingArguments
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from lightning.fabric import Fabric
from lightning.fabric.strategies import FSDPStrategy
from lightning.pytorch import Trainer as PLTrainer
from lightning.pytorch.strategies import FSDPStrategy as PLFSDP

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)
    def forward(self, x):
        return x + self.down(self.up(x).relu())
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(4))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x
wrap = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT)
{}
"""
WAYS = {
    "fabric": (
        "model = Net()",
        "apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, Layer))",
        "fabric = Fabric(strategy=FSDPStrategy(auto_wrap_policy={Layer}))",
        "model = fabric.setup(model)",
    ),
    "hf": (
        "model = LlamaForCausalLM.from_pretrained('x')",
        "apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, LlamaDecoderLayer))",
        "accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(auto_wrap_policy='transformer_based_wrap', transformer_cls_names_to_wrap='LlamaDecoderLayer'))",
        "model = accelerator.prepare(model)",
    ),
    "policy": (
        "model = Net()",
        "apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, Layer))",
        "accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(auto_wrap_policy=ModuleWrapPolicy({Layer})))",
        "model = accelerator.prepare(model)",
    ),
    "object": (
        "class Engine:",
        "    def __init__(self, model):",
        '        self.accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Layer"]))',
        "        apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, Layer))",
        "        self.model = self.accelerator.prepare(model)",
        "Engine(Net())",
    ),
    "kwargs": (
        'kw = {\'fsdp_plugin\': FullyShardedDataParallelPlugin(auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Layer"])}',
        "accelerator = Accelerator(**kw)",
        "model = Net()",
        "apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, Layer))",
        "model, opt = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))",
    ),
    "trainer": (
        "model = Net()",
        "apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, Layer))",
        "args = TrainingArguments('out', fsdp='full_shard auto_wrap', fsdp_config={'version': 1, 'transformer_layer_cls_to_wrap': ['Layer']})",
        "Trainer(model, args).train()",
    ),
    "trainer hf": (
        "model = LlamaForCausalLM.from_pretrained('x')",
        "apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, LlamaDecoderLayer))",
        "args = TrainingArguments('out', fsdp='full_shard auto_wrap', fsdp_config={'fsdp_version': 1, 'transformer_layer_cls_to_wrap': 'LlamaDecoderLayer'})",
        "Trainer(model, args).train()",
    ),
    "loop": (
        'accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Layer"]))',
        "model = Net()",
        "for i, layer in enumerate(model.layers):",
        "    model.layers[i] = checkpoint_wrapper(layer, checkpoint_impl=CheckpointImpl.REENTRANT)",
        "model = accelerator.prepare(model)",
    ),
    "name": (
        "accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(auto_wrap_policy='transformer_based_wrap', transformer_cls_names_to_wrap=[Layer.__name__]))",
        "model = Net()",
        "apply_activation_checkpointing(model, wrap, lambda m: type(m).__name__ == 'Layer')",
        "model = accelerator.prepare(model)",
    ),
    "pl": (
        "import lightning",
        "class Lit(lightning.LightningModule):",
        "    def __init__(self):",
        "        super().__init__()",
        "        self.net = Net()",
        "    def training_step(self, b, i):",
        "        return self.net(b).mean()",
        "model = Lit()",
        "apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, Layer))",
        "PLTrainer(strategy=PLFSDP(auto_wrap_policy={Layer})).fit(model)",
    ),
    "partial policy": (
        "model = Net()",
        "apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, Layer))",
        "policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Layer})",
        "accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(auto_wrap_policy=policy))",
        "model = accelerator.prepare(model)",
    ),
}
RIGHT = {
    "after": (
        "model = Net()",
        'accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Layer"]))',
        "model = accelerator.prepare(model)",
        "apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, Layer))",
    ),
    "v2": (
        "model = Net()",
        "apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, Layer))",
        'accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Layer"]))',
        "model = accelerator.prepare(model)",
    ),
    "grad op": (
        "model = Net()",
        "apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, Layer))",
        'accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(sharding_strategy=\'SHARD_GRAD_OP\', auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Layer"]))',
        "model = accelerator.prepare(model)",
    ),
    "other": (
        "model = Net()",
        "apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, Layer))",
        'accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Net"]))',
        "model = accelerator.prepare(model)",
    ),
    "other model": (
        "model = Net()",
        "other = Net()",
        "apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, Layer))",
        'accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Layer"]))',
        "other = accelerator.prepare(other)",
    ),
    "nonre": (
        "model = Net()",
        "apply_activation_checkpointing(model, checkpoint_wrapper, lambda m: isinstance(m, Layer))",
        'accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["Layer"]))',
        "model = accelerator.prepare(model)",
    ),
    "size": (
        "model = Net()",
        "apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, Layer))",
        "accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(auto_wrap_policy='size_based_wrap', min_num_params=100))",
        "model = accelerator.prepare(model)",
    ),
    "hf other": (
        "model = LlamaForCausalLM.from_pretrained('x')",
        "apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, LlamaDecoderLayer))",
        "accelerator = Accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(auto_wrap_policy='transformer_based_wrap', transformer_cls_names_to_wrap='LlamaMLP'))",
        "model = accelerator.prepare(model)",
    ),
    "trainer2": (
        "model = Net()",
        "apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, Layer))",
        "args = TrainingArguments('out', fsdp='full_shard auto_wrap', fsdp_config={'version': 2, 'transformer_layer_cls_to_wrap': ['Layer']})",
        "Trainer(model, args).train()",
    ),
}
#: Settings of `accelerate launch`.
LAUNCHED = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_processes: 8
fsdp_config:
  fsdp_version: 1
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_transformer_layer_cls_to_wrap: Layer
  fsdp_sharding_strategy: FULL_SHARD
"""
PREPARED = (
    "model = Net()",
    "apply_activation_checkpointing(model, wrap, lambda m: isinstance(m, Layer))",
    "model = Accelerator().prepare(model)",
)


def codes(lines):
    return [it.code for it in check_source(SCRIPT.format("\n".join(lines)), "t.py") if it.code == "CKPT401"]


@pytest.mark.parametrize("way", WAYS)
def test_found(way):
    assert codes(WAYS[way]) == ["CKPT401"]


@pytest.mark.parametrize("way", RIGHT)
def test_units_that_come_first_or_hold_the_wrapper_are_right(way):
    assert codes(RIGHT[way]) == []


@pytest.mark.parametrize(
    ("was", "becomes", "expected"),
    [
        ("", "", ["CKPT401"]),
        ("fsdp_version: 1", "fsdp_version: 2", []),
        ("to_wrap: Layer", "to_wrap: Net", []),
        ("FULL_SHARD", "SHARD_GRAD_OP", []),
        ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", []),
    ],
)
def test_units_that_settings_of_the_launcher_ask_for(tmp_path, was, becomes, expected):
    files = {
        "train.py": SCRIPT.format("\n".join(PREPARED)),
        "fsdp.yaml": LAUNCHED.replace(was, becomes) if was else LAUNCHED,
        "run.sh": "accelerate launch --config_file fsdp.yaml train.py\n",
    }
    assert found(tmp_path, files, "--select", "CKPT401") == expected
