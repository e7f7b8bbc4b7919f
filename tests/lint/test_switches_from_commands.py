"""The examples of the rules with their switches on the command line: what a launch script gives is what is found."""

import re

import pytest
from hf_ckpt.lint.rules import load_rules
from rule_pages import Example, examples
from started import found

_SWITCH = re.compile(
    r"\b((?:use_reentrant|gradient_checkpointing|activation_checkpointing|find_unused_parameters|preserve_rng_state)=)"
    r'(True|False)\b|("(?:use_reentrant|activation_checkpointing)": )(True|False)\b'
)
#: What is a mistake whatever the switch is, or may be.
_LEFT_OPEN = ("CKPT124", "CKPT130")


def given_by_command(code: str) -> tuple[str, str] | None:
    """``code`` with its switches as options, and a command: every other option is given, the rest are defaults."""
    values: list[str] = []

    def option(match: re.Match[str]) -> str:
        values.append(match[2] or match[4])
        return f"{match[1] or match[3]}_given.v{len(values)}"

    changed = _SWITCH.sub(option, code)
    if not values or "from __future__" in code:
        return None
    parser = ["import argparse", "parser = argparse.ArgumentParser()"]
    for number, value in enumerate(values, 1):
        default = "None" if number % 2 else value
        parser.append(f'parser.add_argument("--v{number}", type=lambda s: s == "True", default={default})')
    words = " ".join(f"--v{number} {value}" for number, value in enumerate(values, 1) if number % 2)
    return "\n".join([*parser, "_given = parser.parse_args()", changed]), words


def cases() -> list[Example]:
    every = [*examples("Bad"), *examples("Good")]
    return [it for it in every if it.filename.endswith(".py") and given_by_command(it.code) is not None]


@pytest.mark.slow
@pytest.mark.parametrize("example", cases(), ids=lambda example: example.id)
def test_a_switch_that_a_command_gives_is_the_switch(example, tmp_path):
    meant = {rule.code for rule in load_rules() if rule.may_be_meant}
    written = given_by_command(example.code)
    assert written is not None
    plainly = sorted(found(tmp_path, {"train.py": example.code}))
    given = sorted(found(tmp_path, {"train.py": written[0], "run.sh": f"python train.py {written[1]}\n"}))
    others = (*meant, *_LEFT_OPEN)
    assert [code for code in given if code not in others] == [code for code in plainly if code not in others]
