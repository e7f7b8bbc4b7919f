"""Configurations that a launch script writes itself and hands to what it starts."""

from __future__ import annotations

from contextlib import chdir

import pytest
from hf_ckpt.lint.api import check_paths
from hf_ckpt.lint.configs.shell.here_documents import without_bodies, written_by

SECTION = '{"zero_optimization": {"stage": 3}, "activation_checkpointing": {"partition_activations": true}}'
COMMAND = "deepspeed run_clm.py --output_dir $OUT --gradient_checkpointing False --deepspeed ds.json"
FSDP = """fsdp_config:
  fsdp_activation_checkpointing: true
distributed_type: FSDP
"""
WRITES = {
    "cat": f"cat > ds.json <<'EOF'\n{SECTION}\nEOF",
    "behind": f"cat <<EOF > ds.json\n{SECTION}\nEOF",
    "tee": f'tee "ds.json" <<"JSON" >/dev/null\n{SECTION}\nJSON',
    "a folder": f"mkdir -p conf\ncat > conf/ds.json <<- EOF\n\t{SECTION}\n\tEOF",
}
RIGHT = {
    "another file": f"cat > other.json <<EOF\n{SECTION}\nEOF",
    "no section": 'cat > ds.json <<EOF\n{"zero_optimization": {"stage": 3}}\nEOF',
    "what the shell knows": f"cat > ds.json <<EOF\n{SECTION.replace('3', '$STAGE')}\nEOF",
    "written twice": f"cat > ds.json <<EOF\n{SECTION}\nEOF\ncat > ds.json <<EOF\n{{}}\nEOF",
    "added to": f"cat >> ds.json <<EOF\n{SECTION}\nEOF",
    "no JSON": f"cat > ds.json <<EOF\n{SECTION[:-1]}\nEOF",
}


def _found(folder, text: str) -> list[tuple[str, int]]:
    (folder / "launch.sh").write_text(f"#!/bin/bash\n{text}\n")
    with chdir(folder):
        return [(finding.code, finding.span.line) for finding in check_paths(["launch.sh"])]


@pytest.mark.parametrize("written", WRITES.values(), ids=WRITES)
def test_a_file_of_deepspeed_that_the_script_writes(tmp_path, written):
    command = COMMAND.replace("ds.json", "conf/ds.json") if "conf/" in written else COMMAND
    assert _found(tmp_path, f"{written}\n{command}") == [("CKPT207", written.count("\n") + 3)]


@pytest.mark.parametrize("written", RIGHT.values(), ids=RIGHT)
def test_what_it_holds_is_not_known_or_right(tmp_path, written):
    assert _found(tmp_path, f"{written}\n{COMMAND}") == []


def test_with_checkpointing_switched_on(tmp_path):
    assert _found(tmp_path, f"{WRITES['cat']}\n{COMMAND.replace('False', 'True')}") == []


def test_a_configuration_of_accelerate_for_a_script(tmp_path):
    (tmp_path / "train.py").write_text(
        "from transformers import Trainer, TrainingArguments\n"
        "def main(model):\n"
        "    args = TrainingArguments('out', gradient_checkpointing=True)\n"
        "    Trainer(model=model, args=args).train()\n"
    )
    launch = f"cat > fsdp.yaml <<'EOF'\n{FSDP}EOF\naccelerate launch --config_file fsdp.yaml train.py"
    (tmp_path / "launch.sh").write_text(launch)
    with chdir(tmp_path):
        assert [finding.code for finding in check_paths(["launch.sh", "train.py"])] == ["CKPT303"]


def test_the_lines_of_a_file_are_no_commands_and_keep_their_places():
    text = 'cat > a.json <<EOF\n{"b": \'c"}\nEOF\npython run.py # <<EOF\n'
    blank = without_bodies(text)
    assert len(blank) == len(text)
    assert blank.splitlines()[1].isspace()
    assert blank.splitlines()[3] == "python run.py # <<EOF"
    assert [file.name for file in written_by("cat > a.json <<EOF\n{}\nEOF\n")] == ["a.json"]
