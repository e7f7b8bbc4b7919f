"""The few moments that can peak, against all of them."""

import dataclasses

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_ckpt.planner.costs.problem import Problem
from hf_ckpt.planner.solver.peak_candidates import peak_candidates

from ..planner_ledgers import kinds, llama_kind, problems


@st.composite
def stacks(draw):
    """A stack of a repeated pattern, or any other, with what each layer holds: of every kind, the least first."""
    types = tuple(draw(st.lists(kinds(max_ops=2), min_size=1, max_size=2)))
    pattern = draw(st.lists(st.integers(0, len(types) - 1), min_size=1, max_size=4))
    order = tuple(pattern * draw(st.integers(1, 4)))[: draw(st.integers(1, 12))]
    problem = Problem(types, order)
    held = [0] * len(order)
    for k in range(len(types)):
        layers = [i for i, kind in enumerate(order) if kind == k]
        sizes = draw(st.lists(st.integers(0, 20), min_size=len(layers), max_size=len(layers)))
        for layer, size in zip(layers, sorted(sizes), strict=True):
            held[layer] = size
    return problem, held


def alive_at(problem, held, layer):
    return sum(held[:layer]) + problem.backward_bytes[layer]


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(stacks())
def test_no_other_moment_is_worse(stack):
    problem, held = stack
    everywhere = (alive_at(problem, held, layer) for layer in range(len(held)))
    assert max(alive_at(problem, held, layer) for layer in peak_candidates(problem)) == max(everywhere)


@given(problems())
def test_the_last_layer_is_one_of_them(problem):
    assert peak_candidates(problem)[-1] == len(problem.order) - 1


def test_a_pattern_leaves_its_first_and_its_last_repetition():
    kind = dataclasses.replace(llama_kind(), gradients=1 << 20)
    other = dataclasses.replace(llama_kind(inner=8192), gradients=1 << 20)
    problem = Problem((kind, other), ((0,) * 5 + (1,)) * 10)
    assert set(peak_candidates(problem)) <= {*range(6), *range(54, 60)}
