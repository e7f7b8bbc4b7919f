"""A script together with its configurations: given by ``--config``, or found in the script that launches it."""

from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from typing import NamedTuple

import pytest
from hf_ckpt.lint import check_source
from hf_ckpt.lint.cli.parser import run_cli

ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_processes: 8
fsdp_config:
  fsdp_version: 2
  fsdp_activation_checkpointing: true
"""
DEEPSPEED = """\
{
  "zero_optimization": {"stage": 2},
  "activation_checkpointing": {"partition_activations": true},
  "train_micro_batch_size_per_gpu": "auto"
}
"""
RECIPE = """\
output_dir: out
per_device_train_batch_size: 2
learning_rate: 2.0e-05
gradient_checkpointing: true
"""
SFT = """\
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

args = SFTConfig("out")
SFTTrainer("base", args=args, peft_config=LoraConfig(r=8, lora_dropout=0.05)).train()
"""
TRL = """\
from trl import SFTConfig, SFTTrainer, TrlParser

parser = TrlParser((SFTConfig,))
(training_args,) = parser.parse_args_and_config()
trainer = SFTTrainer("base", args=training_args)
trainer.train()
"""
HF = """\
import sys
from transformers import HfArgumentParser, Trainer, TrainingArguments

parser = HfArgumentParser(TrainingArguments)
if sys.argv[1].endswith(".json"):
    (args,) = parser.parse_json_file(sys.argv[1])
else:
    (args,) = parser.parse_args_into_dataclasses()
Trainer("base", args=args).train()
"""
WHOLE = """\
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained("gpt2").train()
model.gradient_checkpointing_enable({"use_reentrant": True})
model = accelerator.prepare(model)
for batch in loader:
    accelerator.backward(model(**batch).loss)
"""
LOOP = """\
from accelerate import Accelerator
from transformers import GPT2Config, GPT2LMHeadModel

accelerator = Accelerator()
model = accelerator.prepare(GPT2LMHeadModel(GPT2Config(n_layer=4, use_cache=False)))
"""


@pytest.fixture
def project(tmp_path):
    for filename, text in (
        ("fsdp.yaml", ACCELERATE),
        ("ds.json", DEEPSPEED),
        ("recipe.yaml", RECIPE),
        ("sft.py", SFT),
        ("trl_sft.py", TRL),
        ("hf.py", HF),
        ("loop.py", LOOP),
    ):
        (tmp_path / filename).write_text(text)
    return tmp_path


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def lint(*arguments, cwd):
    """The command in this process; `test_cli.py` and `test_configs.py` start real ones."""
    out, err = StringIO(), StringIO()
    with chdir(cwd), redirect_stdout(out), redirect_stderr(err):
        status = run_cli(list(arguments))
    return Done(status, out.getvalue(), err.getvalue())


def found(*arguments, cwd):
    process = lint(*arguments, "--output-format", "concise", cwd=cwd)
    assert process.stderr == ""
    return [line.rpartition(": ")[0].split(": ")[0] + " " + line.split(": ")[1].split()[0] for line in lines(process)]


def lines(process):
    return [line for line in process.stdout.splitlines() if ": CKPT" in line]


def test_each_alone_is_fine(project):
    assert found(".", cwd=project) == []


@pytest.mark.parametrize(
    ("sharding", "is_found"),
    [("", True), ("  fsdp_sharding_strategy: FULL_SHARD\n", True), ("  fsdp_sharding_strategy: NO_SHARD\n", False)],
)
def test_a_launcher_says_how_much_of_a_whole_model_is_sharded(project, sharding, is_found):
    (project / "whole.py").write_text(WHOLE)
    policy = "  fsdp_auto_wrap_policy: NO_WRAP\n"
    (project / "fsdp.yaml").write_text(
        ACCELERATE.replace("version: 2", "version: 1").replace("true", "false") + policy + sharding
    )
    assert found("whole.py", "--config", "fsdp.yaml", cwd=project) == (["whole.py:6:1 CKPT302"] if is_found else [])


def test_a_script_with_the_configuration_of_its_launcher(project):
    assert found("sft.py", "--config", "fsdp.yaml", cwd=project) == ["sft.py:4:8 CKPT303", "fsdp.yaml:6:3 CKPT110"]
    (project / "sft.py").write_text(SFT.replace('"out"', '"out", gradient_checkpointing=False'))
    together = found("sft.py", "--config", "fsdp.yaml", cwd=project)
    assert together == ["fsdp.yaml:6:3 CKPT109", "fsdp.yaml:6:3 CKPT110"]
    (project / "fsdp.yaml").write_text(ACCELERATE.replace("distributed_type: FSDP", "distributed_type: MULTI_GPU"))
    assert found("sft.py", "--config", "fsdp.yaml", cwd=project) == []


def test_the_note_shows_the_line_in_the_other_file(project):
    output = lint("sft.py", "--config", "fsdp.yaml", "--select", "CKPT303", cwd=project).stdout
    assert "--> fsdp.yaml:6:3\n" in output
    assert "6 |   fsdp_activation_checkpointing: true\n" in output


def test_a_loop_of_its_own_gets_the_launchers_plugin(project):
    assert found("loop.py", "--config", "fsdp.yaml", cwd=project) == ["fsdp.yaml:6:3 CKPT109"]
    (project / "fsdp.yaml").write_text(ACCELERATE.replace("fsdp_version: 2", "fsdp_version: 1"))
    assert found("loop.py", "--config", "fsdp.yaml", cwd=project) == []


ADAPTER = """\
from accelerate import Accelerator
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

