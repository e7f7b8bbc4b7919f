"""Settings that are put together in a script: a dict over the arguments of the command line, texts, merged settings."""

import pytest
from hf_ckpt.lint import check_source

SCRIPT = """\
import argparse, json, sys
import yaml
from omegaconf import OmegaConf
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

p = argparse.ArgumentParser()
p.add_argument("--gradient_checkpointing", action="store_true")
p.add_argument("--fsdp", default="")
p.add_argument("--fsdp_config", default=None)
args = p.parse_args()
DOES
Trainer(AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B"), args=training).train()
"""
BOTH = '{"gradient_checkpointing": True, "fsdp": "full_shard", "fsdp_config": {"activation_checkpointing": True}}'
ONE = BOTH.replace('"gradient_checkpointing": True', '"gradient_checkpointing": False')
BUILD = """
training = TrainingArguments(
    "out", gradient_checkpointing=args.gradient_checkpointing, fsdp=args.fsdp, fsdp_config=args.fsdp_config
)
"""
READ = """
{0}
training = TrainingArguments("out", **cfg)
"""
MERGED = READ.format('cfg = OmegaConf.merge({"t": DATA}, OmegaConf.create({"t": {"bf16": True}})).t')


def found(does, data):
    text = data.replace("True", "true").replace("False", "false")
    return [it.code for it in check_source(SCRIPT.replace("DOES", does.replace("DATA", data).replace("TEXT", text)))]


@pytest.mark.parametrize(
    "does",
    [
        "args.__dict__.update(DATA)" + BUILD,
        "vars(args).update(DATA)" + BUILD,
        "vars(args).update(**DATA)" + BUILD,
        "for k, v in DATA.items():\n    setattr(args, k, v)" + BUILD,
        "for k, v in DATA.items():\n    if hasattr(args, k):\n        setattr(args, k, v)" + BUILD,
        "for k, v in DATA.items():\n    args.__dict__[k] = v" + BUILD,
        "over = DATA\nfor k in over:\n    setattr(args, k, over[k])" + BUILD,
        "over = DATA\nfor k, v in {k: over[k] for k in over}.items():\n    setattr(args, k, v)" + BUILD,
        "over = DATA\nfor k in over:\n    if not hasattr(args, k):\n        raise ValueError(k)\n    setattr(args, k, over[k])"
        + BUILD,
        "vars(args).update(DATA)\nheld = {**vars(args)}\ntraining = TrainingArguments('out', **held)",
        READ.format("cfg = json.loads('TEXT')"),
        READ.format("cfg = yaml.safe_load('TEXT')"),
        READ.format("cfg = {**DATA, 'bf16': True}"),
        READ.format("cfg = OmegaConf.merge(DATA, OmegaConf.from_dotlist(['bf16=true']))"),
        READ.format("cfg = OmegaConf.merge(DATA, OmegaConf.from_dotlist(['fsdp=full_shard auto_wrap']))"),
        MERGED,
    ],
)
def test_what_a_script_puts_together_is_known(does):
    assert found(does, BOTH) == ["CKPT303"]
    assert found(does, ONE) == []


@pytest.mark.parametrize(
    "does",
    [
        "vars(args).update(json.load(open(sys.argv[1])))" + BUILD,
        "args.__dict__.update(DATA)\nvars(args).update(gradient_checkpointing=False)" + BUILD,
        "for k, v in DATA.items():\n    if hasattr(args, k) and getattr(args, k) is None:\n        setattr(args, k, v)"
        + BUILD,
        "for k, v in DATA.items():\n    if hasattr(p, k):\n        setattr(args, k, v)" + BUILD,
        "over = {**DATA, **json.load(open(sys.argv[1]))}\nfor k in over:\n    setattr(args, k, over[k])" + BUILD,
        "over = DATA\nfor k in over:\n    if k != 'gradient_checkpointing':\n        setattr(args, k, over[k])" + BUILD,
        READ.format("cfg = json.loads(sys.argv[1])"),
        READ.format("cfg = OmegaConf.merge(DATA, OmegaConf.from_cli())"),
        READ.format("cfg = OmegaConf.merge(DATA, OmegaConf.from_dotlist(['gradient_checkpointing=false']))"),
        READ.format("cfg = OmegaConf.merge(DATA, OmegaConf.from_dotlist(sys.argv[1:]))"),
        MERGED.replace('"bf16": True', '"gradient_checkpointing": False'),
    ],
)
def test_what_others_may_change_or_turn_off_is_not(does):
    assert found(does, BOTH) == []


def test_a_structured_config_has_the_defaults_of_its_class():
    code = """
from dataclasses import dataclass
@dataclass
class Config:
    gradient_checkpointing: bool = SWITCH
    fsdp: str = "full_shard"
cfg = OmegaConf.merge(OmegaConf.structured(Config), {"fsdp_config": {"activation_checkpointing": True}})
training = TrainingArguments("out", **cfg)
"""
    assert found(code.replace("SWITCH", "True"), BOTH) == ["CKPT303"]
    assert found(code.replace("SWITCH", "False"), BOTH) == []
