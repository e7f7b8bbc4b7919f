"""One hop of local imports: the model in one file, the arguments in another, the training script in a third."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.facts.imported.local import LocalModule
from hf_ckpt.lint.project.local_modules import LocalModules, unchanged

MODEL = """
    import torch.nn as nn
    from transformers import AutoModelForCausalLM

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(8)

        def forward(self, x):
            return self.norm(x)

    def build(name):
        model = AutoModelForCausalLM.from_pretrained(name)
        model.gradient_checkpointing_enable({"use_reentrant": True})
        return model
"""
ARGUMENTS = """
    from transformers import TrainingArguments

    KWARGS = {"early_stop": False}

    def arguments():
        return TrainingArguments("out", activation_checkpointing=True)
"""


def finder(**modules: str):
    def find(name: str):
        text = modules.get(name.lstrip("."))
        return None if text is None else LocalModule(f"{name.lstrip('.')}.py", textwrap.dedent(text))

    return find


def codes(text: str, **modules: str):
    found = check_source(textwrap.dedent(text), "train.py", find_module=finder(**modules))
    return [(finding.span.line, finding.code) for finding in found]


def test_a_class_of_another_file_is_looked_into():
    text = """
        from torch.utils.checkpoint import checkpoint
        from model import Block
        block = Block()
        y = checkpoint(block, x, use_reentrant=False)
    """
    assert codes(text, model=MODEL) == [(5, "CKPT106")]
    assert codes(text) == []


def test_a_constant_of_another_file_is_known():
    text = """
        from torch.utils.checkpoint import checkpoint
        import arguments as config
        y = checkpoint(f, x, **config.KWARGS)
    """
    assert codes(text, arguments=ARGUMENTS) == [(4, "CKPT101")]
    assert codes(text) == []


def test_an_object_built_in_another_file_keeps_its_class():
    text = """
        from .arguments import arguments
        args = arguments()
        args.gradient_checkpointing = False
    """
    assert codes(text, arguments=ARGUMENTS) == [(4, "CKPT201")]


def test_a_wrapper_of_another_file_is_followed():
    wrapper = """
        from torch.utils.checkpoint import checkpoint as inner
        def checkpoint(function, *args):
            return inner(function, *args, use_reentrant=False)
    """
    text = """
        from utils import checkpoint
        y = checkpoint(block, x)  # gradient_checkpointing
    """
    assert codes(text, utils=wrapper) == []


def test_findings_that_lie_in_another_file_belong_to_that_file():
    text = """
        from transformers import Trainer
        from arguments import arguments
        from model import build
        Trainer(model=build("m"), args=arguments()).train()
    """
    assert codes(text, model=MODEL, arguments=ARGUMENTS) == []
    find = finder(model=MODEL, arguments=ARGUMENTS)
    (finding,) = check_source(textwrap.dedent(text), "train.py", find_module=find, reported=lambda name: True)
    assert (finding.code, finding.filename, finding.span.line) == ("CKPT202", "model.py", 15)
    assert [(note.filename, note.span.line) for note in finding.notes] == [("arguments.py", 7), ("train.py", 5)]


def test_modules_are_followed_three_hops_deep():
    chain = {"a": "b", ".b": "c", "b": "c", "c": "d", "d": "e"}
    asked = []

    def find(name: str):
        asked.append(name)
        if name not in chain:
            return None
        return LocalModule(f"{name}.py", f"import {chain[name]}\nfrom torch.utils.checkpoint import checkpoint\n")

    check_source("import a\na.model.checkpointing_enable()\n", "train.py", find_module=find)
    assert asked == ["a", "b", "c"]


def test_packages_are_no_hops():
    modules = {
        "net": "from layers import Res\n\ndef build():\n    return Res()\n",
        "layers": "from .conv import Res\n",
        "layers.conv": """
            import torch.nn as nn
            from .base import Checkpointed

            class Res(Checkpointed):
                def __init__(self):
                    super().__init__()
                    self.norm = nn.Sequential(nn.Conv1d(8, 8, 3, padding=1), nn.BatchNorm1d(8))

                def _forward(self, x):
                    return x + self.norm(x)
        """,
        "layers.base": """
            import torch.nn as nn
            from torch.utils.checkpoint import checkpoint

            class Checkpointed(nn.Module):
                def forward(self, x):
                    return checkpoint(self._forward, x, use_reentrant=False)
        """,
    }

    def find(name: str):
        text = modules.get(name)
        filename = name.replace(".", "/") + ("/__init__.py" if name == "layers" else ".py")
        return None if text is None else LocalModule(filename, textwrap.dedent(text))

    script = "from net import build\n\nnet = build()\nnet.train()\nnet(x).sum().backward()\n"
    (finding,) = check_source(script, "train.py", find_module=find, reported=lambda name: True)
    assert (finding.code, finding.filename) == ("CKPT106", "layers/base.py")


def test_modules_that_import_each_other_end():
    def find(name: str):
        text = f"import {'b' if name == 'a' else 'a'}\nfrom torch.utils.checkpoint import checkpoint\n"
        return LocalModule(f"{name}.py", text)

    check_source("import a\na.model.checkpointing_enable()\n", "train.py", find_module=find)


def test_names_in_a_module_are_relative_to_it():
    modules = {
        "models.build": "from .net import Net\n\ndef build():\n    return Net()\n",
        "models.net": textwrap.dedent("""
            import torch.nn as nn
            from torch.utils.checkpoint import checkpoint

            class Net(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)])

                def forward(self, x):
                    for layer in self.layers:
                        x = checkpoint(layer, x, use_reentrant=True)
                    return x
        """),
    }

    def find(name: str):
        return LocalModule(f"{name.replace('.', '/')}.py", modules[name]) if name in modules else None

    script = "from models.build import build\nfrom torch.distributed.fsdp import FullyShardedDataParallel as FSDP\nFSDP(build())\n"
    found = check_source(script, "train.py", find_module=find, reported=lambda filename: True)
    assert [(finding.code, finding.filename) for finding in found] == [("CKPT302", "models/net.py")]


@pytest.mark.parametrize("text", ["def (:", "\0", "import train\n"])
def test_a_module_that_cannot_be_read_is_no_module(text):
    assert codes("from broken import f\nf()  # checkpointing_enable\n", broken=text) == []


def test_modules_are_found_next_to_the_file_and_in_its_package(tmp_path):
    package = tmp_path / "project" / "package"
    (package / "inner").mkdir(parents=True)
    for folder in (package, package / "inner"):
        (folder / "__init__.py").write_text("")
    (package / "model.py").write_text("x = 1\n")
    (package / "inner" / "train.py").write_text("")
    find = LocalModules(str(package / "inner" / "train.py"))
    assert find("..model").text == find("package.model").text == "x = 1\n"
    assert find(".model") is None
    assert find("model") is None
    assert find("torch") is None
    beside = LocalModules(str(package / "script.py"))
    assert beside("model").text == "x = 1\n"


@pytest.mark.parametrize(
    ("folder", "name"), [("models", "models.parts"), ("tools", "models.parts"), (".", "models.parts")]
)
def test_modules_are_found_in_folders_that_are_no_packages(tmp_path, folder, name):
    for path in ("models", "tools"):
        (tmp_path / path).mkdir()
    (tmp_path / "models/parts.py").write_text("value = 1\n")
    (tmp_path / "neighbour.py").write_text("value = 2\n")
    find = LocalModules(str(tmp_path / folder / "script.py"))
    assert find(name).text == "value = 1\n"
    assert find("neighbour").text == "value = 2\n"
    assert find("models.missing") is None


def test_what_stands_next_to_the_file_comes_before_what_stands_above(tmp_path):
    (tmp_path / "tools").mkdir()
    (tmp_path / "parts.py").write_text("value = 1\n")
    (tmp_path / "tools/parts.py").write_text("value = 2\n")
    assert LocalModules(str(tmp_path / "tools/script.py"))("parts").text == "value = 2\n"


def test_a_cached_result_depends_on_what_was_read_and_on_what_was_not_there(tmp_path):
    model = tmp_path / "model.py"
    find = LocalModules(str(tmp_path / "train.py"))
    assert find("model") is None
    assert unchanged(find.consulted)
    model.write_text("x = 1\n")
    assert not unchanged(find.consulted)
    again = LocalModules(str(tmp_path / "train.py"))
    assert again("model") is not None
    assert unchanged(again.consulted)
    model.write_text("x = 2\n")
    assert not unchanged(again.consulted)


BUILT_PER_CALL = """
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self, dim, norm="ln"):
        super().__init__()
        if norm == "ln":
            self.norm = nn.LayerNorm(dim)
        else:
            self.norm = lambda x: nn.BatchNorm1d(dim)(x)

    def forward(self, x):
        return self.norm(x)

