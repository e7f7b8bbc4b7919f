"""SelectiveCkpt in a real Trainer: same training to the last bit, proof, metrics, take-over, resume."""

from __future__ import annotations

import copy
import itertools
import json
import logging
import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers
from packaging.version import Version
from transformers import AlbertConfig, AlbertForMaskedLM, Trainer, TrainerCallback, TrainingArguments

from hf_ckpt import SelectiveCkpt, apply
from hf_ckpt.errors import ConflictError, NoEffectError, PolicyError

from ..models import ARCHITECTURES, build, fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator

POLICIES = (
    ("full", "traced"),
    ("balanced", "traced"),
    ("dots_saveable", "traced"),
    ("budget=0.5", "traced"),
    ("attention+norm@first(3)", "torch"),
    ("segments(2)", "torch"),
)
SWITCH = (
    "activation_checkpointing" if Version(transformers.__version__) >= Version("5.23") else "gradient_checkpointing"
)


def dataset() -> list[dict[str, torch.Tensor]]:
    """Real text: the bytes of a module of the standard library, in blocks of 16."""
    text = Path(json.__file__).read_bytes()[: 16 * 60]
    blocks = [torch.tensor(list(text[i : i + 16])) for i in range(0, len(text), 16)]
    return [{"input_ids": b, "labels": b} for b in blocks]


def arguments(tmp_path: Path, **more: Any) -> TrainingArguments:
    defaults: dict[str, Any] = {
        "per_device_train_batch_size": 2, "gradient_accumulation_steps": 3, "max_steps": 3, "logging_steps": 1,
        "use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_strategy": "no", "seed": 1,
    }  # fmt: skip
    return TrainingArguments(str(tmp_path), **(defaults | more))


def train(model: Any, args: TrainingArguments, *callbacks: TrainerCallback, **more: Any) -> Trainer:
    trainer = Trainer(model=model, args=args, train_dataset=dataset(), callbacks=list(callbacks), **more)
    trainer.train()
    return trainer


def outcome(trainer: Trainer) -> tuple[list[float], list[torch.Tensor]]:
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return losses, [p.detach().clone() for p in trainer.model.parameters()]


def identical(a: tuple[list[float], list[torch.Tensor]], b: tuple[list[float], list[torch.Tensor]]) -> bool:
    return a[0] == b[0] and all(torch.equal(x, y) for x, y in zip(a[1], b[1], strict=True))


def trainings() -> Iterator[Any]:
    """Every architecture fully in fp32 and with LoRA in bf16; the other two ways are slow but for two of them."""
    for name, lora, bf16 in itertools.product(ARCHITECTURES, (False, True), (False, True)):
        marks = [pytest.mark.slow] if lora is not bf16 and name not in ARCHITECTURES[:2] else []
        ids = (name, "lora" if lora else "full", "bf16" if bf16 else "fp32")
        yield pytest.param(name, lora, bf16, marks=marks, id="-".join(ids))


@pytest.mark.parametrize(("name", "lora", "bf16"), list(trainings()))
def test_training_is_bitwise_the_same(name: str, lora: bool, bf16: bool, tmp_path: Path) -> None:
    def trained(*callbacks: TrainerCallback) -> tuple[list[float], list[torch.Tensor]]:
        """One step to learn from, and one under what was learnt."""
        args = arguments(tmp_path, bf16=bf16, max_steps=2)
        return outcome(train(build(name, lora=lora), args, *callbacks))

    reference = trained()
    for policy, engine in POLICIES:
        callback = SelectiveCkpt(policy, engine=engine)
        assert identical(trained(callback), reference), policy
        assert callback.report is not None
        assert callback.report.measured


@pytest.mark.parametrize("kwargs", [None, {"use_reentrant": True}])
def test_takes_over_from_the_arguments(kwargs: dict | None, tmp_path: Path) -> None:
    callback = SelectiveCkpt("every(2)")
    more = {SWITCH: True, f"{SWITCH}_kwargs": kwargs}
    reference = outcome(train(build("llama"), arguments(tmp_path)))
    assert identical(outcome(train(build("llama"), arguments(tmp_path, **more), callback)), reference)
    assert callback.report is not None
    assert [layer.replays for layer in callback.report.layers] == [3, 0, 3, 0], "three micro-batches, once each"


def test_the_old_argument_name_is_taken_over(tmp_path: Path) -> None:
    callback = SelectiveCkpt("every(2)")
    train(build("llama"), arguments(tmp_path, gradient_checkpointing=True), callback)
    assert callback.report is not None
    assert [layer.replays for layer in callback.report.layers] == [3, 0, 3, 0]


