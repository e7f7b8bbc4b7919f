"""What modules of torch hold: the table against the installed torch, and checks that ask for what none of them is."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import warnings

import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.facts.objects.torch_classes import DERIVED
from hf_ckpt.lint.model.known_models.torch_modules import COMPOSITIONS, built_in
from torch import nn

#: Arguments with which the classes of `torch.nn` can be built: the first that fit are taken.
ARGUMENTS = ((), (2,), (2, 2), (2, 2, 2), (4, 2, 2, 2), (2, 4, [2]), (1, (2, 2)))
CLASSES = sorted(
    name for name, kind in inspect.getmembers(nn, inspect.isclass) if issubclass(kind, nn.Module) and name != "RNNBase"
)
#: What these stack is given to them.
STACKED = {"TransformerEncoder": "TransformerEncoderLayer", "TransformerDecoder": "TransformerDecoderLayer"}


def _built(name: str) -> nn.Module:
    if name in STACKED:
        return getattr(nn, name)(getattr(nn, STACKED[name])(4, 2), 1)
    for arguments in ARGUMENTS:
        try:
            return getattr(nn, name)(*arguments)
        except (TypeError, ValueError, AttributeError, AssertionError, NotImplementedError):
            continue
    raise AssertionError(f"no arguments here build a {name}")


def _said(name: str) -> set[str]:
    return {kind.removeprefix("torch.nn.") for kind in built_in(f"torch.nn.{name}")}


def _held(module: nn.Module) -> set[str]:
    """The names of the classes of all modules inside, and those of the public classes that these derive from."""
    kinds = {kind for part in list(module.modules())[1:] for kind in type(part).__mro__}
    derived = {kind.__name__ for kind in kinds if issubclass(kind, nn.Module) and kind is not nn.Module}
    return {name for name in derived if hasattr(nn, name) or name == "NonDynamicallyQuantizableLinear"}


@pytest.mark.parametrize("name", CLASSES)
def test_the_table_is_what_torch_builds(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        held = _held(_built(name))
    given = {STACKED[name], *_said(STACKED[name])} if name in STACKED else set()
    assert _said(name) | given == held


@pytest.mark.parametrize("name", [name for name in COMPOSITIONS if hasattr(nn, name)])
def test_arguments_that_are_held_are_named_as_torch_names_them(name):
    parameters = inspect.signature(getattr(nn, name)).parameters
    for position, argument in COMPOSITIONS[name].holds:
        by_keyword = parameters[argument].kind is inspect.Parameter.KEYWORD_ONLY
        assert by_keyword or list(parameters)[position] == argument


MODEL = """\
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

class Act(nn.Module):
    def forward(self, x):
        return x * x.sigmoid()

class Layer(nn.TransformerEncoderLayer):
    pass

class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.inner = {inner}
        self.mlp = nn.Sequential(nn.GELU(), nn.Conv1d(width, width, 1))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(2)])

