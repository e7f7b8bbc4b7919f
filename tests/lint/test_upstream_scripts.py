"""Launch scripts that start the Trainer scripts of transformers' examples or of trl, whose files are not beside them."""

from contextlib import chdir

import pytest
from hf_ckpt.lint.api import check_paths

OUT = "--output_dir out "
ON = f"{OUT}--gradient_checkpointing True "
REENTRANT = """--gradient_checkpointing_kwargs '{"use_reentrant": true}' """
KWARGS = """--gradient_checkpointing_kwargs '{"use_reentrant": false}' """
UNUSED = "--ddp_find_unused_parameters True "
TORCHRUN = "torchrun --standalone --nproc_per_node 8 "
FSDP = "accelerate launch --num_processes 8 --use_fsdp --fsdp_activation_checkpointing true "

WRONG = {
    "torchrun": (f"{TORCHRUN}run_clm.py {ON}{REENTRANT}{UNUSED}", "CKPT304"),
    "the module behind torchrun": (
        f"CUDA_VISIBLE_DEVICES=0,1 python -m torch.distributed.run --nproc-per-node=2 "
        f"examples/pytorch/text-classification/run_glue.py {ON}{REENTRANT}{UNUSED}",
        "CKPT304",
    ),
    "FSDP of accelerate launch": (f"{FSDP}trl/scripts/sft.py {ON}", "CKPT303"),
    "arguments without a switch": (
        f"""{TORCHRUN}run_clm.py --output_dir "out/$(basename "$MODEL")" {KWARGS}--max_steps 10""",
        "CKPT215",
    ),
    "arguments beside a switch that is off": (f"python run_glue.py {KWARGS}--gradient_checkpointing False", "CKPT215"),
    "a switch without a value": (f"{FSDP}run_clm.py --gradient_checkpointing --output_dir $OUT", "CKPT303"),
}
RIGHT = {
    "arguments and their switch": f"python run_clm.py {KWARGS}--gradient_checkpointing --output_dir out",
    "the new name of the switch": f"python run_clm.py {KWARGS}--activation_checkpointing True",
    "arguments for a script that is on by default": f"python trl/scripts/sft.py {KWARGS}--output_dir out",
    "arguments for a script of the project's own": f"python train.py {KWARGS}--output_dir out",
    "a switch that the shell knows": f"python run_clm.py {KWARGS}--gradient_checkpointing $GC",
    "a switch among what is run": f"python run_clm.py {KWARGS}$(switches) --output_dir out",
    "a switch among what follows": f'python run_clm.py {KWARGS}--output_dir out "$@"',
    "a script of the project's own": f"{TORCHRUN}train.py {ON}{REENTRANT}{UNUSED}",
    "a script without the Trainer": f"{TORCHRUN}run_clm_no_trainer.py {ON}{REENTRANT}{UNUSED}",
    "another sft.py": f"{FSDP}my/sft.py {ON}",
    "no DDP": f"python run_clm.py {ON}{REENTRANT}{UNUSED}",
    "one process": f"torchrun --nproc_per_node 1 run_clm.py {ON}{REENTRANT}{UNUSED}",
    "as many processes as the shell knows": f"torchrun --nproc_per_node $N run_clm.py {ON}{REENTRANT}{UNUSED}",
    "DeepSpeed in place of DDP": f"{TORCHRUN}run_clm.py {ON}{REENTRANT}{UNUSED}--deepspeed ds.json",
    "non-reentrant": f"{TORCHRUN}run_clm.py {ON}{REENTRANT.replace('true', 'false')}{UNUSED}",
    "a text, of which the Trainer's arguments make a boolean": (
        f"""{TORCHRUN}run_clm.py {ON}{REENTRANT.replace("true", '"False"')}{UNUSED}"""
    ),
    "no search for unused parameters": f"{TORCHRUN}run_clm.py {ON}{REENTRANT}{UNUSED.replace('True', 'False')}",
    "what follows wins": f'{TORCHRUN}run_clm.py {ON}{REENTRANT}{UNUSED}"$@"',
    "a file of arguments": f"{FSDP}run_clm.py args.json {ON}",
    "trl's file of arguments": f"{FSDP}trl/scripts/sft.py --config sft.yaml {ON}",
    "checkpointed by FSDP alone": f"{FSDP}trl/scripts/sft.py {OUT}--gradient_checkpointing false",
    "checkpointed by the Trainer alone": f"{FSDP.replace('true', 'false')}trl/scripts/sft.py {ON}",
    "no FSDP": f"accelerate launch --fsdp_activation_checkpointing true trl/scripts/sft.py {ON}",
    "printed": f"echo {FSDP}trl/scripts/sft.py {ON}",
}


def codes(tmp_path, command):
    (tmp_path / "launch.sh").write_text(f"#!/bin/bash\nset -e\n{command}\n")
    with chdir(tmp_path):
        return [finding.code for finding in check_paths(["launch.sh"])]


@pytest.mark.parametrize(("command", "code"), WRONG.values(), ids=WRONG)
def test_a_mistake_in_the_arguments_is_found(tmp_path, command, code):
    assert codes(tmp_path, command) == [code]


@pytest.mark.parametrize("command", RIGHT.values(), ids=RIGHT)
def test_right_or_open_arguments_are_silent(tmp_path, command):
    assert codes(tmp_path, command) == []


def test_the_file_wins_over_the_name(tmp_path):
    (tmp_path / "run_clm.py").write_text("print('something else')\n")
    assert codes(tmp_path, WRONG["torchrun"][0]) == []
