"""`hf-ckpt plan`: the same answer as `apply`, sizes in JSON, what fits and what does not."""

from __future__ import annotations

import ctypes
import json
import math
import os
import re
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, BertConfig, BloomConfig, LlamaConfig

from hf_ckpt import apply
from hf_ckpt.cli import command
from hf_ckpt.cli.forecast.largest import largest
from hf_ckpt.cli.forecast.rows import rows_of
from hf_ckpt.cli.model import build_model
from hf_ckpt.cli.native_output import no_native_output
from hf_ckpt.cli.study import read_model
from hf_ckpt.cli.subject import Subject
from hf_ckpt.errors import CkptError
from hf_ckpt.planner.budget import DEVICE_MARGIN
from hf_ckpt.planner.memory.fragmentation import UNKNOWN
from hf_ckpt.planner.memory.setup import Setup
from hf_ckpt.policy import parse_policy

from ..models import batch, step

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn

    from hf_ckpt.cli.study import Model
    from hf_ckpt.policy.resolve import ResolvedPolicy

LAYERS = 4
CONFIG = LlamaConfig(
    hidden_size=32, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=LAYERS,
    vocab_size=256,
)  # fmt: skip
NUMBERS = st.integers(1, LAYERS + 2)
SELECTORS = st.one_of(
    st.sampled_from(["full", "language", "vision", "audio"]),
    st.builds("{}({})".format, st.sampled_from(["first", "last", "every"]), NUMBERS),
    st.builds(lambda a, b: f"layers({a}-{a + b})", st.integers(0, LAYERS), st.integers(0, 2)),
)
SIMPLE = st.one_of(
    SELECTORS,
    st.sampled_from(
        ["none", "attention", "mlp", "norm", "balanced", "dots_saveable", "nothing_saveable", "everything_saveable",
         "dots_with_no_batch_dims_saveable", "save_only_these_names(mm)", "save_only_these_names(nothing)",
         "segments(2)", "budget=0.5", "budget=0.8", "budget=1TiB"]
    ),
)  # fmt: skip
WHERE = st.one_of(SELECTORS, st.builds("({}+{})".format, SELECTORS, SELECTORS))
TERMS = st.one_of(
    SIMPLE, SIMPLE, st.builds("{}@{}".format, SIMPLE, WHERE), st.sampled_from(["head(2)", "mlp(2)", "offload"])
)
POLICIES = st.lists(TERMS, min_size=1, max_size=3).map("+".join)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("llama")
    CONFIG.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def planned(folder: str) -> Model:
    subject = Subject(folder, None, 0, "fp32", None, batch=2, length=16, length_asked=True)
    return read_model(subject, "1GiB", Setup("adamw_torch"))


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    return AutoModelForCausalLM.from_config(CONFIG).train()


def answer_of_apply(model: nn.Module, policy: str) -> ResolvedPolicy | str:
    try:
        handle = apply(model, policy)
    except CkptError as refusal:
        return str(refusal)
    handle.restore()
    return handle.resolved


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(policy=POLICIES)
def test_plan_and_apply_give_the_same_answer(planned: Model, trained: nn.Module, policy: str) -> None:
    study = planned.study(2, 16)
    (row,) = rows_of(study, [parse_policy(policy)])
    applied = answer_of_apply(trained, policy)
    if isinstance(applied, str):
        assert row.error == applied
        return
    resolved = study.resolve(parse_policy(policy))
    assert (resolved.layers, resolved.requests) == (applied.layers, applied.requests)
    # What apply takes is refused by nothing here, but the cost of a few policies is only known from a run.
    assert row.error is None or "measure it with `hf-ckpt bench`" in row.error