model = Net()
apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, {asked}))
"""
LAYER, DECODER, ACTIVE = (
    "nn.TransformerEncoderLayer(width, 2)",
    "nn.TransformerDecoderLayer(8, 2)",
    "nn.TransformerEncoderLayer(8, 2, activation=Act())",
)


@pytest.mark.parametrize(
    ("inner", "asked"),
    [
        ("nn.MultiheadAttention(width, 2)", "nn.TransformerEncoderLayer"),
        ("nn.MultiheadAttention(width, 2)", "Block"),
        ("nn.MultiheadAttention(width, 2)", "nn.Linear"),
        ("nn.MultiheadAttention(width, 2)", "(nn.LSTM, nn.GRU)"),
        ("nn.LSTM(width, 2)", "nn.TransformerEncoderLayer"),
        (LAYER, "nn.MultiheadAttention"),
        (LAYER, "nn.LayerNorm"),
        (LAYER, "nn.TransformerDecoderLayer"),
        (DECODER, "nn.TransformerEncoderLayer"),
        (ACTIVE, "Act"),
        (ACTIVE, "nn.TransformerDecoderLayer"),
        (f"nn.TransformerEncoder({LAYER}, 2)", "nn.TransformerEncoderLayer"),
        (f"nn.TransformerEncoder({LAYER}, 2)", "nn.TransformerDecoderLayer"),
        (f"nn.TransformerEncoder(encoder_layer={LAYER}, num_layers=2, norm=nn.RMSNorm(8))", "nn.RMSNorm"),
        ("nn.Transformer(width, 2)", "nn.TransformerDecoderLayer"),
        ("nn.Transformer(width, 2)", "nn.LSTM"),
        ("nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))", "nn.Linear"),
        ("nn.utils.parametrizations.weight_norm(nn.Linear(8, 8))", "nn.LSTM"),
        ("Layer(8, 2)", "nn.MultiheadAttention"),
    ],
)
def test_a_check_is_called_useless_where_it_wraps_nothing(inner, asked):
    text = MODEL.format(inner=inner, asked=asked)
    names: dict[str, nn.Module] = {}
    exec(text, names)
    wrapped = any(type(part).__name__ == "CheckpointWrapper" for part in names["model"].modules())
    found = [finding.code for finding in check_source(text, "model.py")]
    assert found.count("CKPT208") == (not wrapped)


@pytest.mark.parametrize(
    "inner", ["nn.TransformerEncoder(make(), 2)", "nn.TransformerEncoderLayer(8, 2, activation=make())", "make()"]
)
def test_modules_that_are_not_shown_may_be_the_ones_asked_for(inner):
    text = "from layers import make\n" + MODEL.format(inner=inner, asked="nn.LSTM")
    assert check_source(text, "model.py") == []


def _bases(kind: type) -> set[str]:
    """The names of what ``kind`` derives from in the modules of `torch.nn`."""
    found = {base for base in kind.__bases__ if base.__module__.startswith("torch.nn.modules")}
    return {base.__name__ for base in found - {nn.Module}}


def test_the_table_of_classes_is_that_of_torch():
    modules = [
        importlib.import_module(f"torch.nn.modules.{it.name}") for it in pkgutil.iter_modules(nn.modules.__path__)
    ]
    kinds = {kind for module in modules for kind in vars(module).values() if inspect.isclass(kind)}
    own = [kind for kind in kinds if issubclass(kind, nn.Module) and kind.__module__.startswith("torch.nn.modules")]
    derived = {(base, kind.__name__) for kind in own for base in _bases(kind)}
    assert derived == {(base, name) for base, names in DERIVED.items() for name in names}


OF_BASES = {
    "nn.modules.conv._ConvNd": ("nn.Conv2d(2, 2, 2)", "nn.ConvTranspose1d(2, 2, 2)", "nn.LazyConv3d(2, 2)"),
    "nn.modules.batchnorm._BatchNorm": ("nn.BatchNorm2d(2)", "nn.SyncBatchNorm(2)", "nn.LazyBatchNorm1d()"),
    "nn.modules.batchnorm._NormBase": ("nn.BatchNorm1d(2)", "nn.InstanceNorm2d(2)"),
    "nn.modules.lazy.LazyModuleMixin": ("nn.LazyLinear(2)", "nn.LazyInstanceNorm1d()"),
    "nn.modules.dropout._DropoutNd": ("nn.Dropout(0.1)", "nn.AlphaDropout()"),
    "nn.modules.loss._Loss": ("nn.CrossEntropyLoss()",),
    "nn.Hardtanh": ("nn.ReLU6()",),
    "nn.Linear": ("nn.LazyLinear(2)",),
    "nn.BatchNorm1d": ("nn.LazyBatchNorm1d()",),
    "nn.RNNBase": ("nn.LSTM(2, 2)",),
    "nn.modules.rnn.RNNCellBase": ("nn.GRUCell(2, 2)",),
    "nn.modules.future._Unknown": ("nn.Linear(2, 2)",),
}


def _asks(held: str, asked: str) -> list[str]:
    code = _ASKING.format(held=held, asked=asked)
    return [finding.code for finding in check_source(code) if finding.code == "CKPT208"]


_ASKING = """\
import torch.nn as nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = {held}
        self.act = nn.Sigmoid()

    def forward(self, x):
        return self.act(self.part(x))

apply_activation_checkpointing(Model(), check_fn=lambda module: isinstance(module, {asked}))
"""


@pytest.mark.parametrize(("asked", "held"), [(asked, held) for asked, found in OF_BASES.items() for held in found])
def test_what_derives_from_the_class_asked_for_is_found(asked, held):
    assert _asks(held, asked) == []


@pytest.mark.parametrize("asked", [asked for asked in OF_BASES if not asked.endswith("_Unknown")])
def test_a_base_of_nothing_in_the_model_is_reported(asked):
    assert _asks("nn.Bilinear(2, 2, 2)", asked) == ["CKPT208"]


def test_an_own_class_derives_from_a_base_of_torch():
    own = _ASKING.replace("class Model", "class Own(nn.Conv2d):\n    pass\n\nclass Model")
    assert check_source(own.format(held="Own(2, 2, 2)", asked="nn.modules.conv._ConvNd")) == []


_SKIPPED = """
import torch
from torch import nn
from torch.nn.utils import skip_init
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.part = PART

    def forward(self, x):
        return checkpoint(self.part, x, use_reentrant=False)
"""
_MADE = {
    "skip_init(nn.Linear, 8, 8)": ["CKPT403"],
    "skip_init(nn.Linear, in_features=width, out_features=width, bias=False, device='cpu')": ["CKPT403"],
    "torch.nn.utils.skip_init(torch.nn.Embedding, num_embeddings=9, embedding_dim=width)": ["CKPT403"],
    "nn.Sequential(skip_init(nn.Conv2d, 8, 8, 3), skip_init(nn.BatchNorm2d, 8))": ["CKPT106"],
    "skip_init(nn.LSTM, 8, 8)": [],
    "nn.Sequential(skip_init(nn.Conv2d, 8, 8, 3), nn.ReLU())": [],
}


@pytest.mark.parametrize(("made", "found"), _MADE.items(), ids=_MADE)
def test_skip_init_makes_the_module_that_it_is_given(made, found):
    program = _SKIPPED.replace("PART", made)
    assert [finding.code for finding in check_source(program, "model.py")] == found


COMPARED = """from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
def main(loader, width):
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 2), 2)
    apply_activation_checkpointing(model, check_fn=lambda module: {asked})
    for x in loader:
        model(x).mean().backward()
"""


@pytest.mark.parametrize("asked", ["module in LAYERS", "module is nn.TransformerEncoderLayer"])
def test_a_module_is_none_of_torchs_classes(asked):
    assert [finding.code for finding in check_source(COMPARED.format(asked=asked))] == ["CKPT208"]


@pytest.mark.parametrize("asked", ["type(module) in LAYERS", "module in model.layers", "isinstance(module, LAYERS)"])
def test_a_module_may_be_of_them(asked):
    assert check_source(COMPARED.format(asked=asked)) == []
