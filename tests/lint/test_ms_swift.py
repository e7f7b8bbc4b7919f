"""ms-swift and Megatron-SWIFT as users start them: by a shell script, with a file of arguments, from Python.

What each really does was read in the wheels of ms-swift 3.0 to 4.6 and megatron-core 0.15 and 0.16.
"""

import json
from contextlib import chdir

import pytest
from hf_ckpt.lint.api import check_paths
from hf_ckpt.lint.explain.files import explain_files
from hf_ckpt.lint.project.settings import Settings

NO = "--gradient_checkpointing false"
REENTRANT = """--gradient_checkpointing_kwargs '{"use_reentrant": true}'"""
OTHER = """--gradient_checkpointing_kwargs '{"use_reentrant": false}'"""
TWO = "NPROC_PER_NODE=2 "
SFT = "swift sft --model Qwen/Qwen3-8B --dataset x "
MEGATRON = "NPROC_PER_NODE=8 megatron sft --load m --dataset x "
DEFAULT = "ms-swift for: on, non-reentrant under DDP and reentrant otherwise"
WRAPPED = "ms-swift for: every layer is wrapped in torch's checkpoint, non-reentrant"

#: A command, what is found in it, and what `explain` says of it.
COMMANDS = {
    "nothing said": (SFT, [], DEFAULT),
    "on": (f"CUDA_VISIBLE_DEVICES=0 \\\n{SFT} \\\n  --gradient_checkpointing true", [], DEFAULT),
    "off": (SFT + NO, [], "ms-swift for: off"),
    "arguments while it is off": (f"{SFT}{NO} {OTHER}", ["CKPT215"], "ms-swift for: off"),
    "off in other words": (f"{SFT}--gradient_checkpointing=no {OTHER}", ["CKPT215"], "ms-swift for: off"),
    "off beside variables": (
        f'swift pt --model "$MODEL" --dataset "$DATA" --output_dir $OUT/a {NO} {OTHER}',
        ["CKPT215"],
        "ms-swift for: off",
    ),
    "off, but the rest is open": (f'{SFT}{NO} {OTHER} "$@"', [], "ms-swift for: not decided"),
    "off, but more may follow": (f"{SFT}{NO} {OTHER} $EXTRA_ARGS", [], "ms-swift for: not decided"),
    "a switch that only the shell knows": (
        f"{SFT}--gradient_checkpointing $GC {OTHER}",
        [],
        "ms-swift for: not decided",
    ),
    "off, but not in the vision tower": (
        f"{SFT}{NO} --vit_gradient_checkpointing true {OTHER}",
        [],
        "ms-swift for: off; in the vision tower on",
    ),
    "the vision tower alone is off": (
        f"{SFT}--vit_gradient_checkpointing false",
        [],
        f"{DEFAULT}; in the vision tower off",
    ),
    "an array": (
        f'ARGS=(\n  --model m\n  {NO}\n  {OTHER}\n)\nswift sft "${{ARGS[@]}}"',
        ["CKPT215"],
        "ms-swift for: off",
    ),
    "a string for a bool": (
        f"""{SFT}--gradient_checkpointing_kwargs '{{"use_reentrant": "false"}}'""",
        ["CKPT133"],
        "ms-swift for: on, reentrant",
    ),
    "no determinism check": (
        f"""{SFT}--gradient_checkpointing_kwargs '{{"use_reentrant": false, "determinism_check": "none"}}'""",
        ["CKPT124"],
        "ms-swift for: on, non-reentrant",
    ),
    "a dict without the variant": (f"""{SFT}--gradient_checkpointing_kwargs '{{"debug": false}}'""", [], DEFAULT),
    "text that is no JSON": (
        f"""{SFT}--gradient_checkpointing_kwargs '{{"use_reentrant": False}}'""",
        [],
        "ms-swift for: on, variant not decided",
    ),
    "DDP": (TWO + SFT, [], "ms-swift for: on, non-reentrant"),
    "DDP, exported": (f"export NPROC_PER_NODE=8\n{SFT}", [], "ms-swift for: on, non-reentrant"),
    "DDP, reentrant LoRA": (f"{TWO}{SFT}{REENTRANT}", ["CKPT304"], "ms-swift for: on, reentrant"),
    "DDP, reentrant LoRA that is said": (f"{TWO}{SFT}--train_type lora {REENTRANT}", ["CKPT304"], "on, reentrant"),
    "DDP over a variable": (f"n=4\nNPROC_PER_NODE=$n \\\n{SFT} \\\n  {REENTRANT}", ["CKPT304"], "on, reentrant"),
    "DDP of two nodes": (f"export NNODES=2\n{SFT}{REENTRANT}", ["CKPT304"], "on, reentrant"),
    "DDP behind env": (f"nohup env NPROC_PER_NODE=2 {SFT}{REENTRANT} > log 2>&1 &", ["CKPT304"], "on, reentrant"),
    "DDP, non-reentrant LoRA": (f"{TWO}{SFT}{OTHER}", [], "ms-swift for: on, non-reentrant"),
    "DDP of one process": (f"NPROC_PER_NODE=1 {SFT}{REENTRANT}", [], "on, reentrant"),
    "DDP of processes that only the shell knows": (f"NPROC_PER_NODE=$N {SFT}{REENTRANT}", [], "on, reentrant"),
    "DDP, reentrant, all weights": (f"{TWO}{SFT}--tuner_type full {REENTRANT}", [], "on, reentrant"),
    "DDP looks for unused weights": (
        f"{TWO}{SFT}--tuner_type full --ddp_find_unused_parameters true {REENTRANT}",
        ["CKPT304"],
        "on, reentrant",
    ),
    "DDP does not look": (f"{TWO}{SFT}--ddp_find_unused_parameters false {REENTRANT}", [], "on, reentrant"),
    "DDP, only the vision tower trains": (f"{TWO}{SFT}--freeze_llm true {REENTRANT}", [], "on, reentrant"),
    "DDP, Unsloth": (f"{TWO}{SFT}--tuner_backend unsloth {REENTRANT}", [], "ms-swift for: not decided"),
    "DeepSpeed": (f"{TWO}{SFT}--deepspeed zero3 {REENTRANT}", [], "on, reentrant"),
    "DeepSpeed, nothing said": (f"{TWO}{SFT}--deepspeed zero2", [], "ms-swift for: on, reentrant"),
    "DeepSpeed's own section": (f"{SFT}--deepspeed ds.json {NO}", ["CKPT207"], "ms-swift for: off"),
    "DeepSpeed's section while it is on": (f"{SFT}--deepspeed ds.json", [], "ms-swift for: on, reentrant"),
    "FSDP2, LoRA with dropout": (f"{TWO}{SFT}--fsdp fsdp2", ["CKPT109"], WRAPPED),
    "FSDP2, LoRA with a dropout that is said": (f"{TWO}{SFT}--fsdp fsdp2 --lora_dropout 0.1", ["CKPT109"], WRAPPED),
    "FSDP2, LoRA without dropout": (f"{TWO}{SFT}--fsdp fsdp2 --lora_dropout 0", [], WRAPPED),
    "FSDP2, all weights": (f"{TWO}{SFT}--fsdp fsdp2 --tuner_type full", [], WRAPPED),
    "FSDP of a file": (f"{TWO}{SFT}--fsdp own.json --gradient_checkpointing true", [], "ms-swift for: not decided"),
    "preferences": (f"{TWO}swift rlhf --rlhf_type dpo --model m {REENTRANT}", ["CKPT304"], "on, reentrant"),
    "as a module": (f"python -m swift.cli.main sft --model m {NO} {OTHER}", ["CKPT215"], "ms-swift for: off"),
    "as a script": (
        f"torchrun --nproc_per_node 2 swift/cli/sft.py --model m --ddp_find_unused_parameters true {REENTRANT}",
        ["CKPT304"],
        "on, reentrant",
    ),
    "release 2": (f"{TWO}swift sft --model_type qwen --sft_type lora", [], "ms-swift for: on, variant not decided"),
    "silenced": (f"{SFT}{NO} {OTHER}  # noqa: CKPT215", [], "ms-swift for: off"),
    "a file of arguments": ("swift sft sft.yaml", ["CKPT215"], "ms-swift for: off"),
    "a file of arguments and more of them": (
        "swift sft sft.yaml --gradient_checkpointing true",
        [],
        "on, non-reentrant",
    ),
    "a file behind --config": ("swift sft --config sft.yaml --gradient_checkpointing true", ["CKPT215"], "for: off"),
    "a file that is not there": (f"swift sft missing.yaml {NO} {OTHER}", [], "ms-swift for: not decided"),
    "JSON": ("swift sft sft.json", ["CKPT215"], "ms-swift for: off"),
    "Megatron": (MEGATRON, [], "Megatron for: a part of each layer is recomputed: attention's core"),
    "Megatron, all layers": (
        f"{MEGATRON}--recompute_granularity full --recompute_method uniform --recompute_num_layers 1",
        [],
        "Megatron for: all layers are recomputed, in groups of 1",
    ),
    "Megatron, some layers": (
        f"{MEGATRON}--recompute_granularity full --recompute_method block --recompute_num_layers 4",
        [],
        "Megatron for: the first 4 layers of each pipeline stage are recomputed",
    ),
    "Megatron, all layers without a method": (f"{MEGATRON}--recompute_granularity full", ["CKPT308"], "raises:"),
    "Megatron, all layers without a number": (
        f"{MEGATRON}--recompute_granularity full --recompute_method uniform",
        ["CKPT308"],
        "raises:",
    ),
    "Megatron, a method for parts": (f"{MEGATRON}--recompute_method uniform", ["CKPT308"], "raises:"),
    "Megatron, a number for parts": (
        f"{MEGATRON}--recompute_granularity selective --recompute_num_layers 2",
        ["CKPT308"],
        "raises:",
    ),
    "Megatron, other parts": (
        f"{MEGATRON}--recompute_modules core_attn mlp",
        [],
        "Megatron for: a part of each layer is recomputed: what `recompute_modules` names",
    ),
    "Megatron, none": (
        f"{MEGATRON}--recompute_granularity none --recompute_method uniform",
        [],
        "Megatron for: off",
    ),
    "Megatron, the rest is open": (f"{MEGATRON}--recompute_granularity full $RECOMPUTE_ARGS", [], "not decided"),
    "Megatron, a file and more": (
        "megatron sft megatron.yaml --recompute_granularity full --recompute_method uniform",
        [],
        "Megatron for: all layers are recomputed, in groups of 2",
    ),
    "Megatron, a file alone": ("megatron sft megatron.yaml", ["CKPT308"], "raises:"),
}
YAML = (
    "model: m\ntuner_type: lora\ndataset:\n  - x\nper_device_train_batch_size: 1\noutput_dir: out\nlearning_rate: 1e-4\n"
    "gradient_checkpointing: false\ngradient_checkpointing_kwargs:\n  use_reentrant: false\n"
)
FILES = {
    "sft.yaml": YAML,
    "sft.json": json.dumps(
        {
            "model": "m",
            "train_type": "lora",
            "dataset": ["x"],
            "gradient_checkpointing": False,
            "gradient_checkpointing_kwargs": {"use_reentrant": True},
        }
    ),
    "megatron.yaml": "model: m\ndataset: [x]\nrecompute_num_layers: 2\n",
    "ds.json": '{"zero_optimization": {"stage": 2}, "activation_checkpointing": {"partition_activations": true}}',
}


