"""Scripts with parsers of their own (``argparse``) in the runs that launch scripts of the project start."""

from contextlib import chdir, redirect_stdout
from io import StringIO

import pytest
from hf_ckpt.lint.cli.parser import run_cli
from started import NET, TRAIN, found

SCRIPT = f"""\
{NET}def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    DECLARED
    args = parser.PARSED
    net, lr = Net(args.reentrant, args.ckpt), args.lr
{TRAIN}
if __name__ == "__main__":
    main()
"""
SWITCH = 'parser.add_argument("--ckpt", action="store_true")'
FLAG = 'parser.add_argument("--reentrant", action="store_true")'
ON_BY_DEFAULT = (
    'parser.add_argument("--ckpt", type=str2bool, default=True); '
    'parser.add_argument("--reentrant", type=str2bool, default="true")'
)


def script(*declared, parsed="parse_args()"):
    return SCRIPT.replace("DECLARED", "; ".join(declared)).replace("PARSED", parsed)


@pytest.mark.parametrize(
    ("declared", "bad", "good"),
    [
        (FLAG, "--reentrant", ""),
        (FLAG, "--reen", "--reentran_t"),
        ('parser.add_argument("-r", "--reentrant", action="store_true")', "-r", "-x"),
        ('parser.add_argument("--use-it", dest="reentrant", action="store_true")', "--use-it", ""),
        ('parser.add_argument("--reentrant", type=str2bool, default=False)', "--reentrant true", "--reentrant=false"),
        (
            'parser.add_argument("--reentrant", type=lambda s: s.lower() == "true")',
            "--reentrant True",
            "--reentrant no",
        ),
        ('parser.add_argument("--reentrant", type=bool, default=False)', "--reentrant False", ""),
        ('parser.add_argument("--reentrant", type=int, choices=[0, 1], default=0)', "--reentrant 1", "--reentrant 0"),
        (
            'parser.add_argument("--reentrant", nargs="?", const=True, type=str2bool, default=False)',
            "--reentrant --lr 1",
            "--reentrant no",
        ),
        (
            'parser.add_argument("--reentrant", action=argparse.BooleanOptionalAction, default=True)',
            "",
            "--no-reentrant",
        ),
        (f'{FLAG}; parser.add_argument("--safe", dest="reentrant", action="store_false")', "--reentrant", "--safe"),
        (f"{FLAG}; parser.set_defaults(reentrant=True)", "", "--unknown"),
        (f'{FLAG}; parser.add_argument("data")', "data/c4 --reentrant", "data/c4"),
    ],
)
def test_what_a_command_says_to_a_parser_holds_in_its_run(tmp_path, declared, bad, good):
    code = script(SWITCH, declared)
    assert found(tmp_path, {"train.py": code}) == []
    assert found(tmp_path, {"train.py": code, "run.sh": f"python train.py --ckpt {bad}\n"}) == ["CKPT301"]
    assert found(tmp_path, {"train.py": code, "run.sh": f"python train.py --ckpt {good}\n"}) == []


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nproc_per_node 8 train.py --ckpt --reentrant",
        "python -m torch.distributed.run --nproc_per_node=8 train.py --ckpt --reentrant",
        "accelerate launch --num_processes 8 train.py --ckpt --reentrant",
        "accelerate launch -m train --ckpt --reentrant",
        "deepspeed --num_gpus 8 train.py --ckpt --reentrant --lr 1e-3",
        "python -m train --ckpt --reentrant",
        "CUDA_VISIBLE_DEVICES=0 nohup python3 -u train.py --ckpt --reentrant > log.txt 2>&1 &",
        "srun python train.py \\\n  --ckpt \\\n  --lr $LR \\\n  --reentrant",
        'ARGS=(--ckpt --reentrant)\npython train.py "${ARGS[@]}"',
        'ARGS="--ckpt"\nARGS+=" --reentrant"\npython train.py $ARGS',
        'python train.py --ckpt --reentrant "$@"',
        "for lr in 1 2; do\n  python train.py --lr $lr --ckpt --reentrant\ndone",
        'srun bash -c "python train.py --ckpt --reentrant"',
        "bash -lc 'python train.py --ckpt --reentrant' > log.txt",
        'CMD="train.py --ckpt --reentrant"\nLAUNCHER="torchrun"\nsrun bash -c "$LAUNCHER $CMD"',
        'sbatch --wrap="python train.py --ckpt --reentrant"',
        "python train.py --ckpt\npython train.py --ckpt --reentrant",
    ],
)
def test_each_command_that_runs_the_script_counts(tmp_path, command):
    code = script(SWITCH, FLAG)
    assert found(tmp_path, {"train.py": code, "run.sh": f"{command}\n"}) == ["CKPT301"]


