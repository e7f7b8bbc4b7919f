"""Names of parts of wrapped layers, asked for in the ways that scripts put names together; runs show which match."""

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """import re
from functools import partial
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper
from transformers import AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer
from peft import LoraConfig, get_peft_model
model = AutoModelForCausalLM.from_pretrained("base")
apply_activation_checkpointing(model, check_fn=lambda m: isinstance(m, LlamaDecoderLayer))
"""
#: The wrapper's part of the name stands in between: nothing matches.
WRONG = {
    "percent": r"""
for i in range(4):
    for n, p in model.named_parameters():
        if n.startswith("model.layers.%d.mlp" % i):
            p.requires_grad = False
""",
    "format": r"""
for n, p in model.named_parameters():
    if any(n.startswith("model.layers.{}.mlp".format(i)) for i in range(4)):
        p.requires_grad = False
""",
    "plus": r"""
for i in range(4):
    for n, p in model.named_parameters():
        if "layers." + str(i) + ".self_attn" in n:
            p.requires_grad = False
""",
    "fstr": r"""
for i in range(4):
    for n, p in model.named_parameters():
        if f"layers.{i}.self_attn" in n:
            p.requires_grad = False
""",
    "local fn": r"""
def is_low(name):
    return name.startswith("model.layers.0.mlp")
for n, p in model.named_parameters():
    p.requires_grad = is_low(n)
""",
    "names list": r"""
names = [n for n, _ in model.named_parameters()]
chosen = [n for n in names if "layers.0.mlp" in n]
print(chosen)
""",
    "dict params": r"""
w = dict(model.named_parameters())["model.layers.0.mlp.up_proj.weight"]
""",
    "dict params get": r"""
params = dict(model.named_parameters())
for i in range(4):
    params[f"model.layers.{i}.mlp.up_proj.weight"].requires_grad = False
""",
    "regex tuple": r"""
PATTERNS = (re.compile(r"model\.layers\.\d+\.mlp"),)
for n, p in model.named_parameters():
    if any(r.match(n) for r in PATTERNS):
        p.requires_grad = False
""",
    "lora regex": r"""
cfg = LoraConfig(target_modules=r".*layers\.\d+\.self_attn\.(q|v)_proj")
model = get_peft_model(model, cfg)
""",
    "lora regex2": r"""
cfg = LoraConfig(target_modules="model\\.layers\\.(0|1)\\.mlp\\.up_proj")
model = get_peft_model(model, cfg)
""",
    "set names": r"""
NO_GRAD = {f"model.layers.{i}.input_layernorm.weight" for i in range(8)}
for n, p in model.named_parameters():
    if n in NO_GRAD:
        p.requires_grad_(False)
""",
    "tuple names": r"""
PREFIXES = tuple("model.layers.%d.mlp." % i for i in range(4))
for n, p in model.named_parameters():
    if n.startswith(PREFIXES):
        p.requires_grad_(False)
""",
    "match": r"""
for n, p in model.named_parameters():
    m = re.match(r"model\.layers\.(\d+)\.mlp", n)
    if m and int(m.group(1)) < 4:
        p.requires_grad = False
""",
    "search": r"""
pat = re.compile(r"layers\.(\d+)\.(self_attn|mlp)")
for n, p in model.named_parameters():
    m = pat.search(n)
    if m is not None and int(m[1]) < 4:
        p.requires_grad = False
""",
    "modules": r"""
for n, m in model.named_modules():
    if n.endswith("layers.0.mlp"):
        m.requires_grad_(False)
""",
    "split": r"""
for n, p in model.named_parameters():
    parts = n.split(".")
    if parts[1] == "layers" and parts[3] == "mlp":
        p.requires_grad = False
""",
    "next": r"""
w = next(p for n, p in model.named_parameters() if n == "model.layers.0.mlp.up_proj.weight")
""",
    "next2": r"""
w = [p for n, p in model.named_parameters() if "layers.0.self_attn.q_proj" in n][0]
""",
}
#: What an f-string of a test puts in: the lines before, what is put in, and the loops over it.
COUNTED = {
    "numbers by a name": ("TOP = (10, 11)", 'f"layers.{i}.mlp" in n for i in TOP'),
    "of a set": ("TOP = sorted({11, 10})", 'f"layers.{i}.mlp" in n for i in TOP'),
    "in reverse": ("TOP = [10, 11]", 'f"layers.{i}.mlp" in n for i in sorted(TOP, reverse=True)'),
    "the last ones": ("ALL = list(range(12))", 'f"layers.{i}.mlp" in n for i in ALL[-2:]'),
    "two lists": ("TOP = [10] + [11]", 'f"layers.{i}.mlp" in n for i in TOP'),
    "keys of a dict": ("RATES = {10: 2.0, 11: 5.0}", 'f"layers.{i}.mlp" in n for i, _ in RATES.items()'),
    "keys alone": ("RATES = {10: 2.0, 11: 5.0}", 'f"layers.{i}.mlp" in n for i in RATES'),
    "parts by a name": (
        'PARTS = ("mlp", "self_attn")',
        'f"layers.{i}.{part}" in n for i in range(4) for part in PARTS',
    ),
    "words": ("", 'f"layers.3.{part}" in n for part in "mlp self_attn".split()'),
    "side by side": ("TOP = (10, 11)", 'f"layers.{i}.{part}" in n for i, part in zip(TOP, ("mlp", "self_attn"))'),
    "with a number": ('PARTS = ["mlp"]', 'f"layers.3.{part}" in n for number, part in enumerate(PARTS)'),
    "from the end": ("", 'f"layers.{31 - i}.mlp" in n for i in range(4)'),
    "one further": ("", '"layers." + str(i + 1) + ".mlp" in n for i in range(4)'),
    "a part by a name": ('PART = "mlp"', 'f"layers.{i}.{PART}" in n for i in range(4)'),
    "a number by a name": ("LAST = 31", 'f"layers.{LAST}.{part}" in n for part in ("mlp", "self_attn")'),
}
COUNTED_OTHERWISE = {
    "the wrapper's part": ('TOP = ("10._checkpoint_wrapped_module",)', 'f"layers.{i}.mlp" in n for i in TOP'),
    "either": ('PARTS = ("mlp", "_checkpoint_wrapped_module.mlp")', 'f"layers.0.{part}" in n for part in PARTS'),
    "numbers from outside": ("import sys\nTOP = sys.argv[1:]", 'f"layers.{i}.mlp" in n for i in TOP'),
    "some from outside": ("import sys\nTOP = [10, *sys.argv[1:]]", 'f"layers.{i}.mlp" in n for i in TOP'),
    "completed": ('TOP = [1]\nTOP.append("2._checkpoint_wrapped_module")', 'f"layers.{i}.mlp" in n for i in TOP'),
    "a name from outside": ("import sys\nPART = sys.argv[1]", 'f"layers.{i}.{PART}" in n for i in range(4)'),
    "a part of the texts": (
        'PARTS = ("mlp", "_checkpoint_wrapped_module.mlp")',
        'f"layers.0.{part}" in n for part in PARTS[1:]',
    ),
    "whole layers": ("TOP = (10, 11)", 'f"layers.{i}." in n for i in TOP'),
}
#: State dicts have the names without the wrappers, and a wrapper hands on attributes.
RIGHT = {
    "state dict": r"""
for n in model.state_dict():
    if n.startswith("model.layers.0.mlp"):
        print(n)
""",
    "state dict items": r"""
for n, t in model.state_dict().items():
    if n.startswith("model.layers.0.mlp"):
        print(n)
""",
    "in state dict": r"""
sd = model.state_dict()
if "model.layers.0.mlp.up_proj.weight" in sd:
    print("ok")
""",
    "get_submodule": r"""
m = model.get_submodule("model.layers.0.mlp")
""",
}