class Net(nn.Module):
    def __init__(self, norm="ln"):
        super().__init__()
        self.blocks = nn.ModuleList([Block(8, norm) for _ in range(3)])

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x

def small(norm):
    return Net(norm)

def large(norm):
    return Net(norm)
"""


def test_a_norm_that_is_built_in_every_call_has_no_statistics_however_often_its_function_is_evaluated():
    script = "from blocks import small, large  # checkpointing_enable\n" + "".join(
        f"def build{number}(name, norm):\n    return small(norm) if name == 'small' else large(norm)\n"
        for number in range(2)
    )
    assert check_source(script, "train.py", find_module=finder(blocks=BUILT_PER_CALL), reported=lambda name: True) == []


FLAGS = {
    "a flag of the module": """
        on = False
        def switch(value):
            global on
            on = value
        def get():
            return on
    """,
    "a field that a context manager sets and puts back": """
        import threading
        from contextlib import contextmanager
        state = threading.local()
        state.on = False
        @contextmanager
        def switched(value=True):
            try:
                old, state.on = state.on, value
                yield
            finally:
                state.on = old
        def get():
            return getattr(state, "on", False)
    """,
}
_GUARDED = """
        import torch.utils.checkpoint
        {head}
        def run(function, *args):
            if {flag}:
                return torch.utils.checkpoint.checkpoint(function, *args)
            return function(*args)