@pytest.fixture
def project(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    with chdir(tmp_path):
        yield tmp_path


def codes(name, **versions):
    settings = Settings(versions=tuple((library.replace("_", "-"), spec) for library, spec in versions.items()))
    return [finding.code for finding in check_paths([name], settings=settings)]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command(project, capsys, name):
    command, expected, said = COMMANDS[name]
    (project / "run.sh").write_text(f"#!/bin/bash\nset -e\n{command}\n")
    assert codes("run.sh") == expected
    assert explain_files(["run.sh"], "text") == 0
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("command", ["swift build -c release", f"echo {SFT}{NO} {OTHER}", "pip install ms-swift -U"])
def test_a_command_that_trains_nothing(project, command):
    (project / "run.sh").write_text(command)
    assert codes("run.sh") == []
    assert explain_files(["run.sh"], "text") == 2


@pytest.mark.parametrize(
    ("versions", "expected"), [("==3.5.3", ["CKPT304"]), (">=3,<3.6", ["CKPT304"]), (">=3.5", []), ("==3.6.4", [])]
)
def test_before_3_6_lora_under_ddp_was_reentrant(project, versions, expected):
    (project / "run.sh").write_text(TWO + SFT)
    assert codes("run.sh", ms_swift=versions) == expected


def test_the_projects_own_files_say_the_release(tmp_path):
    (tmp_path / "requirements.txt").write_text("ms_swift[all]==3.5.3\n")
    (tmp_path / "run.sh").write_text(TWO + SFT + "--gradient_checkpointing true\n")
    assert [finding.code for finding in check_paths([tmp_path / "run.sh"])] == ["CKPT304"]
    assert [finding.code for finding in check_paths([tmp_path])] == ["CKPT304"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (YAML, ["CKPT215"]),
        (YAML.replace("gradient_checkpointing: false", "gradient_checkpointing: true"), []),
        (YAML + "vit_gradient_checkpointing: true\n", []),
        (YAML + "load_args: true\n", []),
        (YAML + "global_world_size: 1\n", []),  # ms-swift's own record of a run
        (
            "model: m\ntuner_type: lora\ndataset: x\nENV:\n  NPROC_PER_NODE: 2\n"
            "gradient_checkpointing_kwargs: '{\"use_reentrant\": true}'\n",
            ["CKPT304"],
        ),
        ("model: m\ndataset: [x]\nrecompute_granularity: full\nrecompute_num_layers: 1\n", ["CKPT308"]),
        ("model: m\ndataset: [x]\ntrainer: t\nrecompute_granularity: full\n", []),
        ("model: m\ndataset: [x]\nrecompute_granularity: selective\n", []),
    ],
)
def test_a_file_of_arguments(tmp_path, text, expected):
    (tmp_path / "args.yaml").write_text(text)
    assert codes(tmp_path / "args.yaml") == expected


