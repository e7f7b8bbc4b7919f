"""The laws of the value domain."""

from __future__ import annotations

from hf_ckpt.lint.facts.values import (
    ABSENT,
    MAX_OPTIONS,
    UNKNOWN,
    Choice,
    Const,
    Ref,
    Unknown,
    equals,
    is_absent,
    join,
    options,
    same,
    truth,
)
from hypothesis import given
from hypothesis import strategies as st

plain = st.one_of(
    st.sampled_from([True, False, None, 0, 1, "", "x"]).map(Const),
    st.sampled_from(["torch.nn.Linear", "torch.compile"]).map(Ref),
    st.just(ABSENT),
    st.just(UNKNOWN),
)
values = st.lists(plain, min_size=1, max_size=3).map(lambda parts: join(*parts))


def alike(left, right) -> bool:
    """Equal as sets of alternatives."""
    mine, theirs = options(left), options(right)
    return all(any(same(a, b) for b in theirs) for a in mine) and all(any(same(a, b) for a in mine) for b in theirs)


@given(values, values)
def test_join_is_commutative(a, b):
    assert alike(join(a, b), join(b, a))


@given(plain, plain, plain)
def test_join_is_associative(a, b, c):
    assert alike(join(join(a, b), c), join(a, join(b, c)))


@given(values)
def test_join_is_idempotent(a):
    assert alike(join(a, a), a)


@given(values, values)
def test_join_never_makes_an_answer_more_certain(a, b):
    for question in (truth, is_absent, lambda value: equals(value, True), lambda value: equals(value, None)):
        joined = question(join(a, b))
        assert joined is None or (joined == question(a) == question(b))


def test_too_many_alternatives_are_unknown():
    assert isinstance(join(*(Const(number) for number in range(MAX_OPTIONS + 1))), Unknown)
    assert isinstance(join(*(Const(number) for number in range(MAX_OPTIONS))), Choice)


def test_one_is_not_true():
    assert equals(Const(1), True) is False
    assert same(Const(1), Const(True)) is False
    assert equals(UNKNOWN, True) is None
    assert equals(ABSENT, True) is False