"""


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
def test_a_flag_that_functions_switch_is_open(flags: str):
    elsewhere = _GUARDED.format(head="import flags", flag="flags.get()")
    assert [code for _, code in codes(elsewhere, flags=flags)] == ["CKPT101"]
    here = textwrap.dedent(flags) + textwrap.dedent(_GUARDED.format(head="", flag="get()"))
    assert [code for _, code in codes(here)] == ["CKPT101"]


def test_a_flag_that_nothing_switches_decides():
    elsewhere = _GUARDED.format(head="import flags", flag="flags.get()")
    assert codes(elsewhere, flags="on = False\ndef get():\n    return on\n") == []


@pytest.mark.parametrize(("family", "found"), [("Llama", ["CKPT208"]), ("Mistral", [])])
def test_a_check_that_another_file_has_by_name_asks_for_layers(family, found):
    parallel = f"""
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
        from transformers.models.{family.lower()}.modeling_{family.lower()} import {family}DecoderLayer

        check_fn = lambda module: isinstance(module, {family}DecoderLayer)

        def wrap(model):
            apply_activation_checkpointing(model, check_fn=check_fn)
    """
    text = """
        from torch.distributed.fsdp import FullyShardedDataParallel
        from transformers import AutoModelForCausalLM
        from parallel import wrap
        model = AutoModelForCausalLM.from_pretrained("mistralai/Mistral-7B-v0.3")
        wrap(model)
    """
    find = finder(parallel=parallel)
    checked = check_source(textwrap.dedent(text), "train.py", find_module=find, reported="parallel.py".__eq__)
    assert [finding.code for finding in checked] == found


@pytest.mark.parametrize(("given", "found"), [("set_eval", []), ("show", [(7, "CKPT106")])])
def test_a_function_of_another_file_that_is_given_away_is_looked_into(given, found):
    """What `apply` calls with each module keeps the statistics of the norm."""
    text = f"""
        from torch.utils.checkpoint import checkpoint
        from model import Block
        from callbacks import set_eval, show
        block = Block().train()
        block.apply({given})
        y = checkpoint(block, x, use_reentrant=False)
    """
    callbacks = """
        def set_eval(module):
            if "BatchNorm" in type(module).__name__:
                module.eval()

        def show(module):
            print(module)
    """
    assert codes(text, model=MODEL, callbacks=callbacks) == found


@pytest.mark.parametrize(("asked", "found"), [("module is model.Block", True), ("type(module) is model.Block", False)])
def test_a_check_names_a_class_by_its_module(asked, found):
    text = f"""
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
        import model
        def wrap(net):
            apply_activation_checkpointing(net, check_fn=lambda module: {asked})
    """
    assert ("CKPT208" in [code for _, code in codes(text, model=MODEL)]) is found


OPTIONS_FILES = {
    "dataclass": """
        from dataclasses import dataclass, field
        @dataclass
        class Recompute:
            check: str = "none"
        @dataclass
        class Options:
            recompute: Recompute = field(default_factory=Recompute)
    """,
    "constants": """
        CHECK = "none"
    """,
    "namespace": """
        from types import SimpleNamespace
        options = SimpleNamespace(recompute=SimpleNamespace(check="none"))
    """,
    "named tuple": """
        from typing import NamedTuple
        class Recompute(NamedTuple):
            check: str = "none"
        class Options(NamedTuple):
            recompute: Recompute = Recompute()
    """,
}
OPTIONS_USED = {
    "dataclass": ("Options", "Options()", "options.recompute.check"),
    "constants": ("CHECK", "CHECK", "options"),
    "namespace": ("options", "options", "options.recompute.check"),
    "named tuple": ("Options", "Options()", "options.recompute.check"),
}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("given", [*OPTIONS_FILES])
def test_options_of_another_file_are_known_though_the_model_imports_them_first(given, first):
    imported, made, asked = OPTIONS_USED[given]
    model = f"""
        from torch import nn
        from torch.utils.checkpoint import checkpoint
        from settings import {imported}
        class Net(nn.Module):
            def __init__(self, options):
                super().__init__()
                self.options, self.block = options, nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
            def forward(self, x):
                options = self.options
                return checkpoint(self.block, x, use_reentrant=False, determinism_check={asked})
    """
    imports = [f"from settings import {imported}", "from model import Net"]
    text = "\n".join([*(imports[::-1] if first else imports), f"Net({made})(x).mean().backward()"])
    found = check_source(
        text, "train.py", find_module=finder(model=model, settings=OPTIONS_FILES[given]), reported=lambda _: True
    )
    assert [it.code for it in found] == ["CKPT124"]
    mended = OPTIONS_FILES[given].replace('"none"', '"default"')
    assert not check_source(text, "train.py", find_module=finder(model=model, settings=mended), reported=lambda _: True)
