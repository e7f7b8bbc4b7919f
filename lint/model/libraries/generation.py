"""Whether transformers' `generate` keeps its key/value cache, which is its default."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from ...facts.identifiers import words_in
from ...facts.nodes import all_nodes
from ...facts.values import equals, is_given
from ..events import TrainerArgs
from ..types import is_hf_model

if TYPE_CHECKING:
    from ...facts.values import Call, Function
    from ..run import Run

#: Names of configurations.
_SETTINGS = re.compile(r"cfg|conf|gen|args|sampl|option")

#: Settings that come from elsewhere: a folder, a dict, a configuration.
_LOADED = tuple(f"transformers.GenerationConfig.{way}" for way in ("from_pretrained", "from_dict", "from_model_config"))


def uses_cache(run: Run, generate: Call) -> bool:
    """Whether ``generate`` certainly uses the cache: it says so, or nothing in the program sets another value."""
    if is_given(generate, "use_cache"):
        return equals(generate.keyword("use_cache"), True) is True
    if any(word.arg is None and _is_setting(word.value) for word in generate.node.keywords):
        return False
    if not all(equals(loaded.keyword("use_cache"), True) is True for loaded in run.calls_to(*_LOADED)):
        return False  # What a folder holds is not shown.
    return not _may_be_set(run)


def asks_for_metrics(function: Function) -> bool:
    """Whether ``function`` looks for what an evaluation logs, `if "eval_loss" in logs`: it may act on that alone."""
    texts = (node.value for node in all_nodes(function.node) if isinstance(node, ast.Constant))
    return any(isinstance(text, str) and "eval" in text for text in texts)


@lru_cache(maxsize=1)
def _may_be_set(run: Run) -> bool:
    """Whether the program sets `use_cache`, other than for a forward pass and in a Trainer's arguments.

    transformers' `trainer.py` writes theirs to `model.config`, which `generate` does not read.
    """
    calls = [settings.call for settings in run.of(TrainerArgs)]
    for call in run.program.calls:
        if is_hf_model(call.func) or equals(call.keyword("use_cache"), True) is True:
            calls.append(call)
    harmless = {id(node) for call in calls for node in (call.node, *_keys(call.node))}
    nodes = (node for tree in run.program.trees for node in all_nodes(tree))
    return any(_may_set(node) for node in nodes if id(node) not in harmless)


def _keys(call: ast.Call) -> list[ast.expr | None]:
    """The keys of the dicts that ``call`` spreads where they are written, `f(**{"key": 1})`."""
    spread = (word.value for word in call.keywords if word.arg is None)
    return [key for given in spread if isinstance(given, ast.Dict) for key in given.keys]


def _is_setting(given: ast.expr) -> bool:
    """Whether ``given`` is a part of a configuration that the program does not show: `**cfg.generation`."""
    is_part = isinstance(given, ast.Attribute | ast.Subscript)
    return is_part and any(_SETTINGS.search(word) for word in words_in(given))


def _may_set(node: ast.AST) -> bool:
    """Whether ``node`` names `use_cache` where `generate` may find it; `model.config` is no such place."""
    match node:
        case ast.Attribute(attr="use_cache", value=ast.Attribute(attr="config", value=owner), ctx=ast.Store()):
            return isinstance(owner, ast.Name) and owner.id == "self"
        case ast.Attribute(attr="use_cache") | ast.Constant(value="use_cache"):
            return True
        case ast.Call(func=ast.Attribute(attr="generate" | "forward")):
            return False
        case ast.Call(keywords=words):
            return any(word.arg == "use_cache" for word in words)
    return False
