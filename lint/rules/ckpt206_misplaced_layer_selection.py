"""`every_n_layers` and `offload` in a dict whose keys go to the layers.

## What it does
Flags the keys `every_n_layers` and `offload` in the dict given to `activation_checkpointing_enable` (or
`gradient_checkpointing_enable`), and in the kwargs of trl's DPO, KTO, GRPO and RLOO configurations, also when they are
written later, by the old name. In the kwargs of a plain `TrainingArguments` they are right: the Trainer takes them out.

## Why is this bad?
The dict is for torch's `checkpoint`, which hands keys it does not know to the layer. Layers that accept any keyword
ignore them: every layer is checkpointed and nothing is offloaded, without an error. The reentrant variant stops with
`Unexpected keyword arguments`. The trainers of trl named above enable checkpointing again with the whole dict after
each pass of the reference model.

## Bad
```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("base")
model.activation_checkpointing_enable({"use_reentrant": False, "every_n_layers": 2})  # error
```
```python
from transformers import LlamaForCausalLM

def build(config):
    kwargs = dict(use_reentrant=False, offload=True)
    model = LlamaForCausalLM(config)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=kwargs)  # error
    return model
```
```python
from trl import GRPOConfig

args = GRPOConfig("out", activation_checkpointing_kwargs={"use_reentrant": False, "every_n_layers": 2})  # error
```

## Good
```python
from transformers import AutoModelForCausalLM, TrainingArguments
from trl import DPOConfig, SFTConfig

model = AutoModelForCausalLM.from_pretrained("base")
model.activation_checkpointing_enable({"use_reentrant": False}, every_n_layers=2)
args = TrainingArguments(
    "out", activation_checkpointing=True, activation_checkpointing_kwargs={"use_reentrant": False, "every_n_layers": 2}
)
args = SFTConfig("out", activation_checkpointing_kwargs={"use_reentrant": False, "every_n_layers": 2})
args = DPOConfig(
    "out",
    precompute_ref_log_probs=True,
    activation_checkpointing_kwargs={"use_reentrant": False, "every_n_layers": 2},
)
args = DPOConfig("out", activation_checkpointing_kwargs={"use_reentrant": False})
```

## Fix safety
Unsafe: fewer layers are checkpointed, or activations offloaded, which is what was meant but changes memory and speed.

## Evidence
```python
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from trl.models.utils import disable_gradient_checkpointing

config = LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=4, num_attention_heads=2,
    num_key_value_heads=1,
)
ids = torch.ones(1, 4, dtype=torch.long)

def runs(enable):
    model = LlamaForCausalLM(config)
    enable(model)
    count = []
    for layer in model.model.layers:
        layer.mlp.register_forward_pre_hook(lambda *_: count.append(1))
    model(input_ids=ids, labels=ids).loss.backward()
    return len(count)

assert runs(lambda model: model.activation_checkpointing_enable({"use_reentrant": False}, every_n_layers=2)) == 6
assert runs(lambda model: model.activation_checkpointing_enable({"use_reentrant": False, "every_n_layers": 2})) == 8
try:
    runs(lambda model: model.activation_checkpointing_enable({"use_reentrant": True, "every_n_layers": 2}))
except ValueError as error:
    assert "every_n_layers" in str(error)
else:
    raise AssertionError("the reentrant variant takes no keywords")

def as_trl_does(model):
    model.activation_checkpointing_enable({"use_reentrant": False}, every_n_layers=2)
    with disable_gradient_checkpointing(model, {"use_reentrant": False, "every_n_layers": 2}):
        pass

assert runs(as_trl_does) == 8
```

## References
transformers 5.23 `modeling_utils.py` (`activation_checkpointing_enable`), `trainer.py` (`gc_kwargs.pop`); trl 1.16
`models/utils.py` (`disable_gradient_checkpointing`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.nodes import entries, source_text
from ..facts.values import Class, Dict, Value, equals, is_absent, options
from ..finding import Applicability, Severity
from ..model.events import HfEnable, KwargsWrite, TrainerArgs
from ..model.events.extract import args_of
from ..model.libraries.trainer import stays_written
from ..model.names import canonical
from ..model.needs import together
from ..model.report import Replace, Report, Rewrite, SetKeyword
from ..model.types import bases
from ..model.variant import from_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.report import Change
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT206", "misplaced-layer-selection", Severity.WARNING
NEEDS = together(("every_n_layers", "offload"), (HfEnable, *together("checkpointing_kwargs", TrainerArgs)))
VERSIONS = {"transformers": ">=5.16"}
_KEYS = ("every_n_layers", "offload")
_ENABLE_AGAIN = frozenset(f"trl.{kind}Config" for kind in ("DPO", "KTO", "GRPO", "RLOO"))
_READ_BY_TRL = "gradient_checkpointing_kwargs"


def check(run: Run) -> Iterator[Report]:
    """Report the keys where nobody takes them out of the dict."""
    for enable in run.of(HfEnable):
        keys = _misplaced(enable.kwargs)
        if keys:
            yield Report(
                enable.node,
                f"{_quoted(keys)} in this dict goes to every layer as an argument and selects nothing; pass it to "
                f"`{enable.call.method}` itself, as a keyword argument",
                fix=_hoist(enable, keys),
            )
    for args in run.of(TrainerArgs):
        keys = _misplaced(from_json(args.kwargs)) if _enables_again(args) else []
        if keys:
            yield Report(args.node, _again(keys))
    for written in run.of(KwargsWrite):
        keys = _misplaced(from_json(written.kwargs)) if _is_given_again(run, written) else []
        if keys:
            yield Report(written.node, _again(keys))


def _again(keys: list[str]) -> str:
    return (
        f"this trainer enables checkpointing again with the whole dict after each reference pass, and then "
        f"{_quoted(keys)} selects nothing; leave it out"
    )


def _quoted(keys: list[str]) -> str:
    return " and ".join(f"`{key}`" for key in keys)


def _is_given_again(run: Run, written: KwargsWrite) -> bool:
    """Whether a trainer of trl gets the dict, which it reads by the old name whatever the version of transformers."""
    if written.write.field != _READ_BY_TRL or not stays_written(run, written):
        return False
    built = [args_of(option) for option in options(written.target)]
    return all(args is not None and _enables_again(args) for args in built)


def _misplaced(kwargs: Value) -> list[str]:
    given = kwargs.items if isinstance(kwargs, Dict) else {}
    return [key for key in _KEYS if key in given and is_absent(given[key]) is False and not _is_default(given[key])]


def _is_default(value: Value) -> bool:
    return equals(value, 1, False, None) is True


def _enables_again(args: TrainerArgs) -> bool:
    off = equals(args.enabled, False) is True
    precomputed = is_absent(args.setting("precompute_ref_log_probs")) is not True
    return not _ENABLE_AGAIN.isdisjoint(_classes(args)) and not off and not precomputed


def _classes(args: TrainerArgs) -> set[str]:
    """The class of the library that ``args`` names, or that the program derives its own from."""
    made = args.call.func
    return set(bases(made)) if isinstance(made, Class) else {canonical(args.call.name)}


def _hoist(enable: HfEnable, keys: list[str]) -> Rewrite | None:
    display = enable.kwargs.display if isinstance(enable.kwargs, Dict) else None
    written = entries(display) if display is not None else None
    given_here = (*enable.node.args, *(word.value for word in enable.node.keywords))
    if display is None or written is None or display not in given_here or any(map(enable.call.written, keys)):
        return None
    rest = ", ".join(f'"{key}": {source_text(value)}' for key, value in written.items() if key not in keys)
    moved: list[Change] = [SetKeyword(enable.node, key, source_text(written[key])) for key in keys]
    return Rewrite(
        Applicability.UNSAFE,
        f"Pass `{'`, `'.join(keys)}` as keyword argument",
        (Replace(display, f"{{{rest}}}" if rest else "None"), *moved),
    )