def test_metrics_reach_reporters_and_history(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    class Reporter(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            seen.append(dict(logs))

    trainer = train(build("llama"), arguments(tmp_path), Reporter(), SelectiveCkpt("full"))
    for entry in (seen[0], trainer.state.log_history[0]):
        assert entry["ckpt/held_bytes"] > 0
        assert entry["ckpt/recomputed_share"] == 1.0
        assert entry["ckpt/backward_forward_ratio"] > 0


def test_model_is_restored_after_training(tmp_path: Path) -> None:
    model = build("llama")
    train(model, arguments(tmp_path))
    before = fingerprint(model)
    train(model, arguments(tmp_path), SelectiveCkpt("attention+norm"))
    assert fingerprint(model) == before


def test_model_init_and_late_registration(tmp_path: Path) -> None:
    callback = SelectiveCkpt("full")
    train(None, arguments(tmp_path), callback, model_init=lambda: build("llama"))
    assert callback.report is not None
    assert all(layer.replays == 3 for layer in callback.report.layers)
    late = SelectiveCkpt("full")
    trainer = Trainer(model=build("llama"), args=arguments(tmp_path), train_dataset=dataset())
    trainer.add_callback(late)
    trainer.train()
    assert late.report is not None
    assert trainer.state.log_history[0].keys() >= {"ckpt/held_bytes"}


def test_resume_is_bitwise_and_tells_a_changed_policy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    saving = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    whole = outcome(train(build("llama"), arguments(tmp_path / "a", **saving), SelectiveCkpt("full")))
    checkpoint = tmp_path / "a" / "checkpoint-2"
    stored = json.loads((checkpoint / "trainer_state.json").read_text())["stateful_callbacks"]["SelectiveCkpt"]
    assert SelectiveCkpt(**stored["args"]).policy == SelectiveCkpt("full").policy
    trainer = Trainer(
        model=build("llama"), args=arguments(tmp_path / "a", **saving), train_dataset=dataset(),
        callbacks=[SelectiveCkpt("norm")],
    )  # fmt: skip
    with caplog.at_level(logging.WARNING, logger="hf_ckpt"):
        trainer.train(resume_from_checkpoint=str(checkpoint))
    assert identical(outcome(trainer), (whole[0], whole[1]))
    assert "policy `norm`" in caplog.text
    assert "under `full`" in caplog.text


def test_arguments_and_callback_survive_copies(tmp_path: Path) -> None:
    callback = SelectiveCkpt({"terms": [{"name": "norm", "on": [{"name": "first", "args": [2]}]}]})
    train(build("llama"), arguments(tmp_path), callback)
    for twin in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert str(twin.policy) == "norm@first(2)"
    args = arguments(tmp_path)
    assert pickle.loads(pickle.dumps(args)).to_json_string() == args.to_json_string()


class Copies(TrainerCallback):
    """Copies and pickles the model while the policy is on and its first steps are observed."""

    def __init__(self) -> None:
        self.copies: list[Any] = []

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.copies += [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]


@pytest.mark.parametrize(("policy", "engine"), POLICIES)
def test_model_and_callback_can_be_copied_at_any_time(policy: str, engine: str, tmp_path: Path) -> None:
    callback, copies = SelectiveCkpt(policy, engine=engine, doctor=True), Copies()
    trainer = train(build("llama"), arguments(tmp_path, max_steps=2), callback, copies)
    for made in (*copies.copies, copy.deepcopy(trainer.model), pickle.loads(pickle.dumps(trainer.model))):
        ids = torch.zeros(2, 8, dtype=torch.long)
        made(input_ids=ids, labels=ids).loss.backward()
    for twin in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert str(twin.policy) == str(callback.policy)
    optimizer = trainer.optimizer.optimizer  # accelerate's wrapper around it has weak references of its own
    assert pickle.loads(pickle.dumps(optimizer)).state_dict().keys() == optimizer.state_dict().keys()
    assert callback.findings == []


class WithoutItsHead(Trainer):
    """Computes its loss from what the model in the model returns."""

    def compute_loss(self, model: Any, inputs: Any, **_: Any) -> Any:
        hidden = model.model(input_ids=inputs["input_ids"]).last_hidden_state
        return torch.nn.functional.cross_entropy(model.lm_head(hidden).flatten(0, 1), inputs["labels"].flatten())


@pytest.mark.parametrize(("policy", "engine"), POLICIES)
def test_a_loss_may_run_the_model_without_its_head(policy: str, engine: str, tmp_path: Path) -> None:
    callback, outcomes = SelectiveCkpt(policy, engine=engine), []
    for callbacks in ([], [callback]):
        args = arguments(tmp_path)
        trainer = WithoutItsHead(build("llama"), args, train_dataset=dataset(), callbacks=callbacks)
        trainer.train()
        outcomes.append(outcome(trainer))
    assert identical(*outcomes)
    assert callback.report is not None
    assert any(layer.replays for layer in callback.report.layers)


def test_alone_it_means_budget_auto(tmp_path: Path) -> None:
    reference = outcome(train(build("llama"), arguments(tmp_path)))
    callback = SelectiveCkpt()
    assert str(callback.policy) == "budget=auto"
    assert identical(outcome(train(build("llama"), arguments(tmp_path), callback)), reference)
    assert str(SelectiveCkpt(budget=0.5).policy) == "budget=0.5"
    assert str(SelectiveCkpt(budget="72GiB").policy) == "budget=72GiB"
    with pytest.raises(PolicyError, match="a policy or a budget, not both"):
        SelectiveCkpt("full", budget=0.5)


def test_alone_it_trains_a_model_without_transformers_switch(tmp_path: Path) -> None:
    def albert() -> Any:
        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
        return AlbertForMaskedLM(AlbertConfig(**sizes, embedding_size=16, vocab_size=256))

    reference = outcome(train(albert(), arguments(tmp_path)))
    callback = SelectiveCkpt("budget=auto+head(1)")  # a head in chunks adds the loss up in another order
    assert identical(outcome(train(albert(), arguments(tmp_path), callback)), reference)
    train(albert(), arguments(tmp_path), callback := SelectiveCkpt())
    assert callback.report is not None
    assert callback.report.recomputed_share == 0


def test_the_report_of_a_budget_is_that_of_the_plan(tmp_path: Path) -> None:
    """The first batch only teaches, under the smallest plan."""
    whole, half = SelectiveCkpt("none"), SelectiveCkpt(budget=0.5)
    train(build("qwen3"), arguments(tmp_path), whole)
    train(build("qwen3"), arguments(tmp_path), half)
    assert whole.report is not None
    assert half.report is not None
    layers = [sum(layer.held_bytes or 0 for layer in report.layers) for report in (whole.report, half.report)]
    assert 0.4 * layers[0] < layers[1] < 0.51 * layers[0]


def test_chunked_head_trains_the_same_up_to_summation_order(tmp_path: Path) -> None:
    reference = outcome(train(build("llama"), arguments(tmp_path)))
    result = outcome(train(build("llama"), arguments(tmp_path), SelectiveCkpt("full+head(4)")))
    assert result[0] == pytest.approx(reference[0], rel=1e-4)


def test_bad_policy_is_refused_at_construction() -> None:
    with pytest.raises(PolicyError, match="did you mean `full`"):
        SelectiveCkpt("ful")


def test_a_policy_that_does_not_fit_stops_before_step_one(tmp_path: Path) -> None:
    model = build("llama")
    step_before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(PolicyError, match="has 4 layers: 0 to 3"):
        train(model, arguments(tmp_path), SelectiveCkpt("layers(0-9)"))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), step_before, strict=True))


