"""Configurations by themselves: what kind a file is, what is found in it and where, and what stays silent."""

import json
from pathlib import Path
from random import Random

import pytest
from command import ckpt_lint
from hf_ckpt.lint import check_paths, check_source
from hf_ckpt.lint.configs.check import check_in_runs
from hf_ckpt.lint.configs.reading import parses, read_config
from hf_ckpt.lint.project.discover import LARGEST_CONFIG
from hf_ckpt.lint.sources.edits import apply_edits
from hf_ckpt.lint.sources.source import Source

ROOT = Path(__file__).parents[2]

ACCELERATE = """\
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: true
  fsdp_version: 2
machine_rank: 0
mixed_precision: bf16
num_machines: 1
num_processes: 8
"""
DEEPSPEED = """\
{
    "bf16": {"enabled": "auto"},
    "zero_optimization": {"stage": 3, "overlap_comm": true},
    "activation_checkpointing": {"partition_activations": true, "cpu_checkpointing": true},
    "gradient_accumulation_steps": "auto",
    "train_micro_batch_size_per_gpu": "auto"
}
"""
ARGUMENTS = """\
{
\t"output_dir": "out\\/run \\u00fc",
\t"per_device_train_batch_size": 4,
\t"learning_rate": 2e-5,
\t"bf16": true,
\t"gradient_checkpointing": true,
\t"gradient_checkpointing_kwargs": {
\t\t"early_stop": false
\t}
}
"""
TRL = """\
# Model
model_name_or_path: Qwen/Qwen2.5-1.5B
dataset_name: HuggingFaceH4/ultrachat_200k

# Training
per_device_train_batch_size: 2
learning_rate: 2.0e-05
num_train_epochs: 1
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
output_dir: data/qwen
"""
AXOLOTL = """\
base_model: NousResearch/Llama-3.2-1B
load_in_4bit: true
datasets:
  - path: teknium/GPT4-LLM-Cleaned
    type: alpaca
adapter: qlora
lora_dropout: 0.05
sequence_len: 2048
micro_batch_size: 2
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: true
fsdp:
  - full_shard
  - auto_wrap
fsdp_config:
  fsdp_activation_checkpointing: false
"""
LLAMA_FACTORY = """\
### model
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
### method
stage: sft
do_train: true
finetuning_type: lora
lora_target: all
### dataset
dataset: identity,alpaca_en_demo
template: llama3
### train
per_device_train_batch_size: 1
learning_rate: 1.0e-4
num_train_epochs: 3.0
ddp_timeout: 180000000
gradient_checkpointing: true
"""
TORCHTUNE = """\
output_dir: /tmp/torchtune/llama3_1_8B/full
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  path: /tmp/Meta-Llama-3.1-8B-Instruct/original/tokenizer.model
model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
batch_size: 2
epochs: 1
gradient_accumulation_steps: 8
enable_activation_checkpointing: True
enable_activation_offloading: True
"""
HYDRA = """\
defaults:
  - _self_
model:
  name: meta-llama/Llama-3.2-3B
trainer:
  args:
    _target_: transformers.TrainingArguments
    output_dir: ${hydra:runtime.output_dir}
    per_device_train_batch_size: 2
    learning_rate: 1.0e-5
    max_steps: 3000
    gradient_checkpointing: true
    gradient_checkpointing_kwargs:
      use_reentrant: false
"""
KINDS = {
    "accelerate": ("fsdp.yaml", ACCELERATE),
    "DeepSpeed": ("ds.json", DEEPSPEED),
    "training arguments of transformers or trl": ("recipe.yaml", TRL),
    "axolotl": ("qlora.yml", AXOLOTL),
    "LLaMA-Factory": ("sft.yaml", LLAMA_FACTORY),
    "torchtune": ("8B_full.yaml", TORCHTUNE),
    "Hydra": ("config.yaml", HYDRA),
}
#: None of them, however they mention what we look for.
FOREIGN = {
    "config.json": '{"architectures": ["LlamaForCausalLM"], "gradient_checkpointing_kwargs": {}, "hidden_size": 8}',
    "own.yaml": "model:\n  gradient_checkpointing: true\n  gradient_checkpointing_kwargs: {}\noptimizer: adamw\n",
    "diffusers.yaml": "output_dir: out\nlearning_rate: 1e-4\ngradient_checkpointing: true\nresolution: 512\n",
    "chart.yaml": "args:\n  {{- if .Values.x }}\n  gradient_checkpointing: {{ .Values.ckpt }}\n  {{- end }}\n",
    "rows.json": '{"text": "gradient_checkpointing: true"}\n{"text": "use_reentrant"}\n',
    "list.json": '["gradient_checkpointing_kwargs", {"activation_checkpointing": true}]',
    "many.yaml": f"{TRL}---\n{TRL}".replace("false", "'False'"),
    "text.json": '{"prompt": "set \\"gradient_checkpointing\\": true" ',
    "scalar.yaml": "gradient_checkpointing_kwargs",
    "workflow.yml": "on: push\njobs:\n  a:\n    steps:\n    - run: ckpt-lint --select CKPT303 gradient_checkpointing\n",
}


