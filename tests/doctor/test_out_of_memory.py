"""An out-of-memory error under SelectiveCkpt: the right cause and line, the same error, the model restored."""

from __future__ import annotations

import contextlib
import gc
import logging
import re
from weakref import ref

import pytest
import torch
from transformers import Trainer

import hf_ckpt
from hf_ckpt import SelectiveCkpt
from hf_ckpt.doctor.cause import find_causes
from hf_ckpt.doctor.census import holders
from hf_ckpt.doctor.census.census import Census, Kind
from hf_ckpt.doctor.census.take import take_census
from hf_ckpt.doctor.evidence import Evidence, Phase
from hf_ckpt.doctor.history import Step
from hf_ckpt.doctor.out_of_memory import _ASKED, _LIVE, bytes_in, exhausted_device
from hf_ckpt.doctor.paragraph import paragraph
from hf_ckpt.doctor.remedies.batch import smaller_batch
from hf_ckpt.doctor.usage import Usage
from hf_ckpt.doctor.watch import Watch
from hf_ckpt.measuring.memory_limit import MemoryLimit
from hf_ckpt.planner.batches.per_batch import BatchSize
from hf_ckpt.planner.calibration.calibrate import calibration

from ..models import fingerprint
from .memory_faults import FAULTS, ROOM, Fault
from .runs import arguments, pad, run, small_llama, texts


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_names_the_cause_and_the_line(fault: Fault, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="hf_ckpt"):
        callback, error, _ = fault.train()
    assert isinstance(error, torch.OutOfMemoryError), repr(error)
    found = callback.diagnosis
    assert found is not None, caplog.text
    assert [cause.cause for cause in found.causes][:1] == [fault.cause], found.text
    place = found.causes[0].place
    assert fault.line is None or (place is not None and place.line == fault.line), found.text
    assert found.text in caplog.text


def test_the_error_is_the_same_and_the_model_is_restored() -> None:
    model = small_llama()
    run(ROOM, model, texts([32] * 4), arguments_of={"max_steps": 1})  # the Trainer leaves marks of its own
    before = fingerprint(model)
    callback, error, _ = run(ROOM, model, texts([32] * 8 + [400] * 8))
    assert isinstance(error, torch.OutOfMemoryError)
    assert "Tried to allocate" in str(error)
    assert error.__cause__ is None
    assert error.__context__ is None
    assert not hasattr(error, "__notes__")
    assert callback.diagnosis is not None
    after = fingerprint(model)
    assert after == before


def test_what_would_have_fitted_does() -> None:
    lengths = [32] * 8 + [160] * 8
    callback, error, _ = run(2_400_000, small_llama(), texts(lengths))
    assert error is not None
    assert callback.diagnosis is not None
    text = callback.diagnosis.text
    policy = re.search(r'SelectiveCkpt\("(.*?)"\)', text)
    rows = re.search(r"per_device_train_batch_size=(\d+)", text)
    assert policy is not None, text
    assert rows is not None, text
    assert run(2_400_000, small_llama(), texts(lengths), policy=policy[1])[1] is None, text
    page = callback.diagnosis.html()
    assert page.count("<svg") == page.count("Spike: ") == 2
    assert f"<h2>{policy[1]}, by forecast</h2>" in page
    fewer = {"per_device_train_batch_size": int(rows[1])}
    assert run(2_400_000, small_llama(), texts(lengths), arguments_of=fewer)[1] is None, text


def test_a_loop_without_a_trainer_is_diagnosed() -> None:
    model = small_llama().train()
    optimizer = torch.optim.AdamW(model.parameters())
    diagnosed = hf_ckpt.Diagnosed(model, optimizer)
    kept = []

    def train() -> None:
        for example in texts([32] * 60):
            ids = example["input_ids"].repeat(2, 1)
            with diagnosed.step():
                output = model(input_ids=ids, labels=ids)
                kept.append(output.logits)
                output.loss.backward()
                optimizer.step()
                optimizer.zero_grad()

    with MemoryLimit(ROOM, model), pytest.raises(torch.OutOfMemoryError):
        train()
    diagnosed.undo()
    assert diagnosed.diagnosis is not None
    assert diagnosed.diagnosis.causes[0].cause == "growing-holder", diagnosed.diagnosis.text
    assert "`kept` holds" in diagnosed.diagnosis.text
    assert not model._forward_hooks


def test_a_budget_that_nothing_fits_ends_with_the_error() -> None:
    calibration(torch.device("cpu"))  # its benchmark takes more than this limit, the first time
    callback, error, _ = run(2_000_000, small_llama(), texts([32] * 8 + [400] * 8), policy="budget=auto")
    assert isinstance(error, torch.OutOfMemoryError)
    assert callback.diagnosis is not None


def test_a_diagnosis_that_fails_says_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object) -> None:
        raise ValueError("the doctor is ill")

    monkeypatch.setattr("hf_ckpt.doctor.out_of_memory.take_census", broken)
    callback, error, _ = run(ROOM, small_llama(), texts([32] * 8 + [400] * 8))
    assert isinstance(error, torch.OutOfMemoryError)
    assert error.__context__ is None
    assert callback.diagnosis is None
    assert "doctor is ill" not in caplog.text


def test_other_errors_are_not_diagnosed(caplog: pytest.LogCaptureFixture) -> None:
    model = small_llama()

    def fail(*_: object) -> None:
        raise ValueError("not about memory")

    model.model.layers[2].register_forward_hook(fail)
    callback, error, _ = run(ROOM, model, texts([32] * 8))
    assert isinstance(error, ValueError)
    assert callback.diagnosis is None
    assert "Out of memory" not in caplog.text


