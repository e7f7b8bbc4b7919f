"""Events, regions and the HuggingFace side of a run."""

from __future__ import annotations

import textwrap

from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.facts.interpreter.program import read_program
from hf_ckpt.lint.model.conditions.versions import Versions, overlap
from hf_ckpt.lint.model.events import Checkpoint, HfEnable, TrainerArgs, TrainerBuild
from hf_ckpt.lint.model.events.extract import args_of
from hf_ckpt.lint.model.libraries.trainer import is_enabled, overriding_trainer, trainer_reentrant
from hf_ckpt.lint.model.names import canonical
from hf_ckpt.lint.model.run import Run


def run_of(code: str, **versions: str) -> Run:
    return Run(read_program(textwrap.dedent(code), "example.py"), Versions(versions))


def test_names_are_the_same_whatever_the_path():
    assert canonical("transformers.training_args.TrainingArguments") == "transformers.TrainingArguments"
    assert canonical("transformers.AutoModel.from_pretrained") == "transformers.AutoModel.from_pretrained"
    assert canonical("torch.nn.modules.batchnorm.BatchNorm2d") == "torch.nn.BatchNorm2d"
    assert canonical("torch.distributed._composable.fsdp.fully_shard") == "torch.distributed.fsdp.fully_shard"
    assert canonical("torch.utils.checkpoint.checkpoint") == "torch.utils.checkpoint.checkpoint"


def test_methods_of_other_objects_are_no_events():
    run = run_of(
        """
        from diffusers import UNet2DModel
        import transformers
        class Mine:
            def gradient_checkpointing_enable(self): ...
        Mine().gradient_checkpointing_enable()
        UNet2DModel().gradient_checkpointing_enable()
        unknown.gradient_checkpointing_enable()
        transformers.LlamaForCausalLM(config).to("cpu").train().gradient_checkpointing_enable()
        """
    )
    assert [event.node.lineno for event in run.of(HfEnable)] == [9]


def test_the_region_of_a_checkpoint_reaches_through_classes_containers_and_closures():
    run = run_of(
        """
        import torch.nn as nn
        from torch.utils.checkpoint import checkpoint
        class Inner(nn.Module):
            def __init__(self):
                self.norm = nn.BatchNorm1d(8)
            def forward(self, x):
                return helper(self.norm(x))
        class Block(nn.Module):
            def __init__(self):
                self.stages = nn.Sequential(nn.Linear(8, 8), Inner())
            def forward(self, x):
                return self.stages(x)
        def helper(x):
            return x.relu()
        def make(block):
            def run(*inputs):
                return block(*inputs)
            return run
        class Net(nn.Module):
            def __init__(self):
                self.blocks = nn.ModuleList([Block() for _ in range(2)])
            def forward(self, x):
                for block in self.blocks:
                    x = checkpoint(make(block), x, use_reentrant=False)
                return x
        """
    )
    (event,) = run.of(Checkpoint)
    region = run.region(event)
    assert {function.name for function in region.functions} == {"forward", "helper"}
    assert [module.call.func.name for module in region.modules_of("torch.nn.BatchNorm1d")] == ["torch.nn.BatchNorm1d"]
    assert [call.method for call in region.method_calls("relu")] == ["relu"]


def test_what_the_trainer_will_do():
    run = run_of(
        """
        from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
        from trl import SFTConfig
        off = TrainingArguments("a")
        on = TrainingArguments("a", gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True})
        trl = SFTConfig("a")
        late = TrainingArguments("a")
        late.activation_checkpointing = True
        frozen = TrainingArguments("a")
        frozen.gradient_checkpointing = True
        Trainer(None, off), Trainer(None, on), Trainer(None, trl), Trainer(None, late), Trainer(None, frozen)
        """
    )
    values = [trainer.args for trainer in run.of(TrainerBuild)]
    answers = [is_enabled(run, args_of(value), value) for value in values]
    assert answers == [False, True, True, True, False]
    assert [trainer_reentrant(run, args) for args in run.of(TrainerArgs)] == [False, True, False, False, False]


def test_a_trainer_overrides_only_the_model_it_gets():
    run = run_of(
        """
        from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
        teacher = AutoModelForCausalLM.from_pretrained("t")
        student = AutoModelForCausalLM.from_pretrained("s")
        teacher.gradient_checkpointing_enable()
        student.gradient_checkpointing_enable()
        Trainer(student, TrainingArguments("o", gradient_checkpointing=True))
        """
    )
    assert [overriding_trainer(run, enable) is not None for enable in run.of(HfEnable)] == [False, True]


def test_version_ranges_overlap():
    assert overlap(">=5.0", ">=5.23,<6")
    assert not overlap("<5.23", ">=5.23,<6")
    assert not overlap("==4.57.6", ">=5")
    assert overlap("~=5.20", ">=5.23")
    assert not overlap("~=5.20.0", ">=5.23")
    assert overlap("==5.23.*", ">=5.23.1")
    assert not overlap(">=5", "<5.0")
    assert overlap("==2.4.1+cu121", ">=2.4.1")
    assert overlap(">= 5.0.0rc1 , < 6", "==5.0.0")
    assert not overlap("==1!2.0", ">=2.0,<3")
    assert overlap("===anything", ">=5")
    assert not overlap("==5.0.0", ">5")


def test_a_rule_runs_only_for_versions_its_claim_holds_for():
    code = textwrap.dedent(
        """
        from transformers import TrainingArguments
        args = TrainingArguments("out", gradient_checkpointing=True)
        args.gradient_checkpointing = False
        """
    )
    assert [finding.code for finding in check_source(code)] == ["CKPT201"]
    assert [finding.versions for finding in check_source(code)] == ["transformers>=5.23,<6"]
    assert check_source(code, versions={"transformers": ">=4.57,<5"}) == []


def test_source_that_is_no_python_is_one_finding():
    (finding,) = check_source("from torch.utils.checkpoint import checkpoint\ndef (:\n")
    assert (finding.code, finding.span.line) == ("CKPT903", 2)