def places(text, filename, **options):
    return [(finding.span[:2], finding.code) for finding in check_source(text, filename, **options)]


def unsafe_fixed(text, filename, code):
    [finding] = [finding for finding in check_source(text, filename) if finding.code == code]
    after = apply_edits(text, finding.fix.edits)
    assert code not in {finding.code for finding in check_source(after, filename)}
    return after


@pytest.mark.parametrize("label", KINDS)
def test_a_kind_is_told_by_its_keys_and_correct_files_are_silent(label):
    filename, text = KINDS[label]
    assert read_config(filename, text).kind.label == label
    assert check_source(text, filename) == []


@pytest.mark.parametrize("filename", FOREIGN)
def test_other_files_are_no_configuration(filename):
    assert check_source(FOREIGN[filename], filename) == []


def test_our_own_example_is_silent():
    assert check_paths([ROOT / "examples" / "accelerate_fsdp.yaml", ROOT / "examples"]) == []


def test_a_finding_in_json_stands_at_its_key():
    [finding] = check_source(ARGUMENTS, "args.json")
    assert (finding.code, finding.span) == ("CKPT102", (7, 2, 7, 33))
    fixed = unsafe_fixed(ARGUMENTS, "args.json", "CKPT102")
    assert fixed == ARGUMENTS.replace('\t\t"early', '\t\t"use_reentrant": false,\n\t\t"early')
    assert json.loads(fixed)["gradient_checkpointing_kwargs"] == {"use_reentrant": False, "early_stop": False}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  use_reentrant: 'False'  # no\n", "  use_reentrant: false  # no\n"),
        ("  # why\n  early_stop: false  # x\n", "  # why\n  early_stop: false  # x\n  use_reentrant: false\n"),
        (" {early_stop: false}\n", " {early_stop: false, use_reentrant: false}\n"),
        (" {\n    early_stop: false,\n  }\n", " {\n    early_stop: false,\n    use_reentrant: false,\n  }\n"),
    ],
)
def test_a_fix_keeps_comments_and_layout(before, after):
    text = TRL.replace("  use_reentrant: false\n", before).replace(
        "kwargs:\n" if before.startswith(" {") else "kwargs: \n", "kwargs:"
    )
    code = "CKPT133" if "'False'" in before else "CKPT102"
    fixed = unsafe_fixed(text, "recipe.yaml", code)
    assert yaml_of(fixed) == yaml_of(text.replace(before, after))
    assert [line for line in text.splitlines() if "#" in line] == [
        line for line in fixed.splitlines() if "#" in line
    ] or (code == "CKPT133")
    assert len(fixed.splitlines()) - len(text.splitlines()) == after.count("\n") - before.count("\n")


def yaml_of(text):
    import yaml

    return yaml.safe_load(text)


def test_a_shared_mapping_is_reported_and_left_alone():
    text = TRL.replace("gradient_checkpointing_kwargs:\n  use_reentrant: false\n", "").replace(
        "# Training\n", "shared: &kwargs\n  early_stop: false\ngradient_checkpointing_kwargs: *kwargs\n"
    )
    [finding] = check_source(text, "recipe.yaml")
    assert (finding.code, finding.fix) == ("CKPT102", None)


