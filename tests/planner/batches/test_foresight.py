"""A batch of a new length gets its own plan at once: what it will save is arithmetic on the traces of other lengths."""

import pytest
import torch
from peft import PromptTuningConfig, get_peft_model

from hf_ckpt.engine import clear_traces
from hf_ckpt.errors import BudgetError
from hf_ckpt.head.install import install
from hf_ckpt.ledger import LayerLedger
from hf_ckpt.planner.batches.foresight import foreseen
from hf_ckpt.planner.batches.per_batch import BatchSize

from ..planner_models import build, conduct, nothing_used


def step(model, length, rows=2):
    model.zero_grad()
    torch.manual_seed(length)
    ids = torch.randint(0, 97, (rows, length))
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def saved(ledger: LayerLedger) -> int:
    return sum(buffer.nbytes for buffer in ledger.saved_activations())


@pytest.mark.parametrize("budget", ["0.5", "1800KiB"])
def test_a_curriculum_learns_once_and_every_length_holds_what_was_planned(budget):
    model, plain = build(), build()
    # A head in chunks adds the loss up in another order.
    planner = conduct(model, budget, memory=nothing_used(), gradients_grow=True, head=install(model, 1))
    step(model, 16)
    step(model, 16)
    for length in range(20, 100, 8):
        assert all(map(torch.equal, step(model, length), step(plain, length)))
        assert planner.current is not None
        assert planner.learning.forwards == 1
        assert not planner.learning.foreseen
        size = next(size for size, plan in planner.book.plans.items() if plan is planner.current)
        assert size.length in (length, BatchSize(2 * length, length).with_margin.length)
        told = planner.learning.foresight.ledgers(BatchSize(2 * length, length))
        assert told is not None
        kept_whole = planner.current.whole
        for index, layer in enumerate(planner.layers):
            if layer.engine.ledger() is not None and index not in kept_whole:
                assert saved(told[index]) == saved(layer.engine.ledger())


def plain_batch(length):
    return {"input_ids": torch.randint(0, 97, (2, length))}


def padded_batch(length):
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, : length // 3] = 0
    return plain_batch(length) | {"attention_mask": mask}


def packed_batch(length):
    first = length // 2 + 1
    positions = torch.cat([torch.arange(first), torch.arange(length - first)])
    return {"input_ids": torch.randint(0, 97, (1, length)), "position_ids": positions[None]}


@pytest.mark.parametrize("batch", [padded_batch, packed_batch])
def test_sixty_lengths_are_traced_once_and_learnt_once(batch):
    clear_traces()
    model = build()
    planner = conduct(model, 0.5)
    torch.manual_seed(0)
    for length in torch.randperm(120)[:60].add(8).tolist():
        inputs = batch(length)
        model(**inputs, labels=inputs["input_ids"]).loss.backward()
    assert planner.learning.forwards == 1
    assert all(layer.engine.report().traces <= 1 for layer in planner.layers)
    assert len(planner.book.plans) <= 20


def test_a_forecast_that_is_wrong_is_mended_by_the_forward_that_shows_it():
    def prompted():
        torch.manual_seed(0)
        config = PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=5)
        return get_peft_model(build(), config).train()

    model, plain = prompted(), prompted()
    planner = conduct(model, 0.5)
    wrong = []
    for length in (24, 40, 60, 96):
        assert all(map(torch.equal, step(model, length), step(plain, length)))
        wrong.append(
            BatchSize(2 * length, length)
            in planner.learning.foresight._met[planner.layers[0].engine.sized_trace().trace]
        )
    assert planner.learning.forwards == 1
    assert wrong == [True, True, False, False]  # two lengths tell how many virtual tokens there are
    assert not planner.learning.foreseen


def test_a_batch_of_another_kind_of_shape_is_learnt():
    model = build()
    planner = conduct(model, 0.5)
    for rows in (1, 3, 2):
        step(model, 24, rows=rows)
    assert planner.learning.forwards == 2  # a trace of one row holds for one row


def test_where_nothing_is_foreseen_to_fit_the_batch_itself_must_show_it():
    model = build()
    conduct(model, "600KiB", memory=nothing_used())
    step(model, 8)
    step(model, 8)
    with pytest.raises(BudgetError, match="no plan fits"):
        step(model, 128)


@pytest.mark.parametrize(
    ("met", "expected"),
    [
        ([(4, 16, 16)], 40),  # the length
        ([(4, 16, 4)], 6),  # the rows
        ([(4, 16, 64)], 240),  # all tokens
        ([(4, 16, 256)], 1600),  # a square
        ([(4, 16, 21), (6, 24, 29)], 45),  # five more than the length
        ([(4, 16, 7), (4, 24, 7), (2, 8, 7)], 7),  # always the same
        ([(4, 16, 21)], 79),  # no rule: no more than it grows
        ([(4, 64, 90), (4, 48, 5), (4, 32, 50)], 7),  # no rule: no more than the least bound
    ],
)
def test_rules_of_symbols(met, expected):
    series = [(BatchSize(rows * length, length), value) for rows, length, value in met]
    assert foreseen(series, BatchSize(6 * 40, 40)) == expected
