"""Options of a command line: what is declared is a default, what the user says is open, what the script says is known."""

from __future__ import annotations

import textwrap

import pytest
from hf_ckpt.lint.analysis.check_text import check_source
from hf_ckpt.lint.facts.interpreter.program import read_program
from hf_ckpt.lint.facts.objects.parsers import Given
from hf_ckpt.lint.facts.values import Const, equals, truth

ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
{0}
args = parser.{1}
print(args.gradient_checkpointing)
"""
DATACLASS = """
from dataclasses import dataclass, field
from transformers import HfArgumentParser, TrainingArguments
from trl import ScriptArguments, SFTConfig, TrlParser

@dataclass
class Extra:
    name: str = "x"

@dataclass
class Args(TrainingArguments):
    gradient_checkpointing: bool = {0}
    gradient_checkpointing_kwargs: dict = field(default_factory=lambda: {{"use_reentrant": True}})

{1}
print(args.gradient_checkpointing)
"""


def probe(code: str):
    calls = read_program(textwrap.dedent(code), "train.py").calls
    return next(call.args[0] for call in calls if call.name == "builtins.print")


@pytest.mark.parametrize(
    ("declared", "default"),
    [
        ('parser.add_argument("--gradient_checkpointing", action="store_true")', False),
        ('parser.add_argument("--gradient-checkpointing", action="store_true")', False),
        ('parser.add_argument("--gc", "-g", dest="gradient_checkpointing", action="store_true")', False),
        ('parser.add_argument("--no_gc", dest="gradient_checkpointing", action="store_false")', True),
        ('parser.add_argument("--gradient_checkpointing", default=True, type=bool)', True),
        ('parser.add_argument("--gradient_checkpointing", action=argparse.BooleanOptionalAction, default=True)', True),
        ('parser.add_argument("--gradient_checkpointing")', None),
        ('parser.add_argument_group("memory").add_argument("--gradient_checkpointing", default=True)', True),
        (
            'parser.add_argument("--gradient_checkpointing", action="store_true")\nparser.set_defaults(gradient_checkpointing=True)',
            True,
        ),
        (
            'def options(p):\n    p.add_argument("--gradient_checkpointing", default=True)\n    return p\nparser = options(parser)',
            True,
        ),
        (
            'import deepspeed\nparser.add_argument("--gradient_checkpointing", default=True)\nparser = deepspeed.add_config_arguments(parser)',
            True,
        ),
    ],
)
def test_a_default_is_known_and_may_be_overridden(declared, default):
    for parse in ("parse_args()", "parse_args(argv)", "parse_known_args()[0]"):
        value = probe(ARGPARSE.format(declared, parse))
        assert isinstance(value, Given)
        assert (truth(value), equals(value, default), value.default.value) == (None, None, default)
    alone = probe(ARGPARSE.format(declared, "parse_args([])"))
    assert isinstance(alone, Const)
    assert alone.value == default


@pytest.mark.parametrize("parse", ["parse_args()", "parse_args(argv)", "parse_known_args()[0]"])
def test_no_word_changes_a_default_without_an_option(parse):
    assert truth(probe(ARGPARSE.format("parser.set_defaults(gradient_checkpointing=True)", parse))) is True


def test_what_the_script_writes_itself_holds():
    declared = 'parser.add_argument("--gradient_checkpointing", action="store_true")'
    text = ARGPARSE.format(declared, "parse_args()\nargs.gradient_checkpointing = True")
    assert truth(probe(text)) is True
    text = ARGPARSE.format(declared, "parse_args()\nif args.save_memory:\n    args.gradient_checkpointing = True")
    assert truth(probe(text)) is None
    assert truth(probe("import argparse\nargs = argparse.Namespace(x=True)\nprint(args.x)")) is True


@pytest.mark.parametrize(
    ("parse", "known"),
    [
        ("args, extra = HfArgumentParser((Args, Extra)).parse_args_into_dataclasses()", None),
        (
            "args, extra, rest = HfArgumentParser((Args, Extra)).parse_args_into_dataclasses(return_remaining_strings=True)",
            None,
        ),
        ("extra, args = TrlParser((Extra, Args)).parse_args_and_config()", None),
        ("extra, args = TrlParser(dataclass_types=[Extra, Args]).parse_args_and_config()", None),
        ("(args,) = HfArgumentParser(Args).parse_json_file('a.json')", None),
        ("args = HfArgumentParser(Args).parse_args_into_dataclasses()[0]", None),
        ("args = HfArgumentParser(Args).parse_dict({'output_dir': 'o'})[0]", True),
        ("args = HfArgumentParser(Args).parse_dict({'gradient_checkpointing': False})[0]", False),
        ("args = HfArgumentParser(Args).parse_args_into_dataclasses([])[0]", True),
        (
            "args = HfArgumentParser(Args).parse_args_into_dataclasses(['--gradient_checkpointing', 'no', '--bf16'])[0]",
            False,
        ),
        (
            "args = HfArgumentParser(Args).parse_args_into_dataclasses(args=['--gradient_checkpointing', '--bf16'])[0]",
            True,
        ),
        ("args = HfArgumentParser(Args).parse_args_into_dataclasses(['--gradient_checkpointing=false'])[0]", False),
        ("args = Args('out')", True),
        ("args = Args('out', gradient_checkpointing=False)", False),
    ],
)
def test_parsers_that_fill_dataclasses(parse, known):
    assert truth(probe(DATACLASS.format(True, parse))) is known


def test_the_default_of_a_dataclass_is_not_certain_for_itself():
    code = """
        from dataclasses import dataclass
        @dataclass
        class Config:
            reentrant: bool = True
            def show(self):
                print(self.reentrant)
    """
    assert truth(probe(code)) is None


FROZEN = """
from dataclasses import dataclass, field
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

