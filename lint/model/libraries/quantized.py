"""Whether a model of transformers is loaded quantized."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...facts.values import Absent, Attr, Const, Dict, Instance, Param, Ref, Result, Value
from ..conditions.possible import options_at, truth_at
from ..types import unwrapped

if TYPE_CHECKING:
    from ...facts.values import Call, Place
    from ..run import Run

_SWITCHES = ("load_in_4bit", "load_in_8bit")
_CONFIGS = re.compile(r"(BitsAndBytes|GPTQ|AqlM?|AQLM|Eetq|Hqq|TorchAo|Quanto)\w*Config$", re.IGNORECASE)
#: What transformers keeps in each layer: the switch and the variant.
_IN_LAYERS = ("gradient_checkpointing", "_gradient_checkpointing_func")
#: Names of weights that are stored quantized.
_STORED = re.compile(r"gptq|aqlm|eetq|hqq|bnb|torchao|[48]-?bit|int[48]", re.IGNORECASE)


def is_quantized(run: Run, model: Value, place: Place) -> bool | None:
    """Whether ``model`` is, at ``place``, one that peft takes for quantized; None when the program leaves it open."""
    return _agreed({_is_quantized(run, unwrapped(option), place) for option in options_at(model, place)})


def _agreed(answers: set[bool | None]) -> bool | None:
    return answers.pop() if len(answers) == 1 else None


def _is_quantized(run: Run, model: Value, place: Place) -> bool | None:
    if any(write.field.startswith("is_loaded_in") for write in run.writes):
        return True
    match model:
        case Param():
            return True  # A function that is given a model to prepare is written for a quantized one.
        case Result(call) if call.method or (isinstance(call.func, Ref) and "from_" in call.name):
            return _is_loaded_quantized(call, place)
        case Attr(base=Param() | Instance()):
            return None  # What an object holds was loaded somewhere else, for other uses too.
    return True


def _is_loaded_quantized(call: Call, place: Place) -> bool | None:
    found = [_switched(call.keyword(name), place) for name in _SWITCHES]
    config = call.kwargs.get("quantization_config")
    # What `**kwargs` may hold is not known to be a configuration.
    found.append((None if call.open_kwargs else False) if config is None else _config(config, place))
    if True in found:
        return True
    if None in found:
        return None
    name = call.argument(0, "pretrained_model_name_or_path")
    if isinstance(name, Const):
        return isinstance(name.value, str) and _STORED.search(name.value) is not None
    return None


def _switched(given: Value, place: Place) -> bool | None:
    return _agreed({not isinstance(way, Absent) and truth_at(way, place) for way in options_at(given, place)})


def _config(given: Value, place: Place) -> bool | None:
    """Whether the `quantization_config` quantizes."""
    return _agreed({_one_config(option, place) for option in options_at(given, place)})


def _one_config(given: Value, place: Place) -> bool | None:
    match given:
        case Absent():
            return False
        case Const(value):
            return value is not None
        case Result(call) if _CONFIGS.search(call.name):
            return _is_on(call, place)
        case Dict():
            return True
    # What is passed on from elsewhere as the configuration is one.
    return True


def _is_on(call: Call, place: Place) -> bool | None:
    """Whether a configuration says which way to quantize; those of bitsandbytes do nothing until told to."""
    if not call.name.endswith("BitsAndBytesConfig"):
        return True
    given = [_switched(call.keyword(name), place) for name in _SWITCHES]
    if True in given:
        return True
    return None if None in given else False


def sets_in_layers(run: Run, after: int = 0) -> bool:
    """Whether the program writes the switch or the variant into layers itself, behind the order ``after``."""
    return any(write.field in _IN_LAYERS and write.order > after for write in run.writes)
