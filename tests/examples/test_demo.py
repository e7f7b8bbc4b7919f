"""`make demo`, on a shorter run."""

from __future__ import annotations

import re

import pytest
from transformers import AutoModelForCausalLM, LlamaConfig

from .test_scripts import EXAMPLES

SHORT = ("--steps", "2", "--rounds", "1", "--length", "64")
DEMO = EXAMPLES / "demo.py"


def test_compares_three_policies_and_lints(forked):
    done = forked.run(DEMO, *SHORT, folder=EXAMPLES.parent)
    assert done.status == 0, done.stderr
    rows = {policy: _row(done.stdout, policy) for policy in ("none", "full", "budget=0.5")}
    shares = {policy: [int(number) for number in re.findall(r"\((\d+)%\)", row)] for policy, row in rows.items()}
    assert shares["none"] == [100, 100]
    assert shares["full"][0] < shares["budget=0.5"][0] < 100
    assert shares["full"][1] < 100
    assert done.stdout.count("same, every bit") == 2
    assert "2/2 [" in done.stderr  # Trainer's progress bar
    assert "error[CKPT105]" in done.stdout
    assert re.search(r"^1 +CKPT106 ", done.stdout, re.MULTILINE)  # from --statistics


@pytest.mark.slow
def test_takes_a_real_model_from_a_folder(forked, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    from trl_sft import byte_tokenizer

    config = LlamaConfig(
        vocab_size=300, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    done = forked.run(DEMO, *SHORT, "--model", tmp_path, folder=EXAMPLES.parent)
    assert done.status == 0, done.stderr
    assert str(tmp_path) in done.stdout.replace("\n", "")
    assert done.stdout.count("same, every bit") == 2


def test_an_unknown_model_is_one_sentence(forked, tmp_path):
    done = forked.run(DEMO, *SHORT, "--model", tmp_path / "nowhere", folder=EXAMPLES.parent)
    assert done.status == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("demo: ")
    assert "nowhere" in last
    assert "Traceback" not in done.stderr


def _row(text: str, policy: str) -> str:
    (row,) = (line for line in text.splitlines() if re.match(rf"[│|] {re.escape(policy)} ", line))
    return row