@dataclass
class Args(TrainingArguments):
    gradient_checkpointing: bool = True

model = AutoModelForCausalLM.from_pretrained("x")
model.gradient_checkpointing_enable({{"use_reentrant": True}})
args = {0}
Trainer(model, args)
"""


@pytest.mark.parametrize(
    ("args", "codes"),
    [
        ("Args('out')", ["CKPT202"]),
        ("Args('out', gradient_checkpointing=False)", []),
        ("HfArgumentParser(Args).parse_args_into_dataclasses()[0]", []),
        ("HfArgumentParser(Args).parse_args_into_dataclasses([])[0]", ["CKPT202"]),
        ("HfArgumentParser(Args).parse_dict({'output_dir': 'o'})[0]", ["CKPT202"]),
    ],
)
def test_a_rule_claims_only_what_the_command_line_cannot_change(args, codes):
    assert [finding.code for finding in check_source(FROZEN.format(args))] == codes


DECLARED = """
from dataclasses import dataclass, field
from transformers import HfArgumentParser, Trainer, TrainingArguments

@dataclass
class Args(TrainingArguments):
    gradient_checkpointing: bool = {0}
    gradient_checkpointing_kwargs: dict = field(default_factory=lambda: {1})

(args,) = HfArgumentParser(Args).parse_args_into_dataclasses()
Trainer(None, args)
"""


@pytest.mark.parametrize(
    ("switch", "kwargs", "codes"),
    [
        (True, '{"preserve_rng_state": True}', ["CKPT102"]),
        (True, '{"use_reentrant": False}', []),
        (False, '{"preserve_rng_state": True}', []),
    ],
)
def test_a_default_that_is_the_mistake_itself(switch, kwargs, codes):
    assert [finding.code for finding in check_source(DECLARED.format(switch, kwargs))] == codes


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ('default="False"', [(5, "CKPT133")]),
        ("default=False, type=bool", []),
        ('default="no", type=parse_bool', []),
        ('action="store_true"', []),
    ],
)
def test_a_string_option_is_a_string_whatever_the_user_says(declared, found):
    code = f"""
import argparse
from torch.utils.checkpoint import checkpoint
parser = argparse.ArgumentParser()
parser.add_argument("--use_reentrant", {declared})
args = parser.parse_args()
y = checkpoint(f, x, use_reentrant=args.use_reentrant)
"""
    assert [(finding.span.line, finding.code) for finding in check_source(code)] == found


@pytest.mark.parametrize(
    "read", ['vars(args)["use_reentrant"]', 'args.__dict__["use_reentrant"]', 'settings["use_reentrant"]']
)
def test_options_as_a_mapping(read):
    code = f"""
import argparse
from torch.utils.checkpoint import checkpoint
parser = argparse.ArgumentParser()
parser.add_argument("--use_reentrant", default="false")
args = parser.parse_args()
settings = vars(args)
y = checkpoint(f, x, use_reentrant={read})
"""
    assert [finding.code for finding in check_source(code)] == ["CKPT133"]
    assert not check_source(code.replace('"false"', "False"))


@pytest.mark.parametrize(
    ("declared", "value"),
    [
        ('parser.add_argument("--gradient_checkpointing", action="store_true", default=True)', True),
        ('parser.add_argument("--gradient_checkpointing", action="store_false", default=False)', False),
        ('parser.add_argument("--gradient_checkpointing", action="store_true", default=False)', None),
        ('parser.add_argument("--gradient_checkpointing", action=argparse.BooleanOptionalAction, default=True)', None),
        (
            'parser.add_argument("--gradient_checkpointing", action="store_true", default=True)\n'
            'parser.add_argument("--off", action="store_false", dest="gradient_checkpointing")',
            None,
        ),
        (
            'parser.add_argument("--gradient_checkpointing", action="store_true", default=True)\n'
            "parser.set_defaults(gradient_checkpointing=False)",
            None,
        ),
    ],
)
def test_a_switch_that_can_only_be_set_to_its_default(declared, value):
    assert truth(probe(ARGPARSE.format(declared, "parse_args()"))) is value


@pytest.mark.parametrize(
    "changed",
    [
        "for key, value in loaded.items():\n    setattr(args, key, value)",
        "vars(args).update(loaded)",
        "args.__dict__.update(loaded)",
    ],
)
def test_a_file_may_say_otherwise(changed):
    declared = 'parser.add_argument("--gradient_checkpointing", action="store_true", default=True)'
    assert truth(probe(ARGPARSE.format(declared, f"parse_args()\n{changed}"))) is None
