"""Flags on finished models of transformers, however the program comes to the model: nothing is checkpointed, as runs show."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

HEAD = """
import torch
from torch import nn
from peft import LoraConfig, get_peft_model
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, PreTrainedModel, Trainer, TrainingArguments

def build():
    sizes = dict(vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
    return LlamaForCausalLM(LlamaConfig(**sizes)).train()

"""
#: What makes `model`, the model of transformers, with the flag set.
WRONG = {
    "tuple": """
def load():
    return build(), 1
model, size = load()
model.config.gradient_checkpointing = True
""",
    "dict": 'model = {"model": build()}["model"]\nmodel.config.gradient_checkpointing = True\n',
    "alias": "model = build()\nconfig = model.config\nconfig.gradient_checkpointing = True\n",
    "setattr": 'model = build()\nsetattr(model.config, "gradient_checkpointing", True)\n',
    "of a part": "model = build()\nmodel.model.config.gradient_checkpointing = True\n",
    "attribute": """
class Fit:
    def __init__(self):
        self.model = None
    def load(self):
        self.model = build()
        self.model.config.gradient_checkpointing = True
fit = Fit()
fit.load()
model = fit.model
""",
    "wrapper": """
class Net(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
net = Net(build())
net.inner.config.gradient_checkpointing = True
model = net.inner
""",
    "parameter": """
def setup(given):
    given.config.gradient_checkpointing = True
    return given
model = setup(build())
""",
    "overwritten": "model = build()\nmodel.gradient_checkpointing_enable = True\n",
    "overwritten by the new name": "model = build()\nmodel.activation_checkpointing_enable = 1\n",
    "overwritten by setattr": 'model = build()\nsetattr(model, "gradient_checkpointing_enable", True)\n',
    "overwritten on an adapter's model": """
model = get_peft_model(build(), LoraConfig(target_modules=["q_proj"]))
model.gradient_checkpointing_enable = True
""",
    "overwritten in a class": """
class Chat:
    def __init__(self):
        self.model = None
    def load(self):
        self.model = build()
        self.model.gradient_checkpointing_enable = True
chat = Chat()
chat.load()
model = chat.model
""",
    "overwritten through the Trainer": """
model = build()
trainer = Trainer(model, TrainingArguments("out", report_to="none"))
trainer.model.gradient_checkpointing_enable = True
""",
}
RIGHT = {
    "called": "model = build()\nmodel.config.gradient_checkpointing = True\nmodel.gradient_checkpointing_enable()\n",
    "patched": """
from functools import partial
model = build()
enable = partial(model.gradient_checkpointing_enable, gradient_checkpointing_kwargs={"use_reentrant": False})
model.gradient_checkpointing_enable = enable
model.gradient_checkpointing_enable()
""",
    "a flag of a class of its own": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gradient_checkpointing_enable = False
        self.inner = build()
    def start(self):
        if self.gradient_checkpointing_enable:
            self.inner.gradient_checkpointing_enable()
net = Net()
net.gradient_checkpointing_enable = True
net.start()
model = net.inner
""",
}
#: Programs that cannot run here: they lack a module, or arguments.
UNSEEN = {
    "given back": """
from own_package import load_weights
def load(path):
    model = build()
    if path:
        model = load_weights(path, model)
    model.config.gradient_checkpointing = True
""",
    "given back with what holds it": """
from own_package import load_weights
class Net(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
def load(path):
    net = Net(build())
    if path:
        net = load_weights(path, model=net)
    net.inner.config.gradient_checkpointing = True
""",
    "a Trainer that cannot ask": """
class Joint(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
model = build()
model.config.gradient_checkpointing = True
args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(Joint(model), args).train()
""",
}
OPEN = {
    "a Trainer that may ask": """
model = build()
model.config.gradient_checkpointing = True
args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(model, args).train()
""",
    "a wrapper that hands it on": """
class Joint(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    def gradient_checkpointing_enable(self, gradient_checkpointing_kwargs=None):
        self.inner._set_gradient_checkpointing(True)
model = build()
model.config.gradient_checkpointing = True
args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(Joint(model), args).train()
""",
    "another model": """
from own_package import other_model
def load(path):
    model = other_model(path) if path else build()
    model.config.gradient_checkpointing = True
""",
    "any object": "def setup(model):\n    model.gradient_checkpointing_enable = True\n",
}


def codes(program: str) -> list[str]:
    return [finding.code for finding in check_source(HEAD + program, "train.py")]


def runs_of_a_layer(program: str) -> int:
    scope: dict[str, object] = {}
    exec(HEAD + program + COUNT, scope)
    return len(scope["count"])


COUNT = """
count = []
layer = next(part for name, part in model.named_modules() if name.endswith("layers.0.mlp"))
layer.register_forward_pre_hook(lambda *_: count.append(1))
ids = torch.ones(1, 4, dtype=torch.long)
model.train()(input_ids=ids, labels=ids).loss.backward()
"""


@pytest.mark.parametrize("program", WRONG.values(), ids=WRONG)
def test_nothing_is_checkpointed(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert codes(program) == ["CKPT205"]
    assert runs_of_a_layer(program) == 1


@pytest.mark.parametrize("program", RIGHT.values(), ids=RIGHT)
def test_layers_run_again(program):
    assert codes(program) == []
    assert runs_of_a_layer(program) == 2


@pytest.mark.parametrize("program", UNSEEN.values(), ids=UNSEEN)
def test_what_the_program_does_not_show_cannot_change_it(program):
    assert codes(program) == ["CKPT205"]


@pytest.mark.parametrize("program", OPEN.values(), ids=OPEN)
def test_what_is_open_is_left_alone(program):
    assert codes(program) == []


def test_what_calls_the_overwritten_method_raises():
    scope: dict[str, object] = {}
    exec(HEAD + WRONG["overwritten"], scope)
    with pytest.raises(TypeError, match="'bool' object is not callable"):
        scope["model"].gradient_checkpointing_enable()


#: Read in transformers 4.53 and 5.23, and run in the latter: the stack leaves its flag alone.
PLAIN_STACKS = {
    "pictures": 'from transformers import Dinov2Model\nmodel = Dinov2Model.from_pretrained("facebook/dinov2-base")',
    "built": "from transformers import Dinov2Config, Dinov2Model\nmodel = Dinov2Model(Dinov2Config())",
    "windows": "from transformers import SwinConfig, SwinModel\nmodel = SwinModel(SwinConfig())",
    "video": 'from transformers import VideoMAEModel\nmodel = VideoMAEModel.from_pretrained("MCG-NJU/videomae-base")',
    "sound": 'from transformers import Wav2Vec2Model\nmodel = Wav2Vec2Model.from_pretrained("own/wav2vec2")',
    "speech": 'from transformers import WhisperModel\nmodel = WhisperModel.from_pretrained("openai/whisper-tiny")',
    "by its weights": 'from transformers import AutoModel\nmodel = AutoModel.from_pretrained("facebook/dinov2-large")',
    "module": "from transformers.models.dinov2.modeling_dinov2 import Dinov2Model\nmodel = Dinov2Model(config)",
}
SET = "\nmodel.encoder.gradient_checkpointing = True\n"


@pytest.mark.parametrize("made", PLAIN_STACKS.values(), ids=PLAIN_STACKS)
def test_an_encoder_of_pictures_or_sound_does_not_read_its_flag(made):
    assert codes(made + SET) == ["CKPT205"]
    assert codes(f"{made}{SET}model.gradient_checkpointing_enable()\n") == []
    asks = "def run(x):\n    return x if model.encoder.gradient_checkpointing else model(x)\n"
    assert codes(f"{made}{SET}{asks}") == []


def test_an_encoder_of_weights_that_are_not_known_is_left_alone():
    assert codes(f'from transformers import AutoModel\nmodel = AutoModel.from_pretrained("own/model"){SET}') == []


#: Models with a head, and the name under which they keep the model itself.
WITH_HEADS = {
    "VideoMAEForVideoClassification": "videomae",
    "Dinov2ForImageClassification": "dinov2",
    "SwinForImageClassification": "swin",
    "Wav2Vec2ForCTC": "wav2vec2",
    "HubertForSequenceClassification": "hubert",
}


@pytest.mark.parametrize("name", WITH_HEADS)
def test_the_encoder_below_a_head_does_not_read_its_flag(name):
    made = f'from transformers import {name}\nmodel = {name}.from_pretrained("own")\n'
    assert codes(f"{made}model.{WITH_HEADS[name]}.encoder.gradient_checkpointing = True\n") == ["CKPT205"]
    assert codes(f"{made}model.{WITH_HEADS[name]}.encoder.layerdrop = 0.0\n") == []