SCRIPTS = {
    "TrainArguments(model='m', gradient_checkpointing=False, gradient_checkpointing_kwargs={'use_reentrant': False})": [
        "CKPT215"
    ],
    "TrainArguments(model='m', gradient_checkpointing_kwargs={'use_reentrant': False})": [],
    "TrainArguments(model='m', gradient_checkpointing_kwargs={'debug': False})": [],
    "SftArguments(model='m', fsdp='fsdp2')": ["CKPT109"],
    "SftArguments(model='m', fsdp='fsdp2', lora_dropout=0.0)": [],
    "SftArguments(model='m', fsdp='fsdp2', tuner_type='full')": [],
    "RLHFArguments(model='m', gradient_checkpointing=on, gradient_checkpointing_kwargs={'use_reentrant': False})": [],
    "SftArguments(ddp_find_unused_parameters=True, gradient_checkpointing_kwargs={'use_reentrant': True})": ["CKPT304"],
    "SftArguments(ddp_find_unused_parameters=True, gradient_checkpointing_kwargs={'use_reentrant': False})": [],
    "SftArguments(gradient_checkpointing_kwargs={'use_reentrant': 'false'})": ["CKPT133"],
    "MegatronSftArguments(model='m', recompute_granularity='full')": ["CKPT308"],
    "MegatronSftArguments(model='m', recompute_granularity='full', **more)": [],
    "MegatronSftArguments(recompute_granularity='full', recompute_method='uniform', recompute_num_layers=1)": [],
}


