"""Which variant of checkpointing a setting selects: reentrant (True), non-reentrant (False), or not known (None)."""

from __future__ import annotations

from ..facts.values import Absent, Const, Dict, Value, options

#: Keys the Trainer takes out of the dict before torch sees it.
TRAINER_KEYS = ("every_n_layers", "offload", "selective")


def torch_reentrant(use_reentrant: Value) -> bool | None:
    """The variant torch runs for this ``use_reentrant``: not given and None mean reentrant."""
    answers = {_torch_reentrant(option) for option in options(use_reentrant)}
    return answers.pop() if len(answers) == 1 else None


def _torch_reentrant(value: Value) -> bool | None:
    match value:
        case Absent() | Const(None):
            return True
        case Const(constant):
            return bool(constant)
    return None


def hf_kwargs_reentrant(kwargs: Value, default: bool | None) -> bool | None:
    """The variant transformers runs for this dict; ``default`` is the one for no dict at all."""
    answers: set[bool | None] = set()
    for option in options(from_json(kwargs)):
        match option:
            case Absent() | Const(None):
                answers.add(default)
            case Dict():
                answers.add(torch_reentrant(option.get("use_reentrant")))
            case _:
                answers.add(None)
    return answers.pop() if len(answers) == 1 else None


def from_json(value: Value) -> Value:
    """A dict given as JSON text, as the command line does it, becomes the dict."""
    if not (isinstance(value, Const) and isinstance(value.value, str) and value.value.startswith("{")):
        return value
    import json  # start-up: settings are seldom given as JSON

    try:
        loaded = json.loads(value.value)
    except ValueError:
        return value
    return Dict({key: Const(item, value.node) for key, item in loaded.items()}, False, value.node)