def plan(*arguments: str) -> tuple[int, Any]:
    result = CliRunner().invoke(command, ["plan", *arguments, "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, json.loads(result.stdout)


def roomy(row: dict[str, Any]) -> int:
    """Bytes of a card that has room for what is alive at this peak, and for what its allocator takes besides."""
    beside = row["total_bytes"] - row["peak_bytes"]
    return math.ceil((beside + math.ceil(row["peak_bytes"] / (1 - UNKNOWN))) / (1 - DEVICE_MARGIN))


@pytest.mark.parametrize("policy", ["mlp(4)", "full+mlp(4)", "attention+mlp(4)", "budget=0.6+mlp(4)"])
def test_mlps_in_chunks_hold_what_a_step_holds(planned: Model, trained: nn.Module, policy: str) -> None:
    (row,) = rows_of(planned.study(2, 16), [parse_policy(policy)])
    handle, ids = apply(trained, policy), batch(2, 16)
    for _ in range(3):
        step(trained, ids)
    with handle.measure():
        step(trained, ids)
    held = sum(layer.held_bytes or 0 for layer in handle.report().layers)
    handle.restore()
    assert row.held_bytes is not None
    # The meter counts the rotary tables, which the layers share, with the first layer; a forecast counts them apart.
    assert 0 <= held - row.held_bytes <= 2 * 16 * 8 * 4 * 2


def test_chunks_lower_the_peak_in_a_layer_and_cost_a_forward_of_the_mlp(folder: str) -> None:
    at = ("--model", folder, "--batch", "8", "--length", "512", "--gpu", "h100")
    _, found = plan(*at, "--policy", "full+head(16)", "--policy", "full+head(16)+mlp(8)", "--policy", "mlp(8)")
    full, chunked, alone = found["forecasts"]
    assert chunked["held_bytes"] == full["held_bytes"]
    assert chunked["peak_bytes"] < full["peak_bytes"]
    assert 0 < alone["added_seconds"] < chunked["added_seconds"]
    assert plan("--model", folder, "--length", "4", "--policy", "mlp(8)")[0] == 2  # fewer tokens than chunks


def test_where_nothing_fits_chunks_that_do_are_named(folder: str) -> None:
    at = ("--model", folder, "--batch", "8", "--length", "512", "--gpu", "h100", "--policy")
    memory = ("--memory", f"{roomy(plan(*at, 'full+head(8)+mlp(8)')[1]['forecasts'][0]) + 4096}B")
    assert plan(*at, "full", *memory)[0] == 1
    shown = CliRunner().invoke(command, ["plan", *at, "full", *memory]).stdout
    assert 'callbacks=[SelectiveCkpt("full+mlp(8)+head(8)")]' in shown.replace("\n", "")


def test_host_memory_is_named_where_no_chunks_are_enough(folder: str) -> None:
    size = ("--model", folder, "--layers", "64", "--batch", "64", "--length", "512")
    at = (*size, "--gpu", "h100", "--lora", "2", "--policy")
    least = plan(*at, "full+mlp(8)+head(8)")[1]["forecasts"][0]
    memory = f"{least['total_bytes'] - least['peak_bytes'] // 4}B"
    shown = CliRunner().invoke(command, ["plan", *at, "full", "--memory", memory]).stdout
    said = " ".join(shown.split())
    assert "This fits, with saved tensors in host memory" in said
    assert 'SelectiveCkpt("budget=auto+offload' in said


def test_every_size_of_a_grid_has_its_line_to_paste(folder: str) -> None:
    sizes = ("--length", "64", "--batch", "1", "--batch", "4096", "--memory", "1GiB")
    shown = CliRunner().invoke(command, ["plan", "--model", folder, *sizes, "--policy", "none", "--policy", "full"])
    said = " ".join(shown.stdout.split())
    assert said.index("1 x 64 tokens fit without checkpointing") < said.index("4096 x 64 tokens, bf16")
    assert "Fastest that fits at 4096 x 64 tokens" in said or "Nothing fits" in said


def test_what_native_code_prints_is_no_part_of_the_answer(capfd: pytest.CaptureFixture[str]) -> None:
    print("before", flush=True)
    with no_native_output():
        ctypes.CDLL(None).printf(b"HighsMipSolverData\n")
        os.write(1, b"more of it")
    print("after", flush=True)
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == "before\nafter\n"


def test_plan_says_nothing_of_what_other_packages_warn_about(
    folder: str, recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    at = ["plan", "--model", folder, "--length", "64", "--gpu", "h100", "--policy", "full"]
    adapted = CliRunner().invoke(command, [*at, "--lora", "2"])
    assert adapted.exit_code == 0
    assert not [w for w in recwarn if "gradient_checkpointing" in str(w.message)]
    assert CliRunner().invoke(command, [*at, "--gpus", "2", "--device-map"]).exit_code == 0
    assert "not available" not in caplog.text


def test_full_is_named_before_chunks(folder: str) -> None:
    at = ("--model", folder, "--batch", "8", "--length", "512", "--gpu", "h100", "--policy")
    full, head = plan(*at, "full", "--policy", "full+head(8)")[1]["forecasts"]
    assert head["total_bytes"] < full["total_bytes"]
    shown = CliRunner().invoke(command, ["plan", *at, "none", "--memory", f"{roomy(full)}B"]).stdout
    assert 'This fits: callbacks=[SelectiveCkpt("full")]' in shown.replace("\n", "")


def test_a_share_is_cut_to_what_the_card_has(folder: str) -> None:
    at = ("--model", folder, "--batch", "8", "--length", "512", "--gpu", "h100", "--policy")
    full, share = plan(*at, "full", "--policy", "budget=0.9")[1]["forecasts"]
    between = f"{(full['total_bytes'] + share['total_bytes']) // 2}B"
    code, found = plan(*at, "budget=0.9", "--memory", between)
    assert code == 0
    assert full["held_bytes"] < found["forecasts"][0]["held_bytes"] < share["held_bytes"]
    code, found = plan(*at, "budget=0.9", "--memory", f"{full['total_bytes'] // 2}B")
    assert (code, found["forecasts"][0]["error"]) == (1, None)


def test_a_grid_in_json(folder: str) -> None:
    code, found = plan("--model", folder, "--batch", "1", "--batch", "2", "--length", "16", "--length", "32",
                       "--memory", "1GiB", "--accumulate", "2", "--policy", "full", "--policy", "none", "--policy", "full@vision")  # fmt: skip
    rows = found["forecasts"]
    assert code == 0
    assert [(row["batch"], row["length"]) for row in rows[::3]] == [(1, 16), (1, 32), (2, 16), (2, 32)]
    full, none, vision = rows[:3]
    assert 0 < full["held_bytes"] < none["held_bytes"] < rows[4]["held_bytes"]
    assert full["share_of_none"] == full["held_bytes"] / none["held_bytes"]
    assert none["total_bytes"] == none["peak_bytes"] + found["weight_bytes"] + found["gradient_and_optimizer_bytes"]
    assert none["added_seconds"] == 0 < full["added_share"] == full["added_seconds"] / full["step_seconds"]
    assert "names no layer of this model" in vision["error"]


def test_nothing_fits(folder: str) -> None:
    code, found = plan(
        "--model", folder, "--length", "64", "--memory", "100KiB", "--policy", "full", "--policy", "budget=auto"
    )
    assert code == 1
    assert [row["fits"] for row in found["forecasts"]] == [False, False]
    assert plan("--model", folder, "--length", "64", "--policy", "full@vision")[0] == 2


def test_a_budget_on_a_card_leaves_its_allocator_what_a_run_leaves(folder: str) -> None:
    at = ("--model", folder, "--batch", "8", "--length", "128", "--gpu", "h100", "--policy")
    whole = plan(*at, "none")[1]["forecasts"][0]
    memory = int(1.05 * whole["total_bytes"])
    _, found = plan(*at, "none", "--policy", "budget=auto", "--memory", f"{memory}B")
    none, auto = found["forecasts"]
    assert (none["fits"], none["tight"]) == (False, True)
    assert (auto["fits"], auto["tight"]) == (True, False)
    room = (1 - DEVICE_MARGIN) * memory - (none["total_bytes"] - none["peak_bytes"])
    assert auto["peak_bytes"] <= (1 - UNKNOWN) * room < none["peak_bytes"]


def test_what_is_alive_fits_a_card_where_its_allocator_has_room_too(folder: str) -> None:
    at = ("--model", folder, "--batch", "8", "--length", "128", "--gpu", "h100", "--policy", "full", "--memory")
    (row,) = plan(*at, "1GiB")[1]["forecasts"]
    alive, enough = row["total_bytes"], roomy(row)
    for memory, answer in ((enough, "yes"), (enough - 64, "tight"), (alive, "tight"), (alive - 1, "no")):
        code, found = plan(*at, f"{memory}B")
        (row,) = found["forecasts"]
        assert (row["fits"], row["tight"]) == (answer == "yes", answer == "tight"), (memory, answer)
        assert code == (0 if answer == "yes" else 1)
        shown = " ".join(CliRunner().invoke(command, ["plan", *at, f"{memory}B"]).stdout.split())
        assert f" {answer} " in shown
        assert ("`full` is tight" in shown) == (answer == "tight")


def test_every_card_has_room_for_its_allocator(folder: str) -> None:
    at = ("--model", folder, "--batch", "64", "--length", "256", "--gpus", "2", "--device-map", "--policy", "full")
    at = (*at, "--gpu", "h100", "--memory")
    alive = plan(*at, "1GiB")[1]["forecasts"][0]["total_bytes"]
    answers = {}
    for memory in range(int(0.9 * alive), int(1.4 * alive), alive // 25):
        (row,) = plan(*at, f"{memory}B")[1]["forecasts"]
        answers[memory] = "yes" if row["fits"] else "tight" if row["tight"] else "no"
    assert list(dict.fromkeys(answers.values())) == ["no", "tight", "yes"], answers


def test_adapters_on_all_linear_layers_may_be_named_as_peft_names_them(folder: str) -> None:
    at = ("--model", folder, "--length", "64", "--lora", "4", "--policy", "full")
    assert plan(*at, "--lora-target", "all-linear") == plan(*at)


def test_the_process_has_no_allocator_to_leave_room_for(folder: str) -> None:
    at = ("--model", folder, "--batch", "8", "--length", "128", "--policy", "none", "--memory")
    alive = plan(*at, "1GiB")[1]["forecasts"][0]["total_bytes"]
    for memory, fits in ((alive, True), (alive - 1, False)):
        (row,) = plan(*at, f"{memory}B")[1]["forecasts"]
        assert (row["fits"], row["tight"]) == (fits, False)


def test_a_budget_that_leaves_its_allocator_less_is_planned_as_a_run_plans_it(folder: str) -> None:
    at = ("--model", folder, "--batch", "8", "--length", "512", "--gpu", "h100", "--policy")
    least = plan(*at, "budget=4KiB")[1]["forecasts"][0]["error"]
    needed = re.search(r"raise it to (budget=\w+)", least)
    assert needed is not None
    code, found = plan(*at, needed[1])
    assert (code, found["forecasts"][0]["error"]) == (0, None)


@pytest.mark.parametrize("dimension", ["batch", "length"])
def test_the_largest_size_fits_and_the_next_does_not(folder: str, dimension: str) -> None:
    memory = ("--memory", "4MiB", "--policy", "full")
    _, found = plan("--model", folder, "--length", "128", "--largest", dimension, *memory)
    size = found[f"largest_{dimension}"]["full"]
    step = {"batch": 1, "length": 128}[dimension]
    for tried, fits in ((size, True), (size + step, False)):
        at = ("--batch", str(tried), "--length", "128") if dimension == "batch" else ("--length", str(tried))
        assert plan("--model", folder, *at, *memory)[1]["forecasts"][0]["fits"] is fits


@pytest.mark.parametrize("limit", [0, 1, 2, 3, 7, 8, 100, 4095, 4096, 9999])
def test_search(limit: int) -> None:
    assert largest(lambda size: size <= limit, 1, 4096) == (min(limit, 4096) or None)
    assert largest(lambda size: size <= limit, 128, 4096) == (min(limit, 4096) // 128 * 128 or None)


def test_the_line_to_paste(folder: str) -> None:
    roomy = ["plan", "--model", folder, "--length", "64", "--memory", "1GiB", "--policy", "full"]
    shown = CliRunner().invoke(command, [*roomy, "--policy", "budget=0.5"]).stdout
    assert 'callbacks=[SelectiveCkpt("budget=0.5")]' in shown
    assert "fit without checkpointing" in CliRunner().invoke(command, [*roomy, "--policy", "none"]).stdout


@pytest.mark.parametrize(
    ("architectures", "built"), [(None, "BertForMaskedLM"), (["BertLMHeadModel"], "BertLMHeadModel")]
)
def test_bert_is_a_masked_language_model(architectures: list[str] | None, built: str, tmp_path: Any) -> None:
    config = BertConfig(hidden_size=32, intermediate_size=64, num_attention_heads=2, num_hidden_layers=2, vocab_size=99)
    config.architectures = architectures
    config.save_pretrained(tmp_path)
    subject = Subject(str(tmp_path), None, 0, "fp32", None, batch=1, length=8, length_asked=True)
    assert type(build_model(subject, "meta")).__name__ == built


@pytest.mark.parametrize("name", sorted(command.commands))
def test_every_option_has_help(name: str) -> None:
    options = [parameter for parameter in command.commands[name].params if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_a_card_is_planned_for_without_it(folder: str) -> None:
    code, found = plan("--model", folder, "--length", "64", "--gpu", "H100", "--policy", "full", "--policy", "none")
    assert code == 0
    assert found["rates_of"].startswith("NVIDIA H100 80GB HBM3")
    assert found["memory_bytes"] == int(79.11 * 2**30)
    offloaded = plan("--model", folder, "--length", "64", "--gpu", "a100", "--policy", "budget=0.9+offload")[1]
    assert offloaded["forecasts"][0]["error"] is None


def test_a_card_without_bfloat16_says_so(folder: str) -> None:
    result = CliRunner().invoke(command, ["plan", "--model", folder, "--gpu", "t4"])
    assert isinstance(result.exception, CkptError)
    assert "use --dtype fp16" in str(result.exception)


def test_gradients_come_up_while_activations_go(folder: str) -> None:
    at = ("--model", folder, "--length", "64", "--policy", "none")
    (grown,), (standing,) = (plan(*at, "--accumulate", n)[1]["forecasts"] for n in ("1", "8"))
    assert grown["total_bytes"] < standing["total_bytes"]
    assert standing["peak_at"] == "loss" or standing["peak_at"].startswith("backward")


def test_sharding_is_compared_with_recomputing(folder: str) -> None:
    at = ("--model", folder, "--length", "64", "--policy", "full", "--policy", "none")
    none = plan(*at)[1]["forecasts"][1]["total_bytes"]
    _, found = plan(*at, "--memory", f"{none - 1}B")
    more = found["sharding_more"]
    assert (more["gpus"], more["policy"]) == (2, "none")
    assert more["frees_bytes"] > 0 < more["saves_seconds"]
    shown = CliRunner().invoke(command, ["plan", *at, "--memory", f"{none - 1}B"]).stdout
    assert "then `none` fits, which saves" in " ".join(shown.split())


def test_every_way_to_spread_takes_less_on_a_card(folder: str) -> None:
    sizes = {}
    for way in ((), ("--ddp",), ("--zero", "1"), ("--zero", "2"), ("--zero", "3"), ("--fsdp",), ("--fsdp", "--master")):
        gpus = ("--gpus", "8") if way else ()
        found = plan("--model", folder, "--length", "32", "--policy", "full", *gpus, *way)[1]
        sizes[way] = found["weight_bytes"] + found["optimizer_bytes"]
    assert sizes[("--fsdp",)] < sizes[("--fsdp", "--master")] < sizes[("--zero", "3")]
    assert sizes[("--zero", "3")] < sizes[("--zero", "2")] == sizes[("--zero", "1")]
    assert sizes[()] == sizes[("--ddp",)]


def test_layers_in_turn_take_less_on_the_fullest_card(folder: str) -> None:
    at = ("--model", folder, "--length", "64", "--gpu", "a100", "--policy", "full", "--policy", "budget=0.5")
    alone, found = plan(*at)[1], plan(*at, "--gpus", "2", "--device-map")[1]
    for one, several in zip(alone["forecasts"], found["forecasts"], strict=True):
        assert several["held_bytes"] == one["held_bytes"]
        assert several["total_bytes"] < one["total_bytes"]
        assert ", card " in several["peak_at"]
    assert found["sharding_more"] is None


def test_a_budget_of_one_card_is_refused_where_there_are_several(folder: str) -> None:
    at = ("--model", folder, "--length", "64", "--gpu", "a100", "--gpus", "2", "--device-map")
    (row,) = plan(*at, "--policy", "budget=auto")[1]["forecasts"]
    assert "name a share such as budget=0.5" in row["error"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--fsdp",), "say how many with --gpus"),
        (("--gpus", "2", "--fsdp", "--zero", "3"), "exclude each other"),
        (("--master",), "FSDP's shards"),
        (("--load-in-4bit",), "with --lora"),
        (("--prepare-kbit",), "with --load-in-4bit"),
        (("--device-map",), "say how many with --gpus"),
        (("--gpus", "2", "--device-map", "--fsdp"), "is for one process"),
        (("--lora-target", "q_proj"), "with --lora"),
        (("--lora-dropout", "0.1"), "with --lora"),
        (("--optimizer", "adamww_torch"), "did you mean adamw_torch"),
        (("--gpus", "2", "--device-map", "--memory", "1GiB", "--html", "page.html"), "draw one card"),
    ],
)
def test_a_setup_that_cannot_be_is_refused(folder: str, options: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(command, ["plan", "--model", folder, *options])
    assert result.exit_code == 2
    assert says in " ".join(result.stderr.split())


def test_flash_attn_is_planned_without_the_package(folder: str) -> None:
    at = ("--model", folder, "--length", "64", "--gpu", "a100", "--policy", "none", "--lora", "4", "--load-in-4bit")
    flash, sdpa = (plan(*at, "--attention", kernel)[1]["forecasts"][0] for kernel in ("flash_attention_2", "sdpa"))
    assert flash["held_bytes"] == pytest.approx(sdpa["held_bytes"], rel=0.02)
    result = CliRunner().invoke(command, ["plan", *at, "--attention", "flash_attention_2", "--dtype", "fp32"])
    assert "16 bit only" in str(result.exception)


def test_the_table_keeps_to_eighty_columns(folder: str) -> None:
    shown = CliRunner().invoke(command, ["plan", "--model", folder, "--gpu", "h100", "--length", "64"]).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "a step without checkpointing" in " ".join(shown.split())


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_plot_draws_a_file_of_the_kind_that_is_asked_for(folder: str, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / f"plan{suffix}"
    at = ("--model", folder, "--gpu", "h100", "--length", "64", "--policy", "full", "--policy", "budget=0.5")
    plan(*at, "--policy", "segments(2)", "--plot", str(picture))
    start = picture.read_bytes()[:200]
    assert start.startswith(b"\x89PNG") if suffix == ".png" else b"<svg" in picture.read_bytes()


def test_a_picture_of_another_kind_is_refused_before_the_model_is_read() -> None:
    result = CliRunner().invoke(command, ["plan", "--model", "nowhere", "--plot", "plan.bmp"])
    assert result.exit_code == 2
    assert "plan.bmp ends with none of .png, .svg" in " ".join(result.stderr.split())


def test_adapters_on_named_layers_with_dropout_hold_less_and_more(folder: str) -> None:
    at = ("--model", folder, "--length", "64", "--gpu", "a100", "--policy", "none", "--lora", "4")
    options = ((), ("--lora-target", "q_proj"), ("--lora-dropout", "0.1"))
    everywhere, few, dropped = (plan(*at, *more)[1]["forecasts"][0]["held_bytes"] for more in options)
    assert few < everywhere < dropped
    result = CliRunner().invoke(command, ["plan", *at, "--lora-target", "nowhere"])
    assert "peft puts no adapter on" in str(result.exception)


def test_flash_attn_is_refused_for_a_model_that_does_not_support_it(tmp_path: Path) -> None:
    BloomConfig(hidden_size=32, n_head=4, n_layer=2, vocab_size=64).save_pretrained(tmp_path)
    result = CliRunner().invoke(
        command, ["plan", "--model", str(tmp_path), "--gpu", "a100", "--attention", "flash_attention_2"]
    )
    assert isinstance(result.exception, CkptError)
    assert "does not run with --attention flash_attention_2" in str(result.exception)


def test_under_autocast_adapters_read_copies_in_sixteen_bit(folder: str) -> None:
    at = ("--model", folder, "--length", "64", "--gpu", "a100", "--policy", "none", "--lora", "4")
    held = [plan(*at, *more)[1]["forecasts"][0]["held_bytes"] for more in ((), ("--autocast", "bf16"))]
    assert held[1] < held[0]


def test_float32_weights_are_computed_with_in_sixteen_bit_under_autocast(folder: str) -> None:
    at = ("--model", folder, "--length", "64", "--gpu", "a100", "--policy", "none", "--dtype", "fp32")
    plain, cast = (plan(*at, *more)[1] for more in ((), ("--autocast", "bf16")))
    assert cast["weight_bytes"] == plain["weight_bytes"]
    assert cast["forecasts"][0]["step_seconds"] < plain["forecasts"][0]["step_seconds"]


@pytest.mark.parametrize("terminal", [True, False])
def test_what_plan_does_is_said_on_a_terminal_only(
    folder: str, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes it for a terminal
    result = CliRunner().invoke(
        command, ["plan", "--model", folder, "--gpu", "h100", "--length", "64", "--policy", "full", "--json"]
    )
    assert ("tracing the layers" in result.stderr) is terminal
    assert json.loads(result.stdout)["forecasts"]


def test_preparing_for_kbit_training_makes_hidden_states_and_all_other_weights_float32(folder: str) -> None:
    at = ("--model", folder, "--length", "64", "--gpu", "a100", "--policy", "full", "--lora", "4", "--load-in-4bit")
    plain, wide = (plan(*at, "--autocast", "bf16", *more)[1] for more in ((), ("--prepare-kbit",)))
    # Beside hidden states, layers hold the state of attention's random numbers.
    assert wide["forecasts"][0]["held_bytes"] == pytest.approx(2 * plain["forecasts"][0]["held_bytes"], rel=0.01)
    assert wide["weight_bytes"] > plain["weight_bytes"]