accelerator = Accelerator()
model = get_peft_model(AutoModelForCausalLM.from_pretrained("base"), LoraConfig(r=8))
model = accelerator.prepare(model)
accelerator.unwrap_model(model).save_pretrained("adapter")
"""


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n", ["adapter.yaml:7:3 CKPT110"]),
        ("  fsdp_auto_wrap_policy: NO_WRAP\n", []),
        ("", []),
    ],
)
def test_the_launchers_policy_wraps_the_layers_of_an_adapter(project, policy, expected):
    (project / "adapter.py").write_text(ADAPTER)
    text = ACCELERATE.replace("  fsdp_version", f"{policy}  fsdp_version")
    (project / "adapter.yaml").write_text(text)
    assert found("adapter.py", "--config", "adapter.yaml", "adapter.yaml", cwd=project) == expected


def test_ddp_of_the_launcher_and_a_reentrant_adapter(project):
    (project / "ddp.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 4\n"
    )
    reentrant = 'gradient_checkpointing_kwargs={"use_reentrant": True}'
    (project / "sft.py").write_text(SFT.replace('"out"', f'"out", {reentrant}'))
    assert found("sft.py", cwd=project) == []
    assert found("sft.py", "--config", "ddp.yaml", cwd=project) == ["sft.py:4:55 CKPT304"]
    (project / "ddp.yaml").write_text(
        "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 1\n"
    )
    assert found("sft.py", "--config", "ddp.yaml", cwd=project) == []


def test_arguments_from_a_file_and_a_launcher(project):
    configs = ("--config", "recipe.yaml", "--config", "fsdp.yaml")
    assert found("trl_sft.py", *configs, cwd=project) == ["recipe.yaml:4:1 CKPT303"]
    (project / "recipe.yaml").write_text(RECIPE.replace("checkpointing: true", "checkpointing: false"))
    assert found("trl_sft.py", *configs, cwd=project) == []
    # On by default, but the command line may switch it off.
    (project / "recipe.yaml").write_text(RECIPE.replace("gradient_checkpointing: true\n", ""))
    assert found("trl_sft.py", *configs, cwd=project) == []


def test_a_deepspeed_file_that_the_script_names(project):
    (project / "train.py").write_text(
        'from transformers import Trainer, TrainingArguments\n\nargs = TrainingArguments("out", deepspeed="conf/ds.json")\n'
        'Trainer("base", args=args).train()\n'
    )
    assert found("train.py", "--config", "ds.json", cwd=project) == ["train.py:3:8 CKPT207"]
    process = lint("train.py", "--config", "ds.json", cwd=project)
    assert "--> ds.json:3:3\n" in process.stdout
    (project / "train.py").write_text("import x\n")
    assert found("train.py", "--config", "ds.json", cwd=project) == []


def test_a_deepspeed_file_that_the_launchers_configuration_names(project):
    (project / "launch.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )
    (project / "train.py").write_text(
        'from transformers import Trainer, TrainingArguments\n\nTrainer("base", args=TrainingArguments("out")).train()\n'
    )
    for configs in (("ds.json", "launch.yaml"), ("launch.yaml", "ds.json")):
        options = [word for config in configs for word in ("--config", config)]
        assert found("train.py", *options, cwd=project) == ["launch.yaml:4:3 CKPT207"]


def test_a_launch_script_leads_to_the_deepspeed_file(project):
    named = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    (project / "launch.yaml").write_text(named)
    command = "accelerate launch --config_file launch.yaml hf.py --output_dir out --bf16"
    write_launch(project, command)
    assert found(".", cwd=project) == ["launch.yaml:4:3 CKPT207"]
    write_launch(project, f"{command} --gradient_checkpointing")
    assert found(".", cwd=project) == []
    write_launch(project, command)
    (project / "launch.yaml").write_text(named.replace("ds.json", "other.json"))
    assert found(".", cwd=project) == []


def test_fixes_of_a_run_end(project):
    configs = ("--config", "recipe.yaml", "--config", "fsdp.yaml")
    assert lint("trl_sft.py", *configs, "--fix", "--unsafe-fixes", cwd=project).returncode == 0
    assert (project / "recipe.yaml").read_text() == RECIPE.replace("checkpointing: true", "checkpointing: false")
    assert (project / "trl_sft.py").read_text() == TRL
    assert lint("sft.py", "--config", "fsdp.yaml", "--fix", "--unsafe-fixes", cwd=project).returncode == 1
    assert 'SFTConfig("out", gradient_checkpointing=False)' in (project / "sft.py").read_text()


def write_launch(project, command, name="run.sh"):
    (project / name).write_text(f"#!/bin/bash\nset -e\n{command}\n")


def launch(project, command, name="run.sh"):
    write_launch(project, command, name)
    return found(name, cwd=project)


def test_the_launch_script_names_everything(project):
    command = "accelerate launch --config_file fsdp.yaml trl_sft.py --config recipe.yaml"
    assert launch(project, command) == ["recipe.yaml:4:1 CKPT303"]
    (project / "recipe.yaml").write_text(RECIPE.replace("gradient_checkpointing: true\n", ""))
    # Now all arguments are known, and trl's default is on.
    assert launch(project, command) == ["recipe.yaml:1:1 CKPT303"]
    assert launch(project, f"{command} --gradient_checkpointing False") == []
    assert launch(project, f'{command} "$@"') == []
    assert launch(project, f"{command} $EXTRA") == []


def test_arguments_on_the_command_line_have_their_place(project):
    command = "CONF=fsdp.yaml\naccelerate launch \\\n  --config_file $CONF \\\n  hf.py --output_dir out \\\n"
    assert launch(project, f"{command}  --gradient_checkpointing True") == ["run.sh:7:3 CKPT303"]
    assert launch(project, f"{command}  --bf16") == []
    assert launch(project, f"{command}  --gradient_checkpointing=false") == []


def test_a_json_file_of_arguments(project):
    (project / "args.json").write_text(
        '{\n  "output_dir": "out",\n  "num_train_epochs": 1,\n  "bf16": true,\n  "gradient_checkpointing": true\n}\n'
    )
    command = "accelerate launch --config_file fsdp.yaml hf.py args.json"
    assert launch(project, command) == ["args.json:5:3 CKPT303"]


def test_deepspeed_on_the_command_line(project):
    assert launch(project, "deepspeed hf.py --output_dir out --deepspeed ds.json") == ["run.sh:3:34 CKPT207"]
    command = "deepspeed hf.py --output_dir out --deepspeed ds.json --gradient_checkpointing"
    assert launch(project, command) == []


def test_paths_are_those_of_the_project(project):
    (project / "scripts").mkdir()
    command = "accelerate launch --config_file fsdp.yaml sft.py"
    assert launch(project, command, "scripts/run.sh") == ["sft.py:4:8 CKPT303", "fsdp.yaml:6:3 CKPT110"]
    (project / "scripts" / "run.sh").rename(project / "scripts" / "two.sh")
    process = lint("two.sh", "--output-format", "concise", cwd=project / "scripts")
    assert [line.split(":")[0] for line in lines(process)] == ["../sft.py", "../fsdp.yaml"]


def test_launch_scripts_of_a_folder_are_read(project):
    write_launch(project, "accelerate launch --use_fsdp --fsdp_activation_checkpointing true hf.py --output_dir out")
    assert found(".", cwd=project) == []
    write_launch(project, "accelerate launch --config_file fsdp.yaml hf.py --output_dir out --gradient_checkpointing")
    assert found(".", cwd=project) == ["run.sh:3:66 CKPT303"]
    (project / "again.sh").write_text((project / "run.sh").read_text().replace("out ", "other "))
    assert found(".", cwd=project) == ["again.sh:3:68 CKPT303", "run.sh:3:66 CKPT303"]
    assert found("hf.py", cwd=project) == []


NAMES = """\
import json
from transformers import Trainer, TrainingArguments