def test_a_deprecated_key_is_renamed_only_on_request():
    assert places(TRL, "recipe.yaml", select=["CKPT501"]) == [((9, 1), "CKPT501"), ((10, 1), "CKPT501")]
    found = check_source(TRL, "recipe.yaml", select=["CKPT501"], versions={"transformers": ">=5.23,<6"})
    assert {str(finding.fix.applicability) for finding in found} == {"safe"}
    after = apply_edits(TRL, [edit for finding in found for edit in finding.fix.edits])
    assert after == TRL.replace("gradient_checkpointing", "activation_checkpointing")
    assert places(TRL, "recipe.yaml", select=["CKPT501"], versions={"transformers": "<5.23"}) == []


def test_what_the_command_line_may_still_say_is_left_open():
    off = TRL.replace("gradient_checkpointing: true\n", "")
    assert places(off, "recipe.yaml") == []


def test_sections_that_hydra_builds_training_arguments_of():
    early = HYDRA.replace("use_reentrant", "early_stop")
    assert places(early, "config.yaml") == [((13, 5), "CKPT102")]
    assert places(early.replace("transformers.TrainingArguments", "trl.SFTConfig"), "config.yaml") == [
        ((13, 5), "CKPT102")
    ]
    assert "      early_stop: false\n      use_reentrant: false\n" in unsafe_fixed(early, "config.yaml", "CKPT102")
    # Settings of another program, and what stands in another file.
    assert places(early.replace("transformers.TrainingArguments", "project.Arguments"), "config.yaml") == []
    assert places(early.replace("\n      early_stop: false", " ${memory.kwargs}"), "config.yaml") == []
    alone = "\n".join(line[4:] for line in early.splitlines()[6:])
    assert places(alone, "trainer/hf.yaml") == [((7, 1), "CKPT102")]


def test_axolotl_decides_everything_itself():
    plain = AXOLOTL.partition("fsdp:")[0]
    off = plain.replace("gradient_checkpointing: true\n", "")
    assert places(off, "a.yaml") == [((10, 1), "CKPT215")]
    assert "gradient_checkpointing: true\n" in unsafe_fixed(off, "a.yaml", "CKPT215")
    # trl's arguments are on by default, FSDP may checkpoint instead, and offloading takes the place of all of it.
    for silent in ("rl: dpo\n", "fsdp_config:\n  activation_checkpointing: true\n"):
        assert places(off + silent, "a.yaml") == []
    assert places(off + "activation_offloading: true\n", "a.yaml") == [((12, 1), "CKPT316")]


def test_axolotl_is_reentrant_unless_told_otherwise():
    ddp = AXOLOTL.partition("gradient_checkpointing_kwargs")[0] + "ddp_find_unused_parameters: true\n"
    reentrant = ddp + "gradient_checkpointing_kwargs: {use_reentrant: true}\n"
    assert places(reentrant, "a.yaml") == [((12, 1), "CKPT304")]
    assert places(reentrant.replace("{use_reentrant: true}", "{use_reentrant: false}"), "a.yaml") == []
    # A dict without the key changes nothing there: not the mistake it is elsewhere.
    assert places(AXOLOTL.replace("use_reentrant: true", "preserve_rng_state: true"), "a.yaml") == []
    assert places(reentrant + "deepspeed: zero2.json\n", "a.yaml") == []
    assert places(reentrant.replace("NousResearch/Llama-3.2-1B", "google/gemma-4-E4B"), "a.yaml") == [
        ((12, 1), "CKPT304")
    ]
    other = reentrant.replace("use_reentrant: true", "early_stop: true")
    assert places(other.replace("NousResearch/Llama-3.2-1B", "google/gemma-4-E4B"), "a.yaml") == []


