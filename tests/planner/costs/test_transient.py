"""What a layer's backward needs: by hand on a chain, and counted in a real step."""

import dataclasses

import pytest
import torch

import hf_ckpt
from hf_ckpt.anatomy import read_anatomy
from hf_ckpt.assignment import Assignment
from hf_ckpt.engine import ledger_of, select
from hf_ckpt.head.options import head_option
from hf_ckpt.head.shape import head_shape
from hf_ckpt.ledger import Source
from hf_ckpt.measuring.peak import PeakMeter
from hf_ckpt.planner.costs.assemble import assemble, under
from hf_ckpt.planner.costs.assess import assess
from hf_ckpt.planner.costs.transient import transient_bytes
from hf_ckpt.planner.memory.state import gradient_bytes, late_gradient_bytes
from hf_ckpt.policy import decide, parse_policy

from ..planner_ledgers import Builder
from ..planner_models import RATES, build


def chain():
    b = Builder()
    x = b.buffer(10, Source.INPUT)
    (y,) = b.op([x], [(10, True)])
    (z,) = b.op([y], [(30, True)])
    b.op([z], [(10, False)])
    ledger = b.ledger()
    buffers = tuple(dataclasses.replace(x, dtype="torch.float32") for x in ledger.buffers)
    return dataclasses.replace(ledger, buffers=buffers), y, z


def test_with_everything_kept():
    ledger, y, z = chain()
    # In the last op's backward: both saved tensors, the gradients of its input and output.
    assert transient_bytes(ledger, held={y, z}) == 40 + 30 + 10


def test_whatever_the_plan():
    ledger, _, _ = chain()
    # The same with the layer's input, from which it may be replayed.
    assert transient_bytes(ledger) == 10 + 40 + 30 + 10


def test_what_is_dropped_comes_back_when_it_is_asked_for():
    b = Builder()
    x = b.buffer(10, Source.INPUT)
    (y,) = b.op([x], [(100, True)])
    (z,) = b.op([y], [(30, True)])
    b.op([z], [(70, True)])
    # The last op asks for z and what it made itself. y, which is dropped, comes when those are gone.
    assert transient_bytes(b.ledger(), held={z, 3}) == 10 + 100 + 30


def test_an_offloaded_input_goes_with_the_replay_that_reads_it_unless_it_is_saved():
    def peak(saved, offloaded):
        b = Builder()
        x = b.buffer(10, Source.INPUT, saved=saved)
        (y,) = b.op([x], [(40, True)])
        (z,) = b.op([y], [(30, True)])
        b.op([z], [(50, False)])
        ledger = b.ledger()
        floats = tuple(dataclasses.replace(x, dtype="torch.float32") for x in ledger.buffers)
        return transient_bytes(dataclasses.replace(ledger, buffers=floats), held={x} if offloaded else frozenset())

    replayed, gradients = 40 + 30, 30 + 50
    assert peak(saved=False, offloaded=True) == replayed + gradients
    assert peak(saved=True, offloaded=True) == 10 + replayed + gradients
    assert peak(saved=False, offloaded=False) == 10 + replayed + gradients


def forward_backward(model, ids):
    model.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()


def ledgers_of(model, ids):
    found = []

    def note(call, *args):
        found.append(ledger_of(call, *args))
        return call(*args)

    layers = [layer.module for layer in read_anatomy(model).layers]
    for layer in layers:
        layer.gradient_checkpointing, layer._gradient_checkpointing_func = True, note
    model(input_ids=ids)
    for layer in layers:
        layer.gradient_checkpointing = False
        del layer._gradient_checkpointing_func
    return found


