"""Checkpointing arguments on the model that the Trainer replaces.

## What it does
Flags `model.gradient_checkpointing_enable({...})` whose arguments differ from those of the `Trainer` that gets the
model, when that Trainer has checkpointing on.

## Why is this bad?
When training starts the Trainer enables checkpointing again, with its own arguments. What the model was told before is
gone: the other variant runs, or `context_fn` and `preserve_rng_state` are lost. Nothing is printed.

## Bad
```python
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("base")
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})  # error
args = TrainingArguments("out", gradient_checkpointing=True)
Trainer(model=model, args=args).train()
```

## Good
```python
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def agree(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    Trainer(model, TrainingArguments("out", gradient_checkpointing=True)).train()

def model_decides(name):
    model = AutoModelForCausalLM.from_pretrained(name)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    Trainer(model, TrainingArguments("out")).train()

def either(name, by_trainer):
    model = AutoModelForCausalLM.from_pretrained(name)
    args = TrainingArguments("out", gradient_checkpointing=True) if by_trainer else TrainingArguments("out")
    if not by_trainer:
        model.gradient_checkpointing_enable({"use_reentrant": True})
    Trainer(model, args).train()
```

## Fix safety
Unsafe: the arguments take effect, which is what was meant but changes the run.

## Evidence
```python
import warnings
import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

warnings.simplefilter("ignore")
default = int(transformers.__version__.split(".")[0]) < 5
config = LlamaConfig(
    vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=1,
)

def keywords(**given):
    model = LlamaForCausalLM(config)
    model.gradient_checkpointing_enable({"use_reentrant": not default})
    args = TrainingArguments(
        "out", use_cpu=True, report_to="none", max_steps=1, save_strategy="no", disable_tqdm=True, **given
    )
    rows = [{"input_ids": torch.ones(4, dtype=torch.long), "labels": torch.ones(4, dtype=torch.long)}] * 8
    Trainer(model, args, train_dataset=rows).train()
    return model.model.layers[0]._gradient_checkpointing_func.keywords

assert keywords(gradient_checkpointing=True) == {"use_reentrant": default}
assert keywords() == {"use_reentrant": not default}
```

## References
transformers 5.23 `trainer.py` (`if args.activation_checkpointing`); huggingface/transformers#26221.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.nodes import source_text
from ..facts.values import Dict
from ..finding import Applicability, Severity
from ..model.events import HfEnable
from ..model.libraries.trainer import SWITCHES, default_versions, overriding_trainer, trainer_reentrant
from ..model.report import Remark, Report, Rewrite, SetKeyword
from ..model.variant import hf_kwargs_reentrant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.events import TrainerArgs
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT202", "trainer-overrides-model-checkpointing", Severity.WARNING
NEEDS = (HfEnable,)
VERSIONS = {"transformers": ">=4.35"}


def check(run: Run) -> Iterator[Report]:
    """Report arguments given to the model that the Trainer's replace."""
    for enable in run.of(HfEnable):
        found = overriding_trainer(run, enable)
        if found is not None and isinstance(enable.kwargs, Dict) and _differ(run, enable.kwargs, found[1]):
            trainer, args = found
            yield Report(
                enable.node,
                "the Trainer enables checkpointing again with its own arguments, so these have no effect; "
                "pass them to its `TrainingArguments`",
                notes=(Remark(args.node, "these arguments hold"), Remark(trainer.node, "this Trainer gets the model")),
                fix=_move(enable.kwargs, args),
                versions=default_versions(args) if _rests_on_reentrant(run, enable.kwargs, args) else None,
            )


def _differ(run: Run, asked: Dict, args: TrainerArgs) -> bool:
    variant, holds = hf_kwargs_reentrant(asked, default=None), trainer_reentrant(run, args)
    if variant is not None and holds is not None and variant != holds:
        return True
    return holds is not None and bool(_lost(asked, args))


def _lost(asked: Dict, args: TrainerArgs) -> set[str]:
    """What the Trainer's arguments leave out beside the variant."""
    kept = args.kwargs.items if isinstance(args.kwargs, Dict) else {}
    return set(asked.items) - set(kept) - {"use_reentrant"}


def _rests_on_reentrant(run: Run, asked: Dict, args: TrainerArgs) -> bool:
    """Whether the only difference is that the Trainer runs the reentrant variant."""
    return trainer_reentrant(run, args) is True and not _lost(asked, args)


def _move(asked: Dict, args: TrainerArgs) -> Rewrite | None:
    switch = next((name for name in SWITCHES if args.call.written(name)), None)
    if switch is None or asked.display is None or args.call.written(f"{switch}_kwargs"):
        return None
    text = source_text(asked.display).replace("'", '"')
    return Rewrite(
        Applicability.UNSAFE,
        f"Pass them as `{switch}_kwargs`",
        (SetKeyword(args.node, f"{switch}_kwargs", text),),
    )
