"""Settings that `hydra.main` puts together of files and of the words of a command that a launch script has."""

import pytest
from started import found

SCRIPT = """\
import hydra
from omegaconf import DictConfig, OmegaConf
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(cfg: DictConfig):
    training = TrainingArguments(**OmegaConf.to_container(cfg.trainer, resolve=True))
    Trainer(AutoModelForCausalLM.from_pretrained(cfg.name), args=training).train()

if __name__ == "__main__":
    main()
"""
TRAINER = """\
output_dir: ${hydra:runtime.output_dir}
gradient_checkpointing: SWITCH
fsdp: full_shard
fsdp_config:
  activation_checkpointing: true
"""


def indented(text):
    return "".join(f"  {line}\n" for line in text.splitlines())


ON, OFF = TRAINER.replace("SWITCH", "true"), TRAINER.replace("SWITCH", "false")
PLAIN = f"name: Qwen/Qwen3-0.6B\ntrainer:\n{indented(ON)}"
GROUPS = "defaults:\n  - _self_\n  - trainer: big\n  - optional local: default\n  - override hydra/launcher: slurm\nname: x\n"


def run(folder, words, **files):
    named = {f"conf/{name.replace('__', '/')}.yaml": text for name, text in files.items()}
    return found(folder, {"train.py": SCRIPT, **named, "run.sh": f"python train.py {words}\n"})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", ["CKPT303"]),
        ("trainer.learning_rate=1e-4 +trainer.bf16=true", ["CKPT303"]),
        ("trainer.gradient_checkpointing=false", []),
        ("trainer.gradient_checkpointing=true,false", []),
        ("trainer.fsdp_config.activation_checkpointing=False", []),
        ("~trainer.fsdp_config", []),
        ("--multirun trainer.seed=1,2", []),
        ("$@", []),
        ("trainer.seed=$SEED", []),  # which words that are, only the shell knows
    ],
)
def test_one_file_and_what_the_command_overrides(tmp_path, words, expected):
    assert run(tmp_path, words, config=PLAIN) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", ["CKPT303"]),
        ("trainer=small", []),
        ("trainer=small trainer.gradient_checkpointing=true", ["CKPT303"]),
        ("trainer=missing", []),
        ("--config-name=other", []),
    ],
)
def test_files_of_groups(tmp_path, words, expected):
    files = {"config": GROUPS, "trainer__big": ON, "trainer__small": OFF}
    assert run(tmp_path, words, **files) == expected


def test_without_a_command_nothing_is_certain(tmp_path):
    assert found(tmp_path, {"train.py": SCRIPT, "conf/config.yaml": PLAIN}) == []


@pytest.mark.parametrize(
    ("listed", "own", "expected"),
    [
        ("[_self_, trainer: big]", "{gradient_checkpointing: false}", ["CKPT303"]),
        ("[trainer: big, _self_]", "{gradient_checkpointing: false}", []),
        ("[trainer: big]", "{gradient_checkpointing: false}", []),  # which of them wins depends on the release
        ("[trainer: big]", "{}", []),
        ("[trainer@training: big]", "{}", []),
        ("[trainer: [big]]", "{}", []),
    ],
)
def test_the_order_of_files_decides(tmp_path, listed, own, expected):
    config = f"defaults: {listed}\nname: x\ntrainer: {own}\n"
    assert run(tmp_path, "", config=config, trainer__big=ON) == expected


def test_a_file_may_say_where_it_belongs_and_name_another_one(tmp_path):
    files = {
        "config": "defaults: [_self_, experiment: long]\nname: x\ntrainer: {output_dir: out}\n",
        "experiment__long": f"# @package _global_\ndefaults: [base, _self_]\ntrainer:\n{indented(ON)}",
        "experiment__base": f"# @package _global_\ntrainer:\n{indented(OFF)}",
    }
    assert run(tmp_path, "", **files) == ["CKPT303"]
    files["experiment__long"] = files["experiment__long"].replace("[base, _self_]", "[_self_, base]")
    assert run(tmp_path, "", **files) == []
