"""The prefilter loses nothing: with and without it the findings are the same."""

import os
from importlib.util import find_spec

import pytest
from hf_ckpt.lint.analysis import check_text as core
from hf_ckpt.lint.catalogue.rules import all_rules
from hf_ckpt.lint.facts.interpreter.program import read_program
from hf_ckpt.lint.model.conditions.versions import Versions
from hf_ckpt.lint.model.events import (
    AcceleratePrepare,
    Backward,
    Checkpointing,
    FsdpPlugin,
    GradientSwitchCall,
    GradientSwitchWrite,
    TrainerArgs,
)
from hf_ckpt.lint.model.needs import one_of, together, triggers
from hf_ckpt.lint.model.run import Run
from hf_ckpt.lint.prefilter.candidates import in_search_order
from hf_ckpt.lint.prefilter.code import code_of
from hf_ckpt.lint.prefilter.file_gate import gate, may_have_findings
from hf_ckpt.lint.prefilter.words import Words
from hf_ckpt.lint.project.settings import Settings
from hf_ckpt.lint.rules import load_rules

#: Packages whose sources are real uses of the libraries the rules know.
PACKAGES = ("accelerate", "peft", "trl")


def examples():
    return [block.partition("```")[0] for rule in all_rules() for block in rule.page.split("```python\n")[1:]]


def sources(package, every):
    spec = find_spec(package)
    if spec is None:
        pytest.skip(f"{package} is not installed")
    [root] = spec.submodule_search_locations
    paths = sorted(os.path.join(top, name) for top, _, names in os.walk(root) for name in names)
    for path in [path for path in paths if path.endswith(".py")][::every]:
        with open(path, encoding="utf-8") as file:
            yield file.read()


def assert_lossless(texts, monkeypatch):
    count = 0
    for text in texts:
        with_filter = core.check_source(text) if may_have_findings(text.encode(), every=False) else []
        with monkeypatch.context() as patch:
            patch.setattr(core, "candidates", lambda text, every: list(load_rules()))
            without = core.check_source(text)
        # A file that cannot hold a mistake is not parsed, so it is not said to be unparsable either.
        assert with_filter == [finding for finding in without if with_filter or finding.code != "CKPT903"]
        count += len(without)
    return count


def test_on_the_examples_of_all_rules(monkeypatch):
    assert assert_lossless(examples(), monkeypatch) >= len(load_rules())