{read}
args = TrainingArguments("out", {argument})
Trainer("base", args).train()
"""
READ = 'with open("ds.json") as file:\n    settings = json.load(file)'


def test_scripts_of_a_folder_are_read_with_the_settings_that_they_name(tmp_path):
    (tmp_path / "ds.json").write_text('{"zero_optimization": {}, "activation_checkpointing": {"profile": true}}')
    (tmp_path / "fsdp.json").write_text('{"min_num_params": 1, "activation_checkpointing": true}')
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "ds.json").write_text('{"zero_optimization": {}}')

    def check(argument, read=""):
        (tmp_path / "train.py").write_text(NAMES.format(read=read, argument=argument))
        return found(".", cwd=tmp_path)

    assert check('deepspeed="ds.json"') == ["train.py:5:8 CKPT207"]
    assert check("deepspeed=settings", READ) == ["train.py:6:8 CKPT207"]
    assert check("deepspeed=settings", f'{READ}\nsettings["activation_checkpointing"] = None') == []
    assert check("deepspeed=settings", f'{READ}\nsettings.pop("activation_checkpointing")') == []
    assert check('deepspeed="b/ds.json"', 'other = "ds.json"') == []
    assert check('deepspeed="ds.json", gradient_checkpointing=True') == []
    both = 'fsdp="full_shard", fsdp_config="fsdp.json", gradient_checkpointing=True'
    assert check(both) == ["train.py:5:77 CKPT303"]
    assert check(both.replace("fsdp.json", "other.json")) == []


def test_a_launch_script_that_was_not_named_adds_no_file(project):
    (project / "scripts").mkdir()
    write_launch(project, "accelerate launch --config_file fsdp.yaml ../sft.py", "scripts/run.sh")
    assert lines(lint("scripts", "--output-format", "concise", cwd=project)) == []


def test_arrays_of_the_shell(project):
    array = "ARGS=(\n  --output_dir out  # where\n  --gradient_checkpointing True)\n"
    command = 'accelerate launch --config_file fsdp.yaml hf.py "${ARGS[@]}"'
    assert launch(project, array + command) == ["run.sh:5:3 CKPT303"]
    assert launch(project, "ARGS=()\n" + command) == []
    more = "if [ $SAVE ]; then\n  ARGS+=(--gradient_checkpointing False)\nfi\n"
    assert launch(project, array.replace("  --gradient_checkpointing True", "") + more + command) == []


def test_strings_of_arguments(project):
    command = "accelerate launch --config_file fsdp.yaml hf.py $ARGS"
    string = 'ARGS="--output_dir out"\nARGS+=" --gradient_checkpointing True"\n'
    assert launch(project, string + command) == ["run.sh:4:9 CKPT303"]
    assert launch(project, string.replace('ARGS+="', 'ARGS="$ARGS') + command) == ["run.sh:4:13 CKPT303"]
    assert launch(project, string + 'ALL="--bf16 $ARGS"\n' + command.replace("$ARGS", "$ALL")) == ["run.sh:4:9 CKPT303"]
    # One word; the shell decides; another value wins.
    assert launch(project, string + command.replace("$ARGS", '"$ARGS"')) == []
    assert launch(project, string.replace("ARGS+", "[ $SAVE ] && ARGS+") + command) == []
    assert launch(project, f'{string}ARGS="--output_dir out"\n{command}') == []
    functions = f'run() {{\n  {command}\n}}\n{string}ARGS="--output_dir out"\nrun'
    assert launch(project, functions) == []


def test_arguments_as_json_have_their_place(project):
    (project / "hf.py").write_text(HF)
    command = "torchrun hf.py --output_dir out --gradient_checkpointing \\\n  --gradient_checkpointing_kwargs '{GIVEN}'"
    assert launch(project, command.replace("GIVEN", '"early_stop": true')) == ["run.sh:4:3 CKPT102"]
    assert launch(project, command.replace("GIVEN", '"use_reentrant": false')) == []


FOLDERS = [
    'ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)',
    'ROOT="$(dirname "$(dirname "$(realpath "$0")")")"',
    'ROOT="$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )" &> /dev/null && pwd )"/..',
    "ROOT=$(git rev-parse --show-toplevel)",
]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_script_names_files_from_its_own_folder(project, folder):
    (project / "scripts").mkdir()
    command = 'accelerate launch --config_file "$ROOT/fsdp.yaml" $ROOT/hf.py --output_dir out --gradient_checkpointing'
    assert launch(project, f"{folder}\n{command}", "scripts/run.sh") == ["scripts/run.sh:4:80 CKPT303"]
    other = 'ROOT=$(cd "$(dirname "$0")/../other" && pwd)'
    write_launch(project, f"{other}\n{command}", "scripts/run.sh")
    assert "no training that can be read" in lint("scripts/run.sh", cwd=project).stderr


MAKEFILE = """\
PYTHON ?= python
CONFIG := fsdp.yaml
ARGS = --output_dir out \\
\t--bf16
ARGS += --gradient_checkpointing