CUDA = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 79.25 GiB of which 1.12 GiB is free. "
    "Including non-PyTorch memory, this process has 78.11 GiB memory in use. Of the allocated memory 70.00 GiB is "
    "allocated by PyTorch, and 7.50 GiB is reserved by PyTorch but unallocated."
)


def test_reads_what_cuda_says() -> None:
    assert bytes_in(_ASKED, CUDA) == int(2.5 * 2**30)
    assert bytes_in(_LIVE, CUDA) == 70 * 2**30
    error = torch.OutOfMemoryError(CUDA)
    assert exhausted_device(error, torch.device("cuda", 0)) == torch.device("cuda", 0)
    assert exhausted_device(error, torch.device("cuda", 1)) == torch.device("cuda", 0)
    assert exhausted_device(error, torch.device("cpu")) == torch.device("cpu")


def test_of_a_card_that_was_not_watched_only_what_it_holds_is_told() -> None:
    """The figures are those that two cards would give, in GiB: the first was watched, the second ran out."""
    size = BatchSize(1000, 100)
    steps = [Step(n, live=10, sizes=[size], peak=60) for n in range(1, 5)]
    evidence = Evidence(
        Phase.FORWARD, 3, Usage(80, 79, others=1), Usage(80, 10), Census({Kind.WEIGHTS: 60, Kind.KEPT: 19}),
        fitted=tuple(steps[:3]), most=dict(size.measures), first=1, step=steps[3], waiting=1, trained=(1, 1), place=None,
    ).on_another_card("cuda:1")  # fmt: skip
    assert find_causes(evidence) == []
    assert smaller_batch(evidence) is None
    assert paragraph(evidence, []).startswith("Out of memory in the forward of step 4 on cuda:1, which asked for")


@pytest.mark.parametrize(
    ("usage", "cause"),
    [
        (Usage(80, 70, unused=7, others=1), "fragmentation"),
        (Usage(80, 60, unused=1, others=19), "other-process"),
        (Usage(80, 78, unused=1, others=1), None),
    ],
)
def test_causes_outside_this_process_need_their_figures(usage: Usage, cause: str | None) -> None:
    """No such device is here: the figures are those an allocator and a driver would give, in GiB."""
    evidence = Evidence(
        Phase.FORWARD, 3, usage, Usage(80, 10, others=1), Census({Kind.WEIGHTS: 10, Kind.KEPT: usage.live - 10}),
        fitted=(Step(1), Step(2)), most={}, first=1, step=Step(3), waiting=1, trained=(1, 1), place=None,
    )  # fmt: skip
    assert [found.cause for found in find_causes(evidence)] == ([] if cause is None else [cause])


def test_what_does_not_grow_memory_is_no_cause() -> None:
    """Gradients that are never freed are added to in place: such a run ends, and nothing is said."""
    for more in ({"gradient_accumulation_steps": 8}, {"max_grad_norm": 0.0}):
        callback, error, _ = run(ROOM, small_llama(), texts([32] * 64), arguments_of={"max_steps": 4, **more})
        assert error is None
        assert callback.diagnosis is None


def test_what_cannot_be_watched_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("the doctor is ill")

    monkeypatch.setattr("hf_ckpt.planner.batches.call_size.CallMeter.size", broken)
    callback, error, _ = run(ROOM, small_llama(), texts([32] * 16), arguments_of={"max_steps": 4})
    assert error is None
    assert callback.report is not None


def _left_by_an_error(model: torch.nn.Module) -> int:
    """Bytes that a training which ran out of memory leaves alive once the error is gone."""
    trainer = Trainer(
        model,
        arguments(),
        train_dataset=texts([32] * 8 + [400] * 8),
        data_collator=pad,
        callbacks=[SelectiveCkpt("full")],
    )
    gc.collect()
    gc.disable()
    try:
        with MemoryLimit(ROOM, model) as limit:
            with contextlib.suppress(torch.OutOfMemoryError):
                trainer.train()
            return limit.live_bytes
    finally:
        gc.enable()


def test_a_diagnosis_holds_nothing_of_the_step_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    told = _left_by_an_error(small_llama())
    monkeypatch.setattr("hf_ckpt.callbacks.diagnosed.diagnose", lambda *_: None)
    assert told <= _left_by_an_error(small_llama())


def _logits_of_a_forward_in_a_census(model: torch.nn.Module) -> ref[torch.Tensor]:
    watch = Watch(model)
    watch.begin_step(1)
    output = model(input_ids=torch.zeros(2, 16, dtype=torch.long))
    assert take_census(watch, None, (), Usage(None, 0)).bytes_of
    return ref(output.logits)


def test_a_census_holds_nothing() -> None:
    model = small_llama()
    gc.collect()
    gc.disable()
    try:
        assert _logits_of_a_forward_in_a_census(model)() is None
    finally:
        gc.enable()


def test_of_a_huge_container_only_a_part_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = [[0] * 10 for _ in range(10)]
    last = torch.zeros(1)
    assert holders._tensors_in([*tokens, last]) == [last]
    monkeypatch.setattr(holders, "_LEAVES", 100)
    assert holders._tensors_in([*tokens, last]) == []


def test_a_peak_of_the_run_is_that_of_its_largest_batch() -> None:
    """Peaks are counted from the start of the run: a short batch after a long one has the long one's."""
    sizes = {1: 1000, 2: 1000, 3: 100, 4: 2000}
    steps = [Step(n, live=10, sizes=[BatchSize(tokens, tokens // 10)], peak=60) for n, tokens in sizes.items()]
    evidence = Evidence(
        Phase.FORWARD, 3, Usage(90, 10), Usage(90, 10), Census({}), fitted=tuple(steps[:3]), most={}, first=1,
        step=steps[3], waiting=1, trained=(1, 1), place=None,
    )  # fmt: skip
    assert "batches of 1,600 tokens fit" in str(smaller_batch(evidence))
