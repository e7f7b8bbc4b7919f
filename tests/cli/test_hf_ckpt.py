"""`hf-ckpt` from the shell: every command on a real config, and bad input as one sentence."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 (pytest reads the annotation)
from unittest.mock import patch

import pytest
from transformers import GPT2Config, LlamaConfig, MixtralConfig, T5Config, ViTConfig

from hf_ckpt.cli import main

SVG = "{http://www.w3.org/2000/svg}"
SMALL = {
    "hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 3, "vocab_size": 256,
}  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    configs = {
        "llama": LlamaConfig(**SMALL),
        "mixtral": MixtralConfig(**SMALL, num_local_experts=4),
        "gpt2": GPT2Config(n_embd=32, n_layer=3, n_head=4, vocab_size=256),
        "t5": T5Config(d_model=32, d_ff=64, num_layers=2, num_heads=2, d_kv=16, vocab_size=256),
        "odd": LlamaConfig(**SMALL | {"num_key_value_heads": 3}),
        "vit": ViTConfig(hidden_size=32, intermediate_size=64, num_attention_heads=2, num_hidden_layers=2),
    }
    for name, config in configs.items():
        config.save_pretrained(folder / name)
    return {name: str(folder / name) for name in configs}


@dataclass(frozen=True)
class Outcome:
    """What one command did."""

    returncode: int
    stdout: str
    stderr: str


def hf_ckpt(*arguments: str) -> Outcome:
    """Run the command in this process: one of its own would import torch and transformers anew."""
    out, err = io.StringIO(), io.StringIO()
    with patch("sys.argv", ["hf-ckpt", *arguments]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
            code = 0
        except SystemExit as leave:
            code = int(leave.code or 0)
    return Outcome(code, out.getvalue(), err.getvalue())


@pytest.mark.parametrize("name", ["llama", "mixtral", "gpt2", "t5"])
def test_plan_forecasts_without_weights(models: dict[str, str], name: str) -> None:
    result = hf_ckpt("plan", "--model", models[name], "--length", "64")
    assert result.returncode == 0, result.stderr
    assert "budget=0.5" in result.stdout
    assert "cannot be traced" not in result.stdout


def test_plan_for_another_device_and_lora(models: dict[str, str]) -> None:
    result = hf_ckpt("plan", "--model", models["llama"], "--length", "64", "--lora", "4", "--memory", "1GiB",
                     "--policy", "budget=auto+head(2)", "--policy", "segments(2)")  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "\nsegments(2): `segments(2)` replays several layers at once: measure it" in result.stdout


def test_explain_shows_the_ledger_and_draws_the_frontier(models: dict[str, str], tmp_path: Path) -> None:
    png = tmp_path / "frontier.png"
    html = tmp_path / "step.html"
    result = hf_ckpt("explain", "--model", models["llama"], "--length", "64", "--plot", str(png), "--html", str(html))
    assert result.returncode == 0, result.stderr
    for word in ("rebuild", "keep", "the frontier", "more would save"):
        assert word in result.stdout
    assert "\N{HORIZONTAL ELLIPSIS}" not in result.stdout  # no name is cut short, however narrow the table
    assert png.read_bytes().startswith(b"\x89PNG")
    assert_is_a_page_of_its_own(html.read_text(), "none", "budget=0.5")


def assert_is_a_page_of_its_own(page: str, *charts: str) -> None:
    """Its pictures are drawn in it, each with its spike, and it loads nothing."""
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert [heading in page for heading in charts] == [True] * len(charts) == [True] * len(pictures)
    for picture in pictures:
        words = [text.text or "" for text in ElementTree.fromstring(picture).iter(f"{SVG}text")]
        assert sum(word.startswith("spike, ") for word in words) == 1
        assert len(list(ElementTree.fromstring(picture).iter(f"{SVG}rect"))) > 10
    assert not re.findall(r"<script|<link|src=|@import|url\(", page)


def test_plan_writes_memory_over_the_step(models: dict[str, str], tmp_path: Path) -> None:
    html = tmp_path / "plan.html"
    result = hf_ckpt("plan", "--model", models["gpt2"], "--length", "64", "--policy", "none", "--policy", "full",
                     "--policy", "segments(2)", "--memory", "1GiB", "--html", str(html))  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert_is_a_page_of_its_own(html.read_text(), "none", "full")
    for part in ("layer inputs", "kept activations", "replayed", "logits and loss", "memory of the device"):
        assert part in html.read_text()


@pytest.mark.parametrize("engine", ["traced", "torch"])
def test_verify_proves_bitwise_gradients(models: dict[str, str], engine: str) -> None:
    result = hf_ckpt("verify", "--model", models["gpt2"], "--length", "32", "--policy", "balanced", "--engine", engine)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "bitwise equal: the loss and" in result.stdout


def test_verify_says_when_gradients_differ(models: dict[str, str]) -> None:
    result = hf_ckpt("verify", "--model", models["llama"], "--length", "32", "--dtype", "fp32", "--policy", "head(3)")
    assert result.returncode == 1, "chunks sum the loss in another order"
    assert "gradients differ" in result.stdout


def test_bench_compares_with_none(models: dict[str, str]) -> None:
    result = hf_ckpt("bench", "--model", models["llama"], "--length", "64", "--rounds", "1", "--policy", "full")
    assert result.returncode == 0, result.stderr
    assert "1.00" in result.stdout
    assert "full" in result.stdout


def test_bench_in_json(models: dict[str, str]) -> None:
    at = ("--model", models["llama"], "--length", "64", "--rounds", "1")
    result = hf_ckpt("bench", *at, "--policy", "full", "--policy", "budget=0.5", "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["batch"], found["length"], found["rounds"], found["engine"]) == (1, 64, 1, "traced")
    none, full, half = found["policies"]
    assert (none["policy"], none["ratio"], full["policy"]) == ("none", 1.0, "full")
    assert 0 < full["held_bytes"] < half["held_bytes"] < none["held_bytes"]


@pytest.mark.parametrize("policy", ["full", "budget=0.5"])
def test_explain_in_json(models: dict[str, str], policy: str) -> None:
    result = hf_ckpt("explain", "--model", models["llama"], "--length", "64", "--policy", policy, "--json")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    totals = [tensor["total_bytes"] for tensor in found["tensors"]]
    assert totals == sorted(totals, reverse=True)
    assert all(sum(tensor["verbs"].values()) == SMALL["num_hidden_layers"] for tensor in found["tensors"])
    shares = [point["share_of_none"] for point in found["frontier"]]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert (found["gain"] is None) == (policy == "full")


def test_policies_are_listed() -> None:
    command = [sys.executable, "-c", "from hf_ckpt.cli import main; main()", "policies"]
    assert "dots_saveable" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_plan_forecasts_a_learned_bias_on_a_card_whose_first_kernel_has_no_gradient_for_it(
    models: dict[str, str],
) -> None:
    result = hf_ckpt("plan", "--model", models["t5"], "--length", "64", "--gpu", "h100")
    assert result.returncode == 0, result.stderr
    assert "cannot be traced" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("plan",), "Missing option '--model'"),
        (("explain",), "Missing option '--model'"),
        (("bench",), "Missing option '--model'"),
        (("plan", "--model", "/does/not/exist"), "neither a model on the hub nor a folder"),
        (("verify", "--model", "{llama}", "--policy", "ful"), "did you mean `full`"),
        (("plan", "--model", "{llama}", "--memory", "0.5"), "not a size with its unit"),
        (("plan", "--model", "{llama}", "--memory", "80"), "'80' is not a size with its unit, such as 80GiB"),
        (("plan", "--model", "{llama}", "--memory", "80XB"), "'80XB' is not a size with its unit"),
        (("plan", "--model", "{llama}", "--attention", "flash_attention_9"), "flash_attention_2"),
        (("bench", "--model", "{odd}", "--length", "16"), "does not run on 1 x 16 token ids: The size of tensor"),
        (("verify", "--model", "{odd}", "--length", "16"), "does not run on 1 x 16 token ids: The size of tensor"),
        (("explain", "--model", "{llama}", "--policy", "segments(2)"), "measure it with `hf-ckpt bench`"),
        (("plan", "--model", "{vit}"), "trains on something else than token ids"),
        (("plan", "--model", "{llama}", "--attention", "fast"), "transformers cannot build"),
        (("explain", "--model", "{llama}", "--plot", "/does/not/exist.png"), "the folder /does/not does not exist"),
        (("explain", "--model", "{llama}", "--html", "/does/not/exist.html"), "the folder /does/not does not exist"),
        (("explain", "--model", "{llama}", "--html", 300 * "x"), "cannot be written: File name too long"),
    ],
)
def test_bad_input_is_one_sentence(models: dict[str, str], arguments: tuple[str, ...], says: str) -> None:
    result = hf_ckpt(*(a.format(**models) for a in arguments))
    assert result.returncode == 2
    assert says in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
