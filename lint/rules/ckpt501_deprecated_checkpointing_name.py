"""Names that transformers 5.23 deprecated.

## What it does
Flags `gradient_checkpointing` and `gradient_checkpointing_kwargs` in the constructor of transformers'
`TrainingArguments`, and `gradient_checkpointing_enable` and `gradient_checkpointing_disable` of a transformers model.
Off by default; meant for projects that require transformers 5.23 or newer.

## Why is this bad?
Since 5.23 the names are `activation_checkpointing*`. The old ones warn with every use, are read only when the object is
built (see CKPT201), and will be removed in version 6.

## Bad
```python
from transformers import AutoModelForCausalLM, TrainingArguments

args = TrainingArguments("out", gradient_checkpointing=True)  # error
model = AutoModelForCausalLM.from_pretrained("base")
model.gradient_checkpointing_enable()  # error
```
```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("base")
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})  # error
```
```python
from transformers import TrainingArguments

MEMORY = {"gradient_checkpointing": True, "optim": "adafactor"}
args = TrainingArguments("out", **MEMORY)  # error
```

## Good
```python
from transformers import TrainingArguments

MEMORY = {"activation_checkpointing": True, "optim": "adafactor"}
args = TrainingArguments("out", **MEMORY)
```
```python
from diffusers import UNet2DModel
from transformers import AutoModelForCausalLM, TrainingArguments

args = TrainingArguments("out", activation_checkpointing=True)
model = AutoModelForCausalLM.from_pretrained("base")
model.activation_checkpointing_enable()
UNet2DModel().enable_gradient_checkpointing()
```

## Fix safety
Safe when the project requires transformers 5.23 or newer; display-only otherwise, because older versions do not know
the new names.

## Evidence
```python
import warnings
from transformers import TrainingArguments

with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    old = TrainingArguments("out", gradient_checkpointing=True, use_cpu=True, report_to="none")
assert any("`gradient_checkpointing` is deprecated" in str(warning.message) for warning in seen)
new = TrainingArguments("out", activation_checkpointing=True, use_cpu=True, report_to="none")
assert old.activation_checkpointing is new.activation_checkpointing is True
```

## References
transformers 5.23 `training_args.py` and `modeling_utils.py` (FutureWarning).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..finding import Applicability, Severity
from ..model.events import HfDisable, HfEnable, TrainerArgs
from ..model.names import canonical
from ..model.report import RenameAttribute, RenameKeyword, Report, Rewrite

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT501", "deprecated-checkpointing-name", Severity.NOTE
NEEDS = ("gradient_checkpointing",)
VERSIONS = {"transformers": ">=5.23,<6"}
DEFAULT = False
_OLD = ("gradient_checkpointing", "gradient_checkpointing_kwargs")


def check(run: Run) -> Iterator[Report]:
    """Report old names that transformers itself would warn about."""
    level = Applicability.SAFE if run.versions.require("transformers", ">=5.23,<6") else Applicability.DISPLAY
    for args in run.of(TrainerArgs):
        for keyword in args.node.keywords:
            if canonical(args.call.name).startswith("transformers.") and keyword.arg in _OLD:
                new = keyword.arg.replace("gradient", "activation")
                fix = Rewrite(level, f"Write `{new}`", (RenameKeyword(args.node, keyword.arg, new),))
                yield Report(keyword, _message(keyword.arg, new), fix=fix)
        if (spread := _spread(args)) is not None:
            yield Report(args.node, _message(spread, spread.replace("gradient", "activation")))
    for event in (*run.of(HfEnable), *run.of(HfDisable)):
        name = event.call.method
        if name.startswith("gradient_") and event.call.attribute is not None:
            new = name.replace("gradient", "activation")
            changes: list[RenameAttribute | RenameKeyword] = [RenameAttribute(event.call.attribute, new)]
            changes += _renamed_arguments(event.node)
            rename = Rewrite(level, f"Write `{new}`", tuple(changes))
            # What `**options` holds cannot be renamed.
            is_whole = all(keyword.arg for keyword in event.node.keywords)
            yield Report(event.node, _message(name, new), fix=rename if is_whole else None)


def _spread(args: TrainerArgs) -> str | None:
    """An old name among the arguments that come from a dict: `TrainingArguments("out", **memory)`."""
    if not canonical(args.call.name).startswith("transformers."):
        return None
    written = {keyword.arg for keyword in args.node.keywords}
    return next((name for name in _OLD if name in args.call.kwargs and name not in written), None)


def _renamed_arguments(call: ast.Call) -> Iterator[RenameKeyword]:
    for keyword in call.keywords:
        if keyword.arg in _OLD:
            yield RenameKeyword(call, keyword.arg, keyword.arg.replace("gradient", "activation"))


def _message(name: str, new: str) -> str:
    return f"`{name}` is deprecated since transformers 5.23 and goes away in version 6; write `{new}`"
