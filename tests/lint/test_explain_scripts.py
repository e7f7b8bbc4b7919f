"""`explain` on scripts as people write them: the answer to "is it really on?", and what decides it."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.explain.files import as_text
from hf_ckpt.lint.explain.run import explain
from hf_ckpt.lint.facts.imported.local import LocalModule

ARGUMENTS = """
from dataclasses import dataclass
from transformers import TrainingArguments
@dataclass
class Mine(TrainingArguments):
    gradient_checkpointing: bool = True
def make():
    return Mine("out")
"""
FACTORY = """
from transformers import AutoModelForCausalLM
def build(config):
    model = AutoModelForCausalLM.from_pretrained(config.name)
    if config.save_memory:
        model.gradient_checkpointing_enable({"use_reentrant": True})
    return model
"""
LOAD = 'from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\nmodel = AutoModelForCausalLM.from_pretrained("m")\n'
OPTION = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument({0})\nargs = parser.parse_args()\n"
LOOP = "for batch in loader:\n    model(**batch).loss.backward()\n"
SCRIPTS = {
    "a model that an adapter may be around": (
        LOAD + "from peft import LoraConfig, PeftModel, get_peft_model\n"
        "if args.adapter:\n    model = PeftModel.from_pretrained(model, args.adapter)\n"
        "elif args.lora:\n    model = get_peft_model(model, LoraConfig())\n"
        f"model.gradient_checkpointing_enable()\nmodel.train()\n{LOOP}",
        "model: on, non-reentrant; decided by train.py:8",
    ),
    "a model that one of two calls loads": (
        "from transformers import AutoModelForCausalLM, LlamaForCausalLM\n"
        "if args.llama:\n    model = LlamaForCausalLM.from_pretrained('m')\n"
        "else:\n    model = AutoModelForCausalLM.from_pretrained('m')\n"
        f"model.gradient_checkpointing_enable()\nmodel.train()\n{LOOP}",
        "model: on, non-reentrant; decided by train.py:6",
    ),
    "a model that only one way loads": (
        "from transformers import AutoModelForCausalLM\nmodel = None\n"
        "if args.load:\n    model = AutoModelForCausalLM.from_pretrained('m')\n    model.train()\n"
        "if args.load and args.save:\n    model.gradient_checkpointing_enable()\n" + LOOP,
        "model: on, non-reentrant when `args.load and args.save`, otherwise off; left open by train.py:7",
    ),
    "prepared under a condition, decided by the Trainer": (
        "from peft import prepare_model_for_kbit_training\n"
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "model = AutoModelForCausalLM.from_pretrained('m', load_in_4bit=True)\n"
        "if args.prepare:\n    model = prepare_model_for_kbit_training(model)\n"
        "Trainer(model, TrainingArguments('out', gradient_checkpointing=True))\n",
        "model: on, non-reentrant; decided by train.py:6, overwrites train.py:5",
    ),
    "on or off": (
        LOAD
        + "if save:\n    model.gradient_checkpointing_enable()\nelse:\n    model.gradient_checkpointing_disable()\n",
        "model: on, non-reentrant when `save`, otherwise off; left open by train.py:6",
    ),
    "off for a while": (
        LOAD + "model.gradient_checkpointing_enable()\non = model.is_gradient_checkpointing\n"
        "if on:\n    model.gradient_checkpointing_disable()\nmodel.generate(x)\n"
        f"if on:\n    model.gradient_checkpointing_enable()\nmodel.train()\n{LOOP}",
        "model: on, non-reentrant; decided by train.py:9, overwrites train.py:3, train.py:6",
    ),
    "with keywords, or without for older releases": (
        LOAD + "try:\n    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={'use_reentrant': False})\n"
        f"except TypeError:\n    model.gradient_checkpointing_enable()\nmodel.train()\n{LOOP}",
        "model: on, non-reentrant; decided by train.py:6, overwrites train.py:4",
    ),
    "a method that switches it off, which nothing calls": (
        "from transformers import AutoModelForCausalLM\nclass Held:\n    def __init__(self):\n"
        "        self.model = AutoModelForCausalLM.from_pretrained('m').train()\n"
        "        self.model.gradient_checkpointing_enable()\n    def close(self):\n"
        "        self.model.gradient_checkpointing_disable()\nHeld()\n",
        "self.model: off when `close` runs, otherwise on, non-reentrant; left open by train.py:7",
    ),
    "arguments in another file": (
        LOAD + "from arguments import make\nTrainer(model, make())\n",
        "model: on, non-reentrant; decided by arguments.py:8",
    ),
    "a parser fills a class with a default of its own": (
        LOAD + "from arguments import Mine\nfrom transformers import HfArgumentParser\n"
        "(args,) = HfArgumentParser(Mine).parse_args_into_dataclasses()\nTrainer(model, args)\n",
        "model: on by default, non-reentrant; `--gradient_checkpointing` on the command line decides; left open by train.py:5",
    ),
    "one of two parsers": (
        LOAD + "import sys\nfrom transformers import HfArgumentParser\nparser = HfArgumentParser(TrainingArguments)\n"
        "if sys.argv[1].endswith('.json'):\n    (args,) = parser.parse_json_file(sys.argv[1])\n"
        "else:\n    (args,) = parser.parse_args_into_dataclasses()\nTrainer(model, args)\n",
        "model: off by default; `--gradient_checkpointing` on the command line decides; left open by train.py:7",
    ),
    "trl turns it on": (
        "from trl import ScriptArguments, SFTConfig, SFTTrainer, TrlParser\n"
        "_, args = TrlParser((ScriptArguments, SFTConfig)).parse_args_and_config()\nSFTTrainer(model='m', args=args)\n",
        "'m': on by default, non-reentrant; `--gradient_checkpointing` on the command line decides; left open by train.py:2",
    ),
    "a flag": (
        LOAD
        + OPTION.format('"--save", action="store_true"')
        + f"if args.save:\n    model.gradient_checkpointing_enable()\nmodel.train()\n{LOOP}",
        "model: on, non-reentrant when `args.save` (`--save`, off by default), otherwise off; left open by train.py:8",
    ),
    "a flag that turns it off": (
        LOAD
        + OPTION.format('"--no-gc", dest="gc", action="store_false"')
        + "Trainer(model, TrainingArguments('o', gradient_checkpointing=args.gc))\n",
        "model: on by default, non-reentrant; `--no-gc` on the command line decides; left open by train.py:7",
    ),
    "a flag that the script answers itself": (
        LOAD
        + OPTION.format('"--save", action="store_true"').replace("parse_args()", "parse_args([])")
        + "if args.save:\n    model.gradient_checkpointing_enable()\nTrainer(model, TrainingArguments('o'))\n",
        "model: off",
    ),
    "a factory in another file": (
        "from factory import build\nfrom transformers import Trainer, TrainingArguments\n"
        "from config import config\nTrainer(build(config), TrainingArguments('o'))\n",
        "model: on, reentrant when `config.save_memory`, otherwise off; left open by factory.py:6",
    ),
    "the Trainer overrides the factory": (
        "from factory import build\nfrom transformers import Trainer, TrainingArguments\n"
        "from config import config\nTrainer(build(config), TrainingArguments('o', gradient_checkpointing=True))\n",
        "model: on, non-reentrant; decided by train.py:4, overwrites factory.py:6",
    ),
    "accelerate wraps the layers": (
        LOAD + "from accelerate import Accelerator, FullyShardedDataParallelPlugin\n"
        "plugin = FullyShardedDataParallelPlugin(activation_checkpointing=True)\n"
        "model = Accelerator(fsdp_plugin=plugin).prepare(model)\n",
        "model: on, non-reentrant; decided by train.py:4",
    ),
    "the Trainer has accelerate wrap them": (
        LOAD
        + 'Trainer(model, TrainingArguments("o", fsdp="full_shard", fsdp_config={"activation_checkpointing": True}))\n',
        "model: on, non-reentrant; decided by train.py:3",
    ),
    "switched off behind accelerate": (
        LOAD
        + "from accelerate import Accelerator\naccelerator = Accelerator()\nmodel.gradient_checkpointing_enable()\n"
        "model = accelerator.prepare(model)\naccelerator.unwrap_model(model).gradient_checkpointing_disable()\n",
        "model: off; decided by train.py:7, overwrites train.py:5",
    ),
    "torch's wrappers": (
        LOAD
        + "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing\n"
        "from torch.distributed.fsdp import FullyShardedDataParallel\n"
        "model = FullyShardedDataParallel(model)\napply_activation_checkpointing(model, check_fn=is_layer)\n",
        "model: on, non-reentrant; decided by train.py:6",
    ),
    "k-bit preparation before an adapter": (
        LOAD.replace('("m")', '("m", load_in_4bit=True)')
        + "from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training\n"
        "model = get_peft_model(prepare_model_for_kbit_training(model), LoraConfig())\nTrainer(model, TrainingArguments('o'))\n",
        "model: on, reentrant; decided by train.py:4",
    ),
    "a model left in eval mode": (
        f"{LOAD}model.gradient_checkpointing_enable()\n{LOOP}",
        "model: on, non-reentrant; decided by train.py:3\n  but it takes effect in train mode only",
    ),
    "DDP": (
        LOAD + "from torch.nn.parallel import DistributedDataParallel\nmodel.gradient_checkpointing_enable()\n"
        f"model = DistributedDataParallel(model)\nmodel.train()\nmodel.module.gradient_checkpointing_disable()\n{LOOP}",
        "model: off; decided by train.py:7, overwrites train.py:4",
    ),
    "a layer of one's own": (
        "import torch.nn as nn\nfrom torch.utils.checkpoint import checkpoint\nclass Net(nn.Module):\n"
        "    def forward(self, x):\n        if self.training:\n            return checkpoint(self.block, x, use_reentrant=False)\n"
        "        return self.block(x)\n",
        "when `self.training`: checkpoints a region of its own, non-reentrant",
    ),
    "the last segment of a sequence": (
        "from torch.utils.checkpoint import checkpoint_sequential\ndef run(layers, x):\n"
        "    return checkpoint_sequential(layers, 1, x, use_reentrant=False)\n",
        "checkpoints nothing: its one segment is the last, which runs as it is",
    ),
    "all but the last segment of a sequence": (
        "from torch.utils.checkpoint import checkpoint_sequential\ndef run(layers, x):\n"
        "    return checkpoint_sequential(layers, 2, x, use_reentrant=False)\n",
        "checkpoints a region of its own, non-reentrant",
    ),
}


def find(name):
    text = {"arguments": ARGUMENTS, "factory": FACTORY}.get(name)
    return None if text is None else LocalModule(f"{name}.py", textwrap.dedent(text))


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_said(name):
    text, said = SCRIPTS[name]
    lines = as_text(explain(text, "train.py", {}, find))
    assert said in lines
    if said.endswith(": off"):
        assert lines.splitlines()[-1] == said