def test_llama_factory_under_ddp():
    ddp = LLAMA_FACTORY + "use_reentrant_gc: true\nddp_find_unused_parameters: true\n"
    assert places(ddp, "a.yaml") == [((17, 1), "CKPT304")]
    assert "use_reentrant_gc: false\n" in unsafe_fixed(ddp, "a.yaml", "CKPT304")
    default = ddp.replace("use_reentrant_gc: true\n", "").replace("gradient_checkpointing: true\n", "")
    assert places(default, "a.yaml") == [((16, 1), "CKPT304")]
    assert unsafe_fixed(default, "a.yaml", "CKPT304") == default + "use_reentrant_gc: false\n"
    for silent in ("deepspeed: ds.json\n", "disable_gradient_checkpointing: true\n", "use_unsloth_gc: true\n"):
        assert places(ddp + silent, "a.yaml") == []


def test_torchtune_refuses_offloading_without_checkpointing():
    off = TORCHTUNE.replace("enable_activation_checkpointing: True", "enable_activation_checkpointing: False")
    assert places(off, "a.yaml") == [((11, 1), "CKPT316")]
    assert unsafe_fixed(off, "a.yaml", "CKPT316").splitlines()[9] == "enable_activation_checkpointing: true"
    assert places(off.replace("enable_activation_checkpointing: False\n", ""), "a.yaml") == [((10, 1), "CKPT316")]
    # The recipes for distillation read other switches.
    assert places(off + "teacher_model:\n  _component_: torchtune.models.llama3_1.llama3_1_8b\n", "a.yaml") == []


def test_torchtunes_two_switches_cancel_each_other():
    both = TORCHTUNE + "ac_mode: selective\nac_option: 2\n"
    assert places(both, "a.yaml") == [((12, 1), "CKPT216")]
    for silent in ("ac_mode: null\n", "ac_option: 2\n", "ac_mode: ${mode}\n"):
        assert places(TORCHTUNE + silent, "a.yaml") == []


def test_a_rule_holds_for_the_versions_it_is_about():
    offload = ACCELERATE.replace("fsdp_version: 2", "fsdp_activation_checkpointing_offload: true")
    assert places(offload, "a.yaml") == [((9, 3), "CKPT316")]
    assert places(offload, "a.yaml", versions={"accelerate": ">=1.10,<1.15"}) == []


@pytest.mark.parametrize(
    ("filename", "text", "place"),
    [
        ("a.yaml", "output_dir: out\ngradient_checkpointing: true: no\n", (2, 29)),
        ("a.json", '{\n  "gradient_checkpointing": tru\n}\n', (2, 29)),
    ],
)
def test_a_file_that_cannot_be_read_is_one_finding_with_its_place(filename, text, place):
    [finding] = check_source(text, filename)
    assert (finding.code, finding.span[:2]) == ("CKPT903", place)
    kind = "YAML" if filename.endswith("yaml") else "JSON"
    assert finding.message.startswith(f"not valid {kind} (")


def test_comments_silence_findings_in_yaml():
    text = TRL.replace("use_reentrant: false", "use_reentrant: 'False'")
    line = "  use_reentrant: 'False'"
    assert places(text, "a.yaml") == [((11, 3), "CKPT133")]
    for comment in (
        "# noqa: CKPT133",
        "# ckpt-lint: ignore[CKPT133] why",
        "# ckpt-lint: ignore[non-boolean-use-reentrant]",
    ):
        assert places(text.replace(line, f"{line}  {comment}"), "a.yaml") == []
    above = text.replace(line, f"  # ckpt-lint: ignore[CKPT133]\n\n  # more\n{line}")
    assert places(above, "a.yaml") == []
    assert places(f"# ckpt-lint: ignore-file\n{text}", "a.yaml") == []
    assert places(text.replace("'False'", "'# noqa: CKPT133'"), "a.yaml") == [((11, 3), "CKPT133")]


def test_an_idle_comment_in_yaml_is_reported_and_removed():
    text = TRL.replace("use_reentrant: false", "use_reentrant: false  # noqa: CKPT133")
    [finding] = check_source(text, "a.yaml")
    assert (finding.code, finding.span[:2]) == ("CKPT901", (11, 25))
    assert apply_edits(text, finding.fix.edits) == TRL