@pytest.mark.parametrize("package", PACKAGES)
def test_on_some_real_sources(package, monkeypatch):
    assert_lossless(sources(package, every=10), monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("package", [*PACKAGES, "transformers"])
def test_on_all_real_sources(package, monkeypatch):
    assert_lossless(sources(package, every=1), monkeypatch)


@pytest.mark.parametrize(
    "imports",
    [
        "from torch.utils import checkpoint",
        "from torch.utils import data, checkpoint as ckpt",
        "from torch.utils import (\n    data,\n    checkpoint,\n)",
        "from torch.utils import data, \\\n    checkpoint",
        "import torch.utils.checkpoint as ckpt",
    ],
)
def test_every_way_to_import_the_module_counts_as_its_name(imports):
    assert may_have_findings(f"{imports}\n".encode())


@pytest.mark.parametrize(
    "imports", ["from .utils import save_checkpoint", "from utils import (a, b)\ncheckpoint = 1", "import torch.utils"]
)
def test_another_import_from_utils_does_not(imports):
    assert not may_have_findings(f"{imports}\n".encode())


def test_rules_that_are_off_count_only_where_rules_are_selected():
    text = b"gradient_checkpointing = True\n"
    assert may_have_findings(text, every=True)
    assert not may_have_findings(text, every=False)


@pytest.mark.parametrize(
    "imports",
    [
        "from trl import SFTConfig",
        "import trl",
        "import torch, trl",
        "import torch, \\\n    trl",
        "if True: import trl.trainer as t",
        "from trl.trainer.sft_config import SFTConfig as Config",
    ],
)
def test_arguments_of_an_imported_trl_count(imports):
    assert may_have_findings(f"{imports}\nargs = Config(activation_checkpointing_kwargs={{}})\n".encode())


@pytest.mark.parametrize(
    "mention", ['"""\n>>> from trl import SFTConfig\n"""', "from .sft_config import SFTConfig\n# trl"]
)
def test_those_of_a_trl_that_is_only_mentioned_do_not(mention):
    assert not may_have_findings(f"{mention}\nConfig.gradient_checkpointing_kwargs\n".encode(), every=False)


@pytest.mark.parametrize(
    ("read", "counts"),
    [
        ("layers", True),
        ("h[0]", True),
        ("layers.0.norm", False),
        ("layer_norm", False),
        ("modules() if isinstance(layer, modeling_llama.LlamaDecoderLayer)", True),
        ("modules() if isinstance(layer, T5Block)", True),
        ("modules() if isinstance(layer, nn.Linear)", False),
    ],
)
def test_patching_counts_where_the_layers_of_a_model_are_read(read, counts):
    text = f"import transformers\nfor layer in model.{read}:\n    layer.forward = new\n"
    assert may_have_findings(text.encode()) is counts


@pytest.mark.parametrize(
    ("call", "counts"),
    [
        ("AutoModel.from_pretrained(name, gradient_checkpointing=True)", True),
        ("AutoModel.from_config(\n    make(name),  # a :)\n    activation_checkpointing_kwargs = {},\n)", True),
        ("AutoModel.from_pretrained('a)', gradient_checkpointing=True)", True),
        ("load = AutoModel.from_pretrained\nload(name, gradient_checkpointing=True)", True),
        ("AutoModel.from_pretrained(name)\nArguments(gradient_checkpointing=True)", False),
        ("AutoModel.from_pretrained(name, on=args.gradient_checkpointing)", False),
        ("# as `AutoModel.from_pretrained` does\nArguments(gradient_checkpointing=True)", False),
    ],
)
def test_switches_of_a_model_count_where_its_maker_is_called_with_one(call, counts):
    assert may_have_findings(f"from transformers import AutoModel\n{call}\n".encode(), every=False) is counts


@pytest.mark.parametrize(
    ("mention", "counts"),
    [
        ("Trainer(model, args)", True),
        ("make = partial(SFTTrainer, args=args)", True),
        ("kind = getattr(trl, 'SFTTrainer')", True),
        ("class Own(transformers.Trainer): pass", True),
        ('"""Arguments of [`SFTTrainer`]."""', False),
        ("trainer = TrainerCallback()", False),
    ],
)
def test_a_trainer_counts_where_code_names_it(mention, counts):
    text = f"from torch.nn import Module\nargs = TrainingArguments(gradient_checkpointing=True)\n{mention}\n"
    assert may_have_findings(text.encode(), every=False) is counts


@pytest.mark.parametrize(
    ("name", "counts"), [("MPNetModel", True), ("microsoft/resnet-50", True), ("LlamaModel", False), ("x", False)]
)
def test_a_trainer_without_modules_counts_where_a_model_without_checkpointing_is_named(name, counts):
    text = f"from transformers import *\nTrainer(make('{name}'), TrainingArguments(gradient_checkpointing=True))\n"
    assert may_have_findings(text.encode(), every=False) is counts


def test_one_of_several_words_is_enough():
    assert one_of(("AlbertModel", "BitModel", "AlbertForMaskedLM", "BitBackbone")) == "Albert|BitBackbone|BitModel"
    assert Words("import BitModel").contains(one_of(("AlbertModel", "BitModel")))
    assert not Words("import Bit").contains(one_of(("AlbertModel", "BitModel")))


def test_what_is_in_one_of_several_words_is_asked_of_no_other():
    several = one_of(("AlbertModel", "BitConfig"))
    assert "Config" not in in_search_order(((several, "x"), ("Config",), ("Config", "y")))[0]


def test_calls_that_are_never_closed_are_looked_at_once():
    text = "import transformers\n" + "Model.from_pretrained(\n" * 20_000 + "checkpointing="
    assert may_have_findings(text.encode())


def test_a_configuration_stands_for_a_program_with_arguments(tmp_path):
    text = b"gradient_checkpointing_kwargs:\n  use_reentrant: 'no'\n"
    settings = Settings(root=str(tmp_path))
    assert gate("args.yaml", text, settings).needed
    assert not gate("args.py", text, settings).needed


def _has_words(text, event):
    return any(Words(code_of(text)).contains(trigger) for trigger in triggers([type(event)]))


def test_arguments_that_another_file_declares_count_where_they_are_parsed(tmp_path):
    declared = "from transformers import TrainingArguments\n\nclass Mine(TrainingArguments):\n    lr: float = 1e-4\n"
    (tmp_path / "mine.py").write_text(declared)
    script = (
        "from transformers import HfArgumentParser\nfrom mine import Mine\nfrom runs import run\n\n"
        "(args,) = HfArgumentParser(Mine).parse_args_into_dataclasses()\n"
        "args.gradient_checkpointing_kwargs = {}\nrun(args)\n"
    )
    settings = Settings(root=str(tmp_path))
    assert gate(str(tmp_path / "train.py"), script.encode(), settings).needed
    (tmp_path / "mine.py").write_text("class Mine:\n    lr: float = 1e-4\n")
    assert not gate(str(tmp_path / "train.py"), script.encode(), settings).needed


def test_what_happens_in_a_file_is_in_its_words():
    happened = set()
    for text in examples():
        try:
            run = Run(read_program(text, "example.py"), Versions({}))
        except SyntaxError:
            continue
        missed = [event for event in run.events if not _has_words(text, event)]
        assert not [event for event in missed if type(event).words], text
        happened |= {type(event) for event in run.events}
    assert {Backward, GradientSwitchCall, GradientSwitchWrite, AcceleratePrepare, FsdpPlugin, TrainerArgs} <= happened


def test_an_event_without_words_of_its_own_has_those_of_its_kinds():
    assert set(triggers([Checkpointing])) == {
        "utils.checkpoint",
        "checkpoint_wrapper",
        "apply_activation_checkpointing",
        ("activation_checkpointing", "FSDPStrategy"),
        ("deepspeed", "module checkpointing"),
        "_manipulate",
        "timm.models import checkpoint",
        "checkpoint_seq",
    }
    assert triggers(together("offload", Checkpointing))[0] == ("offload", "utils.checkpoint")


@pytest.mark.parametrize(
    "imports",
    [
        "from deepspeed import checkpointing",
        "from deepspeed import (\n    comm,\n    checkpointing as ckpt,\n)",
        "from deepspeed import comm, \\\n    checkpointing",
        "import deepspeed as ds\ncheckpoint = ds.checkpointing.checkpoint",
        "import deepspeed\nckpt = getattr(deepspeed, 'checkpointing')",
        "from deepspeed.runtime.activation_checkpointing.checkpointing import checkpoint",
        "from deepspeed import *\ncheckpointing.checkpoint(f, x)",
    ],
)
def test_every_way_to_name_a_module_counts(imports):
    assert may_have_findings(f"{imports}\n".encode(), every=False)


@pytest.mark.parametrize(
    "mention", ["hint = 'use gradient checkpointing'", "if gradient_checkpointing: pass", "checkpointing = False"]
)
def test_a_word_that_is_no_module_does_not(mention):
    assert not may_have_findings(f"import deepspeed\n{mention}\n".encode(), every=False)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("import a  # why\n", "import a  \n"),
        ('"""What it is."""\nimport a\n', "\nimport a\n"),
        ('def f(\n    x,  # (\n):\n    r"""What it does."""\n', "def f(\n    x,  \n):\n    r\n"),
        ("class A:\n    x = 1\n    '''It's one.'''\n    y = 2", "class A:\n    x = 1\n    \n    y = 2"),
    ],
)
def test_comments_and_docstrings_are_no_code(text, code):
    assert code_of(text) == code