@pytest.mark.parametrize("policy", ["none", "full", "attention", "mlp", "norm", "dots_saveable"])
@pytest.mark.parametrize("name", ["llama", "gpt2-dropout"])
def test_the_peak_of_a_real_step(name, policy):
    model = build(name)
    ids = torch.randint(0, 97, (2, 96))
    ledgers, anatomy = ledgers_of(model, ids), read_anatomy(model)
    decisions = decide(parse_policy(policy), anatomy.stacks)
    plans = [
        select(decisions[layer.info.name], ledger, layer.info.sublayers)
        for layer, ledger in zip(anatomy.layers, ledgers, strict=True)
    ]
    grown = [gradient_bytes(layer.module.parameters()) for layer in anatomy.layers]
    late = late_gradient_bytes(model)
    head = head_option(head_shape(model, ids.numel()), 1, RATES.stream)
    others = gradient_bytes(model.parameters()) - sum(grown) - late
    problem = assemble(ledgers, RATES, gradients=grown, heads=(head,), head_gradients=others, late_gradients=late)
    handle = hf_ckpt.apply(model, policy)
    for _ in range(2):
        forward_backward(model, ids)
    model.zero_grad()
    with PeakMeter(ids.device) as meter:
        model(input_ids=ids, labels=ids).loss.backward()
    handle.restore()
    assert assess(under(problem, plans), plans, head).peak == pytest.approx(meter.peak_bytes, rel=0.05)


def test_a_mask_that_only_a_replay_reads_counts_where_there_is_one():
    b = Builder()
    x, mask = b.buffer(10, Source.INPUT), b.buffer(7, Source.INPUT)
    (y,) = b.op([x, mask], [(10, True)])
    ledger = b.ledger()
    problem = assemble([ledger, ledger], RATES)
    kept, dropped = Assignment.where(keep=[y]), Assignment()
    assert problem.shared == under(problem, [kept, kept]).shared == 0
    assert under(problem, [dropped, kept]).shared == 7


def test_what_layers_share_counts_once_for_all_that_are_given_it():
    b = Builder()
    x, mask = b.buffer(10, Source.INPUT), b.buffer(7, Source.INPUT, saved=True)
    (y,) = b.op([x, mask], [(10, True)])
    ledger, kept = b.ledger(), Assignment.where(keep=[y])
    for given, shared in (((), 7), (((1, 5), (2, 5), (3, 5)), 7), (((1, 5), (2, 5), (3, 6)), 14), (((1, 5), (2,)), 7)):
        problem = assemble([ledger] * 3, RATES, given=given)
        assert problem.shared == under(problem, [kept] * 3).shared == shared


def test_a_layer_without_a_ledger_is_given_as_much_as_others_of_its_class():
    def ledger(nbytes, name):
        b = Builder()
        b.op([b.buffer(nbytes, Source.INPUT)], [(10, True)])
        return b.ledger(name)

    known = [ledger(50, "Large"), ledger(8, "Small"), None, None]
    problem = assemble(known, RATES, class_names=["Large", "Small", "Small", "Other"])
    assert [problem.kind(layer).own_input.nbytes for layer in (2, 3)] == [8, 50]


def test_a_piece_comes_back_with_those_in_it_and_what_is_around_it_is_there_all_along():
    b = Builder()
    b.buffer(1, Source.INPUT)
    first, sign = b.op([], [(20, True), (0, False)])
    second, other = b.op([], [(30, True), (0, False)])
    around, all_of_it = b.op([sign, other], [(5, True), (0, False)])
    behind, last = b.op([], [(40, True), (0, False)])
    (layer,) = b.op([all_of_it, last], [(7, True)])
    ledger = dataclasses.replace(b.ledger(), workspace=100)
    everything = {first, second, around, behind, layer}

    def alive(*dropped):
        return transient_bytes(ledger, held=everything - {*dropped}) - 1 - 100

    whole = 20 + 30 + 5 + 40 + 7
    assert alive() == alive(*everything) == transient_bytes(ledger) - 1 - 100 == whole
    assert alive(behind) == whole  # it comes back while all before it is there
    assert alive(first) == whole - 20
    assert alive(first, second) == 7 + 5 + 40
    assert alive(first, second, around) == 7 + max(20 + 30 + 5, 40)
