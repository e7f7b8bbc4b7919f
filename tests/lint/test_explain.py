"""What `explain` says about a script is what the script does: each one is explained, then run on a tiny model."""

import json
import textwrap

import pytest
from command import ckpt_lint
from hf_ckpt.lint.explain.files import as_text, explain_files
from hf_ckpt.lint.explain.run import explain
from test_notebook import notebook

PREAMBLE = """\
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

config = LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
model = LlamaForCausalLM(config)
base = model
model.is_loaded_in_8bit = True  # peft's preparation does nothing for other models
"""
TRAIN = """
args = TrainingArguments("out", use_cpu=True, report_to="none", max_steps=1, save_strategy="no", disable_tqdm=True{0})
{1}
trainer = Trainer(model, args, train_dataset=rows)
trainer.train()
"""
SCRIPTS = {
    "nothing": "",
    "enable": "model.gradient_checkpointing_enable()",
    "enable reentrant": 'model.gradient_checkpointing_enable({"use_reentrant": True})',
    "enable with another key": 'model.gradient_checkpointing_enable({"preserve_rng_state": False})',
    "enable by the new name": "model.activation_checkpointing_enable(None)",
    "enable and disable": "model.gradient_checkpointing_enable()\nmodel.gradient_checkpointing_disable()",
    "kbit": "model = prepare_model_for_kbit_training(model)",
    "kbit off": "model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)",
    "kbit with arguments": (
        'model = prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs={"use_reentrant": False})'
    ),
    "kbit, then enabled on the adapter": (
        "model = prepare_model_for_kbit_training(model)\nmodel = get_peft_model(model, LoraConfig())\n"
        "model.gradient_checkpointing_enable()"
    ),
    "trainer": TRAIN.format(", gradient_checkpointing=True", ""),
    "trainer by the new name": TRAIN.format(", activation_checkpointing=True", ""),
    "trainer reentrant": TRAIN.format(
        ', gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True}', ""
    ),
    "trainer without": TRAIN.format("", ""),
    "model, then trainer": 'model.gradient_checkpointing_enable({"use_reentrant": True})\n'
    + TRAIN.format(", gradient_checkpointing=True", ""),
    "model, trainer without": 'model.gradient_checkpointing_enable({"use_reentrant": True})\n' + TRAIN.format("", ""),
    "written too late": TRAIN.format("", "args.gradient_checkpointing = True"),
    "switched off too late": TRAIN.format(", gradient_checkpointing=True", "args.gradient_checkpointing = False"),
    "written to the new name": TRAIN.format("", "args.activation_checkpointing = True"),
    "kwargs too late": TRAIN.format(
        ", gradient_checkpointing=True", 'args.gradient_checkpointing_kwargs = {"use_reentrant": True}'
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_explained_is_what_happens(name, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    pytest.importorskip("peft")
    monkeypatch.chdir(tmp_path)
    text = PREAMBLE + SCRIPTS[name]
    verdicts = explain(text, "train.py", {}).verdicts
    said = verdicts[0].state if verdicts else None

    rows = [{"input_ids": torch.ones(4, dtype=torch.long), "labels": torch.ones(4, dtype=torch.long)}] * 8
    names = {"rows": rows}
    exec(compile(text, "train.py", "exec"), names)
    layer = names["base"].model.layers[0]
    on = layer.gradient_checkpointing
    assert (said.on if said else False) == on
    if on:
        keywords = layer._gradient_checkpointing_func.keywords
        assert said.reentrant == keywords.get("use_reentrant", True)  # torch's own default


def test_provenance_is_said():
    text = textwrap.dedent(
        """\
        from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
        model = AutoModelForCausalLM.from_pretrained("x")
        model.gradient_checkpointing_enable({"use_reentrant": True})
        args = TrainingArguments("out", gradient_checkpointing=True)
        args.gradient_checkpointing_kwargs = {"use_reentrant": True}
        Trainer(model, args)
        """
    )
    said = as_text(explain(text, "train.py", {}))
    assert "model: on, non-reentrant; decided by train.py:4, overwrites train.py:3" in said
    assert "no effect: the Trainer reads the new name only" in said
    older = as_text(explain(text, "train.py", {"transformers": "<5.23"}))
    assert "changes what the Trainer is asked for" in older


def test_a_condition_is_said_without_a_not_twice():
    text = """\
from transformers import AutoModel

def build(data, frozen):
    if not data:
        return None
    model = AutoModel.from_pretrained("base")
    if not frozen:
        model.gradient_checkpointing_enable()
    return model
"""
    assert "when `data` and not `frozen`: on, non-reentrant" in as_text(explain(text, "train.py", {}))


def test_what_the_file_does_not_decide_is_left_open():
    text = textwrap.dedent(
        """\
        import os
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("x")
        if os.environ.get("SAVE_MEMORY"):
            model.gradient_checkpointing_enable()
        """
    )
    [verdict] = explain(text, "train.py", {}).verdicts
    assert verdict.state.on is None
    assert "left open by train.py:5" in as_text(explain(text, "train.py", {}))


@pytest.mark.parametrize(
    ("before", "given", "said"),
    [
        ("flag = False\n    if cfg.big:\n        flag = True", "gradient_checkpointing=flag", "when `flag`"),
        ("pass", "gradient_checkpointing=True if cfg.big else False", "when `cfg.big`"),
        ("pass", "gradient_checkpointing=not cfg.small", "when `not cfg.small`"),
        (
            "more = {'gradient_checkpointing': False}\n    if cfg.big:\n        more['gradient_checkpointing'] = True",
            "**more",
            "not decided in this file",
        ),
    ],
)
def test_a_condition_is_what_the_program_asks_and_no_constant(before, given, said):
    text = f"""
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
def main(cfg):
    {before}
    args = TrainingArguments("out", {given})
    Trainer(AutoModelForCausalLM.from_pretrained("x"), args).train()
"""
    [verdict] = explain(text, "train.py", {}).verdicts
    assert str(verdict.state).endswith(said)
    assert "`True`" not in as_text(explain(text, "train.py", {}))


def test_switches_of_models_that_come_from_elsewhere_are_shown():
    script = """
    def prepare(unet, text_encoder, vit, args):
        if args.low_memory:
            unet.enable_gradient_checkpointing()
            text_encoder.gradient_checkpointing_enable({"use_reentrant": True})
        vit.set_grad_checkpointing(False)
    """
    steps = explain(textwrap.dedent(script), "train.py", {}).steps
    elsewhere = "of a model that is not known here"
    assert [(step.where.line, step.effect) for step in steps] == [
        (4, f"when `args.low_memory`: {elsewhere}: on, variant not decided in this file"),
        (5, f"when `args.low_memory`: {elsewhere}: on, reentrant"),
        (6, f"{elsewhere}: off"),
    ]


def test_another_file_may_decide(tmp_path):
    (tmp_path / "factory.py").write_text(
        "from transformers import AutoModelForCausalLM\n\n\ndef build():\n"
        '    model = AutoModelForCausalLM.from_pretrained("x")\n'
        '    model.gradient_checkpointing_enable({"use_reentrant": True})\n    return model\n'
    )
    (tmp_path / "train.py").write_text(
        "from factory import build\nfrom transformers import Trainer, TrainingArguments\n\nmodel = build()\n"
        'args = TrainingArguments("out", gradient_checkpointing=True)\nTrainer(model, args)\n'
    )
    said = ckpt_lint("explain", "train.py", cwd=tmp_path).stdout
    assert "model: on, non-reentrant; decided by train.py:5, overwrites factory.py:6" in said


def test_the_command(tmp_path):
    def run(*arguments):
        return ckpt_lint("explain", *arguments, cwd=tmp_path)

    (tmp_path / "train.py").write_text(PREAMBLE + SCRIPTS["enable"])
    (tmp_path / "broken.py").write_text("def f(:")
    (tmp_path / "other.py").write_text("x = 1")
    assert "model: on, non-reentrant; decided by train.py:8" in run("train.py").stdout
    process = run("broken.py", "other.py")
    assert process.returncode == 2
    assert process.stderr == "error: broken.py:1: not valid Python (invalid syntax)\n"
    assert "other.py: nothing in this file has to do with activation checkpointing." in process.stdout
    [record] = json.loads(run("train.py", "--output-format", "json").stdout)
    [model] = record["models"]
    assert (model["on"], model["reentrant"], model["overwritten"]) == (True, False, [])
    assert model["decided"] == {"filename": "train.py", "cell": None, "row": 8}
    (tmp_path / "a.ipynb").write_bytes(notebook(PREAMBLE, "\n" + SCRIPTS["enable"]))
    assert "decided by a.ipynb:cell 2:2" in run("a.ipynb").stdout


SETTINGS = {
    "arguments.yaml": (
        "output_dir: out\nper_device_train_batch_size: 1\nnum_train_epochs: 1\ngradient_checkpointing: true\n"
        "gradient_checkpointing_kwargs:\n  use_reentrant: true\n",
        "asks the Trainer for: on, reentrant",
    ),
    "axolotl.yml": (
        "base_model: m\nmicro_batch_size: 1\ngradient_checkpointing: true\n",
        "asks the Trainer for: on,",
    ),
    "torchtune.yaml": (
        "model:\n  _component_: torchtune.models.llama3.llama3_8b\nenable_activation_checkpointing: true\n",
        "asks torchtune for: every layer is wrapped in torch's checkpoint, non-reentrant",
    ),
    "torchtune selective.yaml": (
        "model:\n  _component_: torchtune.models.llama3.llama3_8b\nac_mode: selective\nac_option: 2\n",
        "asks torchtune for: every layer whose number is divisible by 2 is wrapped in torch's checkpoint, non-reentrant",
    ),
    "torchtune both.yaml": (
        "model:\n  _component_: torchtune.models.llama3.llama3_8b\n"
        "enable_activation_checkpointing: true\nac_mode: full\n",
        "asks torchtune for: two ways to checkpoint, of which its distributed recipes take neither",
    ),
    "fsdp.yaml": (
        "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_activation_checkpointing: true\n",
        "asks accelerate for: every layer is wrapped in torch's checkpoint, non-reentrant",
    ),
    "deepspeed.json": (
        '{"train_batch_size": 8, "activation_checkpointing": {"cpu_checkpointing": true}}',
        "turns nothing on by itself",
    ),
    "few arguments.yaml": (
        "output_dir: out\nper_device_train_batch_size: 4\ngradient_checkpointing: true\n",
        "asks the Trainer for: on,",
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_configuration_is_explained(tmp_path, capsys, name):
    text, said = SETTINGS[name]
    (tmp_path / name).write_text(text)
    assert explain_files([str(tmp_path / name)], "text") == 0
    assert said in capsys.readouterr().out


def test_arguments_with_which_the_trainer_is_not_built(capsys, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        'model = AutoModelForCausalLM.from_pretrained("m")\n'
        'fsdp = {"fsdp": "full_shard", "fsdp_config": {"activation_checkpointing": True}}\n'
        'args = TrainingArguments("out", gradient_checkpointing=True, **fsdp)\nTrainer(model, args).train()\n'
    )
    assert explain_files([str(script)], "text") == 0
    said = capsys.readouterr().out
    assert "= raises: FSDP and the Trainer both checkpoint" in said
    assert "wrapped" not in said
    assert "model: off" in said


def test_a_launch_script_is_explained_with_what_it_starts(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(
        "from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
        "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
        'model = AutoModelForCausalLM.from_pretrained("m")\nTrainer(model, args).train()\n'
    )
    (tmp_path / "run.sh").write_text("accelerate launch train.py --output_dir out --gradient_checkpointing True\n")
    assert explain_files(["run.sh"], "text") == 0
    assert "model: on, non-reentrant; decided by run.sh:1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("data.json", '{"name": 1}', "no configuration of training that ckpt-lint knows"),
        ("broken.yaml", "gradient_checkpointing: [true\n", "cannot be read"),
        ("clean.sh", "rm -rf build\n", "starts no script"),
    ],
)
def test_a_file_that_starts_nothing_is_said(tmp_path, capsys, name, text, said):
    (tmp_path / name).write_text(text)
    assert explain_files([str(tmp_path / name)], "text") == 2
    assert said in capsys.readouterr().err