def test_selectors_and_the_analysis_agree():
    assert places(ARGUMENTS, "args.json", ignore=["CKPT102"]) == []
    assert places(ARGUMENTS, "args.json", select=["CKPT3"]) == []
    [found] = check_in_runs(Source("args.json", ARGUMENTS), (), None, {}, lambda file: False)
    assert found.code == "CKPT102"


def lint(*arguments, cwd):
    return ckpt_lint(*arguments, cwd=cwd, CI="")


@pytest.fixture
def project(tmp_path):
    configs = tmp_path / "configs"
    configs.mkdir()
    (configs / "args.json").write_text(ARGUMENTS)
    for filename, text in (*KINDS.values(), *FOREIGN.items()):
        (configs / filename).write_text(text)
    (configs / "data.json").write_text(json.dumps({"x": "y" * LARGEST_CONFIG, "gradient_checkpointing_kwargs": {}}))
    return tmp_path


def test_a_folder_of_configurations(project):
    process = lint("configs", "--output-format", "concise", cwd=project)
    assert process.returncode == 1
    assert [line.split(" ")[0] for line in process.stdout.splitlines()[:-1]] == ["configs/args.json:7:2:"]
    process = lint("configs/fsdp.yaml", "configs/own.yaml", cwd=project)
    assert (process.returncode, process.stdout, process.stderr) == (0, "All checks passed!\n", "")


@pytest.mark.parametrize("name", ["concise", "full", "json", "json-lines", "sarif", "github", "gitlab", "junit"])
def test_every_format_shows_the_place(project, name):
    output = lint("configs", "--output-format", name, cwd=project).stdout
    assert "CKPT102" in output
    assert "args.json" in output
    assert "7" in output


def test_fix_diff_baseline_and_add_ignore(project):
    args, recipe = project / "configs" / "args.json", project / "configs" / "recipe.yaml"
    assert lint("configs", "--baseline", "known.json", "--write-baseline", cwd=project).returncode == 0
    assert lint("configs", "--baseline", "known.json", cwd=project).returncode == 0
    diff = lint("configs", "--diff", "--unsafe-fixes", cwd=project).stdout
    assert '+\t\t"use_reentrant": false,\n' in diff
    assert lint("configs", "--fix", "--unsafe-fixes", cwd=project).returncode == 0
    assert json.loads(args.read_text())["gradient_checkpointing_kwargs"]["use_reentrant"] is False
    recipe.write_text(TRL.replace("false", "'False'"))
    assert lint("configs", "--add-ignore=later", cwd=project).returncode == 0
    assert "  use_reentrant: 'False'  # ckpt-lint: ignore[CKPT133] later\n" in recipe.read_text()
    args.write_text(ARGUMENTS)
    # JSON has no comments to write.
    assert lint("configs", "--add-ignore", cwd=project).returncode == 1
    assert args.read_text() == ARGUMENTS


def mutated(text, random):
    """``text`` with a few characters or lines gone, doubled or exchanged."""
    lines = text.splitlines(keepends=True)
    for _ in range(random.randint(1, 3)):
        line = random.randrange(len(lines))
        column = random.randrange(len(lines[line]))
        replacement = random.choice(
            ["", ":", " ", "{", "]", "#", "\t", "&a ", "*a", "|", "'", '"', "\u2028", "- ", "true"]
        )
        lines[line] = lines[line][:column] + replacement + lines[line][column + random.randint(0, 1) :]
        if random.random() < 0.2:
            lines.insert(random.randrange(len(lines)), lines[random.randrange(len(lines))])
    return "".join(lines)


@pytest.mark.parametrize("filename", ["args.json", *(filename for filename, _ in KINDS.values())])
def test_mutated_files_are_read_or_reported_and_fixes_keep_them_readable(filename):
    text = ARGUMENTS if filename == "args.json" else dict(KINDS.values())[filename]
    random = Random(filename)
    for _ in range(60):
        changed = mutated(text, random)
        for finding in check_source(changed, filename, select=["ALL"]):
            assert 1 <= finding.span.line <= changed.count("\n") + 1
            if finding.fix is not None and finding.code != "CKPT901":
                assert parses(filename, apply_edits(changed, finding.fix.edits)), (changed, finding)