@pytest.mark.parametrize(
    "text",
    [
        "a = '# no comment'\n",
        'run(\n    """\n    import a  # here too\n    """\n)\n',
        'a = {"key":\n"""value"""}\n',
        'a = \\\n"""value"""\n',
        'a = """one \\""" # two"""\n',
        'a = "\\"# no comment"\n',
        'f"""{run()}"""\n',
        'a = f"{b["#"]}", run()\n',
        "# coding: shift_jis\na = 1  # why\n",
    ],
)
def test_everything_else_is(text):
    assert code_of(text) == text


def test_what_only_comments_and_docstrings_speak_of_is_not_analysed(tmp_path):
    settings, words = Settings(root=str(tmp_path)), "from torch.utils.checkpoint import checkpoint"
    for text, needed in ((words, True), (f"# {words}", False), (f'"""Do {words}."""', False), (f"a = '{words}'", True)):
        assert gate("train.py", text.encode(), settings).needed is needed
        assert gate("README.md", text.encode(), settings).needed


def test_a_comment_with_one_of_our_codes_is_looked_at(tmp_path):
    text = b"import torch.utils.checkpoint  # noqa: CKPT101\n"
    assert gate("train.py", text.replace(b"import", b"# import"), Settings(root=str(tmp_path))).needed


def test_most_files_of_libraries_that_train_are_never_parsed():
    """Reading a program costs a hundred times what a search through its text does: what files must say stays narrow."""
    texts = [text for package in PACKAGES for text in sources(package, every=1)]
    read = [text for text in texts if gate("train.py", text.encode(), Settings()).needed]
    assert 0 < len(read) < len(texts) / 20
