"""Runs transformers' checkpointing tests on one class, under its own switch and under policies in the switch's place."""

from __future__ import annotations

import unittest
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from transformers import PreTrainedModel

from hf_ckpt import apply
from hf_ckpt.anatomy import read_anatomy
from hf_ckpt.policy.decision import Role

from ..sweep.build import build
from ..sweep.classes import subjects
from .tester import Tester

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hf_ckpt import Handle

TESTS = (
    "test_training_gradient_checkpointing", "test_training_gradient_checkpointing_use_reentrant_false",
    "test_training_gradient_checkpointing_use_reentrant_true", "test_gradient_checkpointing_enable_disable",
    "test_peft_gradient_checkpointing_enable_disable", "test_enable_input_require_grads_with_gradient_checkpointing",
    "test_gradient_checkpointing_backward_compatibility",
)  # fmt: skip
STOCK = "transformers' switch"
SUBLAYERS = "every sublayer"
#: What recomputes: transformers' own switch, and policies that it is told to mean.
SWITCHES = (STOCK, "full", SUBLAYERS)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one test said under one switch; the reason is the last line of its traceback."""

    test: str
    switch: str
    passed: bool
    reason: str


def judge(model_class: str, mixin: Any) -> list[Verdict]:
    """Every test under every switch. Raises CannotBuildError when the generator cannot make the model."""
    subject = next(subject for subject in subjects() if subject.model_class == model_class)
    case = type(model_class, (mixin, unittest.TestCase), Tester(build(subject)).attributes())
    return [_run(case, test, switch) for switch in SWITCHES for test in TESTS]


def _run(case: type[unittest.TestCase], test: str, switch: str) -> Verdict:
    result = unittest.TestResult()
    with _meaning(switch):
        case(test).run(result)
    traces = [trace for _, trace in (*result.failures, *result.errors)]
    reason = traces[0].strip().splitlines()[-1][:300] if traces else ""
    return Verdict(test, switch, result.wasSuccessful(), reason)


@contextmanager
def _meaning(switch: str) -> Iterator[None]:
    """Inside, transformers' switch puts a policy on, and takes it off."""
    if switch == STOCK:
        yield
        return
    handles: dict[int, Handle] = {}

    def disable(model: Any) -> None:
        for module in model.modules():  # a part of a model turns its own when it is made
            if id(module) in handles:
                handles.pop(id(module)).restore()

    def enable(model: Any, *_: Any, **__: Any) -> None:
        disable(model)
        handles[id(model)] = apply(model, _every_role(model) if switch == SUBLAYERS else switch)

    with (
        patch.object(PreTrainedModel, "activation_checkpointing_enable", enable),
        patch.object(PreTrainedModel, "activation_checkpointing_disable", disable),
        patch.object(PreTrainedModel, "gradient_checkpointing_enable", enable),
        patch.object(PreTrainedModel, "gradient_checkpointing_disable", disable),
    ):
        yield


def _every_role(model: Any) -> str:
    """The sum of the policies for the sublayers that the model has."""
    roles = {role for layer in read_anatomy(model).layers for role in layer.info.sublayers}
    return "+".join(sorted({Role.MLP if role is Role.EXPERTS else role for role in roles}))