.PHONY: data train
data:
\t@$(PYTHON) data.py --root $$HOME

train: data
\taccelerate launch --config_file $(CONFIG) \\
\t  hf.py $(ARGS)
"""


def test_makefiles_are_read(project):
    def made(text):
        (project / "Makefile").write_text(text)
        return found(".", cwd=project)

    assert made(MAKEFILE) == ["Makefile:5:9 CKPT303"]
    assert made(MAKEFILE.replace("ARGS +=", "ARGS =")) == ["Makefile:5:8 CKPT303"]
    assert made(MAKEFILE.replace("  hf.py", "  --num_processes 8 hf.py").replace("$(CONFIG)", "${CONFIG}")) == [
        "Makefile:5:9 CKPT303"
    ]
    # Whoever calls make may have set it; a condition decides; another value is added.
    for open_one in (
        MAKEFILE.replace("CONFIG :=", "CONFIG ?="),
        MAKEFILE.replace("ARGS += --gradient_checkpointing", "ifdef CKPT\nARGS += --gradient_checkpointing\nendif"),
        MAKEFILE.replace("--gradient_checkpointing", "--gradient_checkpointing false"),
        MAKEFILE.replace("--gradient_checkpointing", "--gradient_checkpointing $(CKPT)"),
    ):
        assert made(open_one) == []
    assert made("checkpoint: fsdp gradient_checkpointing\n") == []


def test_variables_of_the_environment(project):
    command = "torchrun hf.py --output_dir out --gradient_checkpointing"
    around = "export ACCELERATE_USE_FSDP=true FSDP_ACTIVATION_CHECKPOINTING=true\n"
    assert launch(project, around + command) == ["run.sh:4:33 CKPT303"]
    assert launch(project, around.replace("CHECKPOINTING=true", "CHECKPOINTING=false") + command) == []
    before = "ACCELERATE_USE_FSDP=1 FSDP_ACTIVATION_CHECKPOINTING=1 "
    assert launch(project, before + command) == ["run.sh:3:87 CKPT303"]
    assert launch(project, f"{command}\n{around}") == []
    assert launch(project, f"{around}unset ACCELERATE_USE_FSDP\n{command}") == []


def test_a_launch_script_that_starts_nothing_is_said_aloud(project):
    (project / "run.sh").write_text("echo hello\n")
    process = lint("run.sh", cwd=project)
    assert process.returncode == 0
    assert process.stderr == "warning: no training that can be read is started in run.sh\n"


def test_a_configuration_that_is_none_is_one_sentence(project):
    (project / "none.yaml").write_text("a: 1\n")
    process = lint("sft.py", "--config", "none.yaml", cwd=project)
    assert process.returncode == 2
    assert process.stderr.startswith("error: none.yaml: no configuration of training that ckpt-lint knows (")
    assert process.stderr.count("\n") == 1
    (project / "bad.yaml").write_text("gradient_checkpointing: true: no\n")
    assert found("sft.py", "--config", "bad.yaml", cwd=project) == ["bad.yaml:1:29 CKPT903"]


def test_settings_are_told_from_configurations(project):
    (project / "ruff.toml").write_text('ignore = ["CKPT303", "CKPT110"]\n')
    assert found("sft.py", "--config", "fsdp.yaml", "--config", "ruff.toml", cwd=project) == []
    assert lint("sft.py", "--config", "a.toml", "--config", "b.toml", cwd=project).returncode == 2


def test_versions_of_the_script_hold_for_the_run(project):
    (project / "requirements.txt").write_text("peft==0.20.0\n")
    assert found("sft.py", "--config", "fsdp.yaml", cwd=project) == ["sft.py:4:8 CKPT303"]


COMMAND = """\
# how we train
accelerate launch \\
  --config_file fsdp.yaml \\
  hf.py --output_dir "a
