"""The stored signatures are those of the installed libraries, and what is said to raise a TypeError does."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest
import torch
from hf_ckpt.lint.model.libraries.signatures import SIGNATURES
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_stored_signature_is_the_installed_one(name):
    module, _, function = name.rpartition(".")
    parameters = inspect.signature(getattr(import_module(module), function)).parameters.values()
    stored = SIGNATURES[name]
    named = [parameter for parameter in parameters if parameter.kind in _BY_POSITION]
    assert tuple(parameter.name for parameter in named) == stored.parameters
    assert sum(parameter.default is inspect.Parameter.empty for parameter in named) == stored.required
    assert any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters) == stored.open


@pytest.mark.parametrize("implementation", list(CheckpointImpl))
@pytest.mark.parametrize("word", SIGNATURES[checkpoint_wrapper.__module__ + ".checkpoint_wrapper"].taken)
def test_keywords_that_are_taken_already_raise(word, implementation):
    with pytest.raises(TypeError, match=word):
        checkpoint_wrapper(torch.nn.Linear(2, 2), implementation, **{word: False})
