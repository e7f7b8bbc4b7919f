"""A model that an object of the program trains: what that object does with its mode is in the program."""

from __future__ import annotations

import pytest
from hf_ckpt.lint.analysis.check_text import check_source

ENGINE = """
import torch
import unknown
from transformers import WhisperForConditionalGeneration

class Engine:
    def __init__(self, model, loader, hooks=()):
        self.model = model.to("cuda")
        self.model.gradient_checkpointing_enable({"use_reentrant": False})
        self.loader, self.hooks = loader, list(hooks)

    def start(self):
        pass

    def step(self, batch):
        loss = self.model(**batch).loss
        loss.backward()
        return loss.detach()

    def fit(self):
        self.start()
        for batch in self.loader:
            self.step(batch)

class Job:
    def __init__(self, engine):
        self.engine = engine

    def run(self):
        self.engine.fit()

def load():
    return WhisperForConditionalGeneration.from_pretrained("small")

"""
SWITCHING = """
class Switching(Engine):
    def start(self):
        self.model.train()

Switching(load(), batches).fit()
"""
HOOKED = """
class Hooked(Engine):
    def start(self):
        for hook in self.hooks:
            hook(self)

Hooked(load(), batches, [unknown.Hook()]).fit()
"""


@pytest.mark.parametrize(
    ("script", "is_found"),
    [
        ("Engine(load(), batches).fit()", True),
        ("engine = Engine(load(), batches)\nprint(engine)\nengine.fit()", True),
        ("Job(Engine(load(), batches)).run()", True),
        (SWITCHING, False),
        ("engine = Engine(load(), batches)\nengine.model.train()\nengine.fit()", False),
        (HOOKED, False),
        ("engine = Engine(load(), batches)\nunknown.prepare(engine)\nengine.fit()", False),
        ("Engine(unknown.load(), batches).fit()", False),
    ],
)
def test_an_object_that_trains_what_it_is_given(script: str, is_found: bool) -> None:
    """Nobody else switches the mode, unless the object is given away too."""
    found = {it.code for it in check_source(ENGINE + script, "train.py")}
    assert found == ({"CKPT203"} if is_found else set())