@pytest.mark.parametrize(
    "command",
    [
        'python train.py --ckpt "$@"',
        "if [ $X = 1 ]; then FLAG=--reentrant; fi\npython train.py --ckpt $FLAG",
        "echo python train.py --ckpt --reentrant",
        "python -m black train.py --ckpt --reentrant",
        "# python train.py --ckpt --reentrant",
        "cp train.py --ckpt --reentrant",
        "python old/train.py --ckpt --reentrant",
        "cd old && python train.py --ckpt --reentrant",
        "python train.py --ckpt > --reentrant",
        "FLAG=--reentrant\nbash -c 'python train.py --ckpt $FLAG'",
        'python -c "python train.py --ckpt --reentrant"',
        'echo -c "python train.py --ckpt --reentrant"',
    ],
)
def test_other_commands_say_nothing_about_it(tmp_path, command):
    files = {"train.py": script(SWITCH, FLAG), "old/train.py": "print()\n", "run.sh": f"{command}\n"}
    assert found(tmp_path, files) == []


def test_a_makefile_and_a_module_of_a_package(tmp_path):
    files = {
        "pkg/train.py": script(SWITCH, FLAG),
        "Makefile": "train:\n\tpython -m pkg.train --ckpt --reentrant\n",
    }
    assert found(tmp_path, files) == ["CKPT301"]


def test_a_default_holds_where_every_word_of_the_command_is_known(tmp_path):
    code = script(ON_BY_DEFAULT)
    for command, expected in (
        ("python train.py", ["CKPT301"]),
        ("python train.py --lr 0.3", ["CKPT301"]),
        ("python train.py --reentrant no", []),
        ("python train.py --lr 0.3 $@", []),
        ("python train.py --of_another_parser 3", []),
        ("python train.py @more", []),
    ):
        assert found(tmp_path, {"train.py": code, "run.sh": f"{command}\n"}) == expected, command
    known = script(ON_BY_DEFAULT, parsed="parse_known_args()[0]")
    assert found(tmp_path, {"train.py": known, "run.sh": "python train.py --of_another 3\n"}) == ["CKPT301"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("args = parser", "parser.set_defaults(**json.load(open(sys.argv[1]))); args = parser"),
        ("net, lr = Net(", "[setattr(args, k, v) for k, v in json.load(open(str(args.lr))).items()]; net, lr = Net("),
        ("ArgumentParser()", "ArgumentParser(argument_default=argparse.SUPPRESS)"),
        ("args = parser", "commands = parser.add_subparsers(); commands.add_parser('x'); args = parser"),
        ("parse_args()", "parse_args(sys.argv[2:])"),
    ],
)
def test_a_default_that_something_else_may_change_stays_open(tmp_path, old, new):
    code = script(ON_BY_DEFAULT).replace(old, new)
    assert found(tmp_path, {"train.py": code, "run.sh": "python train.py --lr 0.3\n"}) == []


def test_the_command_is_shown_where_it_decides_and_only_there(tmp_path):
    files = {"train.py": script(SWITCH, FLAG), "run.sh": "python train.py --ckpt\npython train.py --ckpt --reentrant\n"}
    found(tmp_path, files)
    out = StringIO()
    with chdir(tmp_path), redirect_stdout(out):
        run_cli(["."])
    assert "run.sh:2:8" in out.getvalue()
    (tmp_path / "train.py").write_text(
        files["train.py"].replace("use_reentrant=self.use_reentrant", "use_reentrant=True")
    )
    out = StringIO()
    with chdir(tmp_path), redirect_stdout(out):
        run_cli(["."])
    assert "CKPT301" in out.getvalue()
    assert "run.sh" not in out.getvalue()


def test_a_mistake_under_a_switch_stays_one_where_no_command_gives_it(tmp_path):
    code = script(SWITCH, FLAG).replace("use_reentrant=self.use_reentrant", "use_reentrant=True")
    assert found(tmp_path, {"train.py": code, "run.sh": "python train.py --lr 1\n"}) == ["CKPT301"]