b" --gradient_checkpointing True \\
  2>&1 | tee log
"""


def test_comments_silence_findings_in_a_launch_script(project):
    assert launch(project, COMMAND) == ["run.sh:7:4 CKPT303"]
    for comment in ("# noqa: CKPT303", "# ckpt-lint: ignore[CKPT303] why", "# noqa"):
        assert launch(project, COMMAND.replace("tee log", f"tee log  {comment}")) == []
    assert launch(project, COMMAND.replace("# how", "# ckpt-lint: ignore[CKPT303]\n\n# how")) == []
    assert launch(project, f"# ckpt-lint: ignore-file\n{COMMAND}") == []
    for elsewhere in (COMMAND.replace("log", "'# noqa'"), COMMAND.replace("log", "a#noqa"), f"{COMMAND}ls  # noqa\n"):
        assert launch(project, elsewhere) == ["run.sh:7:4 CKPT303"]
    assert launch(project, f"{COMMAND}ls  # noqa: CKPT303\n") == ["run.sh:7:4 CKPT303", "run.sh:9:5 CKPT901"]


def test_comments_are_written_and_removed_where_the_command_stays_whole(project):
    script = project / "run.sh"
    script.write_text(COMMAND)
    assert lint("run.sh", "--add-ignore=later", cwd=project).returncode == 0
    assert script.read_text() == COMMAND.replace("tee log", "tee log  # ckpt-lint: ignore[CKPT303] later")
    assert found("run.sh", cwd=project) == []
    script.write_text(f"{COMMAND}ls  # noqa: CKPT303\n")
    lint("run.sh", "--fix", cwd=project)
    assert script.read_text() == f"{COMMAND}ls\n"


def test_a_launch_script_by_itself_is_not_taken_for_python():
    script = "python - <<END\nfrom torch.utils.checkpoint import checkpoint\ncheckpoint(f, x)\nEND\n"
    assert check_source(script, "run.sh") == []


def test_suppressions_and_baseline_of_a_run(project):
    line = "  fsdp_activation_checkpointing: true"
    (project / "fsdp.yaml").write_text(ACCELERATE.replace(line, f"{line}  # noqa: CKPT110"))
    assert found("sft.py", "--config", "fsdp.yaml", cwd=project) == ["sft.py:4:8 CKPT303"]
    arguments = ("sft.py", "--config", "fsdp.yaml", "--baseline", "known.json")
    assert lint(*arguments, "--write-baseline", cwd=project).returncode == 0
    assert lint(*arguments, cwd=project).returncode == 0


def test_explain_says_which_file_decides(project):
    said = lint("explain", "trl_sft.py", "--config", "recipe.yaml", cwd=project).stdout
    assert "recipe.yaml:4 | gradient_checkpointing: true\n" in said
    assert "; decided by recipe.yaml:4" in said
    said = lint("explain", "loop.py", "--config", "fsdp.yaml", cwd=project).stdout
    assert "fsdp.yaml:6 | fsdp_activation_checkpointing: true\n" in said
    assert "on, non-reentrant; decided by fsdp.yaml:6" in said


MAIN = """\
import sys
from transformers import Trainer, TrainingArguments