@pytest.mark.parametrize("made", SCRIPTS)
def test_a_script(tmp_path, made):
    of = "swift.megatron" if "Megatron" in made else "swift.llm" if "TrainA" in made else "swift"
    (tmp_path / "train.py").write_text(
        f"from {of} import {made.partition('(')[0]}, sft_main\n\n\ndef main(on, more):\n    sft_main({made})\n"
    )
    assert codes(tmp_path / "train.py") == SCRIPTS[made]


def test_writes_to_the_arguments_are_left_open(tmp_path, capsys):
    path = tmp_path / "train.py"
    path.write_text(
        "from swift import SftArguments, sft_main\nargs = SftArguments(model='m')\n"
        "args.gradient_checkpointing = False\nsft_main(args)\n"
    )
    assert codes(path) == []
    assert explain_files([str(path)], "text") == 0
    assert "asks ms-swift for: not decided in this file" in capsys.readouterr().out


def test_a_fix_switches_it_on_in_the_file(project):
    from hf_ckpt.lint.cli.parser import run_cli

    (project / "run.sh").write_text("swift sft sft.yaml\n")
    run_cli(["run.sh", "--fix", "--unsafe-fixes", "-q"])
    assert "gradient_checkpointing: true\n" in (project / "sft.yaml").read_text()