UNREAD = "x = 1\n" * 2000 + "def change(args):\n    args.reentrant = False\n"


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("change(args)", []),  # it may set any of them
        ("set_seed(args)", ["CKPT301"]),
        ("print(args)", ["CKPT301"]),
        ("args.reentrant = False", []),
    ],
)
def test_a_function_of_the_project_that_is_not_read_may_change_arguments(tmp_path, call, expected):
    code = script(SWITCH, FLAG).replace("import torch\n", "import torch\nfrom utils import change, set_seed\n", 1)
    code = code.replace("    net, lr = Net(", f"    {call}\n    net, lr = Net(")
    files = {"train.py": code, "utils.py": UNREAD, "run.sh": "python train.py --ckpt --reentrant\n"}
    assert found(tmp_path, files) == expected


def test_what_launchers_say_stays_open(tmp_path):
    declared = 'parser.add_argument("--reentrant", default=True); parser.add_argument("--local_rank", default=-1)'
    code = script(SWITCH, declared).replace(
        "    net, lr = Net(", "    if args.local_rank < 0: return\n    net, lr = Net("
    )
    files = {"train.py": code, "run.sh": "python -m torch.distributed.launch train.py --ckpt\n"}
    assert found(tmp_path, files) == ["CKPT301"]


SWITCHED = """\
import argparse
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--gc", action="store_true")
parser.add_argument("--fsdp", default="")
args = parser.parse_args()
training = TrainingArguments(
    "out",
    gradient_checkpointing=args.gc,
    gradient_checkpointing_kwargs={"use_reentrant": False},
    fsdp=args.fsdp,
    fsdp_config={"activation_checkpointing": True},
)
Trainer(AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B"), args=training).train()
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [("--gc --fsdp full_shard", ["CKPT303"]), ("", []), ("--gc", []), ("--gc --fsdp $FSDP", [])],
)
def test_a_switch_that_a_command_leaves_off_is_meant(tmp_path, words, expected):
    assert found(tmp_path, {"train.py": SWITCHED, "run.sh": f"python train.py {words}\n"}) == expected


def test_a_text_that_the_command_gives_is_a_finding_in_the_launch_script(tmp_path):
    code = script(SWITCH, 'parser.add_argument("--reentrant", default=False)')
    code = code.replace(", src_mask=mask", "")
    assert found(tmp_path, {"train.py": code, "run.sh": "python train.py --ckpt --reentrant false\n"}) == ["CKPT133"]
    assert found(tmp_path, {"train.py": code, "run.sh": "python train.py --ckpt --reentrant $IT\n"}) == []


def test_a_text_whatever_the_command_says_is_one_finding_in_the_script(tmp_path):
    code = script(SWITCH, 'parser.add_argument("--reentrant", default="False")').replace(", src_mask=mask", "")
    runs = {"a.sh": "python train.py --ckpt --reentrant False\n", "b.sh": "python train.py --ckpt --reentrant True\n"}
    assert found(tmp_path, {"train.py": code, **runs}) == ["CKPT133"]


TWICE = """first = argparse.ArgumentParser(); first.add_argument("--config", default="")
    known, rest = first.parse_known_args()
    if known.config:
        parser.set_defaults(**yaml.safe_load(open(known.config)))
    args = parser.parse_args(rest)"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--lr 0.3", ["CKPT301"]),
        ("--config run.yaml --lr 0.3", ["CKPT301"]),
        ("--config safe.yaml", []),
        ("--config none.yaml", []),  # nobody knows what is in it
        ("--reentrant no", []),
    ],
)
def test_a_parser_gets_what_another_one_left_and_the_file_that_it_named(tmp_path, words, expected):
    code = (
        script(ON_BY_DEFAULT)
        .replace("args = parser.parse_args()", TWICE)
        .replace("import argparse", "import argparse, yaml")
    )
    settings = "gradient_checkpointing: unused\nckpt: true\nreentrant: "
    files = {"run.yaml": f"{settings}true\n", "safe.yaml": f"{settings}false\n", "train.py": code}
    assert found(tmp_path, {**files, "run.sh": f"python train.py {words}\n"}) == expected