def main(data, out):
    args = TrainingArguments(out, gradient_checkpointing=True)
    Trainer("base", args, train_dataset=data).train()

if __name__ == "__main__":
    main(*sys.argv[1:3])
"""


@pytest.mark.parametrize("words", ["", " data out", " data --out out", ' "$@"', " $WORDS", ' "$DATA" > log'])
def test_flags_of_the_launcher_hold_whatever_the_script_is_given(tmp_path, words):
    (tmp_path / "main.py").write_text(MAIN)
    flags = "accelerate launch --use_fsdp --fsdp_activation_checkpointing {} main.py" + words
    assert launch(tmp_path, flags.format("true")) == ["main.py:5:35 CKPT303"]
    assert launch(tmp_path, flags.format("false")) == []
    variables = "ACCELERATE_USE_FSDP=true FSDP_ACTIVATION_CHECKPOINTING={} torchrun main.py" + words
    assert launch(tmp_path, variables.format("true")) == ["main.py:5:35 CKPT303"]
    assert launch(tmp_path, variables.format("false")) == []


def test_flags_of_the_launcher_hold_for_a_file_of_arguments(project):
    arguments = (
        '{\n  "output_dir": "out",\n  "num_train_epochs": 1,\n  "bf16": true,\n  "gradient_checkpointing": true\n}\n'
    )
    command = "accelerate launch --use_fsdp --fsdp_activation_checkpointing true hf.py args.json"
    (project / "args.json").write_text(arguments)
    assert launch(project, command) == ["args.json:5:3 CKPT303"]
    (project / "args.json").write_text(arguments.replace('checkpointing": true', 'checkpointing": false'))
    assert launch(project, command) == []