def codes(script):
    return [finding.code for finding in check_source(HEAD + script)]


def counted(before, tests):
    return f"{before}\nchosen = [p for n, p in model.named_parameters() if any({tests})]\n"


@pytest.mark.parametrize("way", COUNTED)
def test_what_a_loop_puts_into_the_name_is_followed(way):
    assert codes(counted(*COUNTED[way])) == ["CKPT131"]


@pytest.mark.parametrize("way", COUNTED_OTHERWISE)
def test_what_a_loop_puts_into_the_name_may_be_right(way):
    assert codes(counted(*COUNTED_OTHERWISE[way])) == []


@pytest.mark.parametrize("script", WRONG.values(), ids=WRONG)
def test_a_name_below_a_wrapper_is_found(script):
    assert codes(script) == ["CKPT131"]


@pytest.mark.parametrize("script", RIGHT.values(), ids=RIGHT)
def test_a_name_that_wrappers_do_not_change_is_right(script):
    assert codes(script) == []


def test_names_that_are_asked_for_before_the_wrapping_are_right():
    *imports, wrapping = HEAD.splitlines()
    script = "\n".join([*imports, WRONG["percent"], WRONG["names list"], WRONG["local fn"], wrapping])
    assert [finding.code for finding in check_source(script)] == []


BERT = """import re
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from transformers import BertForSequenceClassification, LlamaForCausalLM, GPT2LMHeadModel
from transformers.models.bert.modeling_bert import BertLayer
LOWER = re.compile(r"bert\\.encoder\\.layer\\.[0-3]\\.(attention|intermediate|output)\\.")
def wrap(model):
    apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, BertLayer))
"""
#: Parts of the name of a parameter of BERT, and patterns of a few digits.
WRONG_OF_BERT = {
    "the fifth part": """
def groups(model):
    return [p for n, p in model.named_parameters() if n.count(".") > 3 and n.split(".")[4] == "attention"]
model = BertForSequenceClassification.from_pretrained("base")
wrap(model)
groups(model)
""",
    "the fifth part of a list": """
model = BertForSequenceClassification.from_pretrained("base", num_labels=3).to("cuda")
wrap(model)
for name, p in model.named_parameters():
    parts = name.split(".")
    if len(parts) > 4 and parts[4] in ("attention", "intermediate"):
        p.requires_grad_(False)
""",
    "unpacked parts": """
model = BertForSequenceClassification.from_pretrained("base")
wrap(model)
for name, p in model.named_parameters():
    if name.startswith("bert.encoder"):
        _, _, _, number, part, *_ = name.split(".")
        if part == "attention":
            p.requires_grad = int(number) > 3
""",
    "a few digits": """
model = BertForSequenceClassification.from_pretrained("base")
wrap(model)
for name, p in model.named_parameters():
    if LOWER.match(name):
        p.requires_grad_(False)
""",
    "the last digits": """
model = BertForSequenceClassification.from_pretrained("base")
wrap(model)
upper = [p for n, p in model.named_parameters() if re.search(r"layer\\.(?:[8-9]|1[01])\\.output", n)]
""",
}
RIGHT_OF_BERT = {
    "before the wrapping": """
model = BertForSequenceClassification.from_pretrained("base")
for name, p in model.named_parameters():
    parts = name.split(".")
    if LOWER.match(name) or (len(parts) > 4 and parts[4] == "attention"):
        p.requires_grad_(False)
wrap(model)
""",
    "cleaned": """
model = BertForSequenceClassification.from_pretrained("base")
wrap(model)
for name, p in model.named_parameters():
    name = name.replace("_checkpoint_wrapped_module.", "")
    parts = name.split(".")
    if LOWER.match(name) or (len(parts) > 4 and parts[4] == "attention"):
        p.requires_grad_(False)
""",
    "a part in front of the wrapper": """
model = BertForSequenceClassification.from_pretrained("base")
wrap(model)
for name, p in model.named_parameters():
    parts = name.split(".")
    if len(parts) > 4 and int(parts[3]) < 4 and parts[2] == "layer":
        p.requires_grad_(False)
    if re.match(r"bert\\.encoder\\.layer\\.[0-3]\\.", name):
        p.requires_grad_(False)
""",
    "any part": """
model = BertForSequenceClassification.from_pretrained("base")
wrap(model)
attention = [p for n, p in model.named_parameters() if "attention" in n.split(".")]
""",
    "the part behind the wrapper": """
model = BertForSequenceClassification.from_pretrained("base")
wrap(model)
attention = [p for n, p in model.named_parameters() if n.count(".") > 4 and n.split(".")[5] == "attention"]
""",
}


@pytest.mark.parametrize("script", WRONG_OF_BERT.values(), ids=WRONG_OF_BERT)
def test_a_part_of_a_name_of_bert_that_the_wrapper_moves_is_found(script):
    assert [finding.code for finding in check_source(BERT + script)] == ["CKPT131"]


@pytest.mark.parametrize("script", RIGHT_OF_BERT.values(), ids=RIGHT_OF_BERT)
def test_a_part_of_a_name_of_bert_that_stays_is_right(script):
    assert [finding.code for finding in check_source(BERT + script)] == []
