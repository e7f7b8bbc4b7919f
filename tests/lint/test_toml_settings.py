"""Settings in TOML that a script reads itself."""

import pytest
from started import found

SCRIPT = """\
import argparse
from pathlib import Path
READS
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

training = TrainingArguments("out", **cfg["training"])
Trainer(AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B"), args=training).train()
"""
ON = """\
seed = 1
[training]
gradient_checkpointing = true  # memory
fsdp = "full_shard"
[training.fsdp_config]
activation_checkpointing = true
"""
OFF = ON.replace("activation_checkpointing = true", "activation_checkpointing = false")
LOAD = "import tomllib\ncfg = tomllib.load(open('configs/run.toml', 'rb'))"
FALLBACK = "try:\n    import tomllib\nexcept ImportError:\n    import tomli as tomllib"


@pytest.mark.parametrize(
    "reads",
    [
        LOAD,
        f"{FALLBACK}\ncfg = tomllib.load(open('configs/run.toml', 'rb'))",
        "import tomllib\nwith open('configs/run.toml', 'rb') as file:\n    cfg = tomllib.load(file)",
        "import tomllib\ncfg = tomllib.loads(Path('configs/run.toml').read_text())",
        "import tomli\ncfg = tomli.load(open('configs/run.toml', 'rb'))",
        "import toml\ncfg = toml.load('configs/run.toml')",
    ],
)
def test_a_file_that_the_script_names(tmp_path, reads):
    code = SCRIPT.replace("READS", reads)
    assert found(tmp_path, {"train.py": code, "configs/run.toml": ON}) == ["CKPT303"]
    assert found(tmp_path, {"train.py": code, "configs/run.toml": OFF}) == []
    assert found(tmp_path, {"train.py": code, "configs/run.toml": "[training\n"}) == []


def test_a_file_that_the_command_names(tmp_path):
    reads = "import tomllib\np = argparse.ArgumentParser()\np.add_argument('--config')\nargs = p.parse_args()"
    code = SCRIPT.replace("READS", f"{reads}\ncfg = tomllib.load(open(args.config, 'rb'))")
    files = {"train.py": code, "configs/on.toml": ON, "configs/off.toml": OFF}
    assert found(tmp_path, files) == []
    assert found(tmp_path, {**files, "run.sh": "python train.py --config configs/off.toml\n"}) == []
    assert found(tmp_path, {**files, "run.sh": "python train.py --config configs/on.toml\n"}) == ["CKPT303"]


def test_other_files_of_toml_say_nothing(tmp_path):
    code = SCRIPT.replace("READS", LOAD.replace("configs/run.toml", "pyproject.toml"))
    assert found(tmp_path, {"train.py": code, "pyproject.toml": ON}) == []
    changed = SCRIPT.replace("READS", f"{LOAD}\ncfg['training'].update(gradient_checkpointing=False)")
    assert found(tmp_path, {"train.py": changed, "configs/run.toml": ON}) == []