def test_fsdp_plugin_checkpointing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSDP_ACTIVATION_CHECKPOINTING", "true")
    with pytest.raises(ConflictError, match="recomputed twice"):
        train(build("llama"), arguments(tmp_path), SelectiveCkpt("full"))


def test_several_gpus_without_a_launcher_are_refused_with_its_line(tmp_path: Path) -> None:
    alone = arguments(tmp_path)
    alone._n_gpu = 2  # what TrainingArguments find where two GPUs are visible
    with pytest.raises(ConflictError, match=r"copies it every step: start .* `torchrun --nproc_per_node 2 SCRIPT`"):
        Trainer(build("llama"), alone, train_dataset=dataset(), callbacks=[SelectiveCkpt("full")])


class Freeze(TrainerCallback):
    """A callback that spoils the policy after it was applied."""

    def __init__(self, spoil: Any) -> None:
        self.spoil = spoil

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.spoil(model)


def _switch_off(model: Any) -> None:
    for layer in model.model.layers:
        layer.gradient_checkpointing = False


@pytest.mark.parametrize(
    ("policy", "engine", "spoil", "cause"),
    [
        ("full", "traced", _switch_off, "something switched it off"),
        ("full", "torch", _switch_off, "something switched it off"),
        ("attention", "torch", lambda m: vars(m.model.layers[2].self_attn).pop("forward"), "never went through"),
    ],
)
def test_no_effect_is_an_error_with_the_cause(policy: str, engine: str, spoil: Any, cause: str, tmp_path: Path) -> None:
    model = build("llama")
    with pytest.raises(NoEffectError, match=cause):
        train(model, arguments(tmp_path), SelectiveCkpt(policy, engine=engine), Freeze(spoil))
    assert not any(re.search("Region", repr(vars(m).values())) for m in model.modules()), "the model is restored"


def test_layers_below_the_lowest_adapter_need_no_recompute(tmp_path: Path) -> None:
    model = build("llama", lora=True)
    for name, parameter in model.named_parameters():
        if "layers.0." in name or "layers.1." in name:
            parameter.requires_grad_(False)
    callback = SelectiveCkpt("full")
    train(model, arguments(tmp_path), callback)
    assert callback.report is not None
    assert [layer.replays for layer in callback.report.layers] == [0, 0, 3, 3]


def test_two_callbacks_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConflictError, match=r"2 SelectiveCkpt callbacks, with the policies `full` and `mlp`: keep one"):
        train(build("llama"), arguments(tmp_path), SelectiveCkpt("full"), SelectiveCkpt("mlp"))


@pytest.mark.parametrize("policy", ["full@vision", "first(1)@last(1)", "offload"])
def test_a_policy_that_names_nothing_stops_before_the_first_step(policy: str, tmp_path: Path) -> None:
    model = build("llama")
    weights = copy.deepcopy(model.state_dict())
    with pytest.raises(PolicyError):
        train(model, arguments(tmp_path), SelectiveCkpt(policy))
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    apply(model, "full").restore()  # nothing of the refused policy is in the way
