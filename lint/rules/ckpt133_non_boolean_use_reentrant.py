"""A `use_reentrant` that is a string.

## What it does
Flags `use_reentrant` given as text (`"False"`), to torch's checkpoint or in a dict for transformers.

## Why is this bad?
A string that is not empty is true, so `"False"` selects the reentrant variant. Nothing complains.

## Bad
```python
from torch.utils.checkpoint import checkpoint
from transformers import TrainingArguments

def forward(block, x):
    return checkpoint(block, x, use_reentrant="False")  # error

args = TrainingArguments(
    "out",
    activation_checkpointing=True,
    activation_checkpointing_kwargs={"use_reentrant": "False"},  # error
)
```
```yaml
output_dir: out
num_train_epochs: 1
learning_rate: 1.0e-4
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: "False"  # error
```
```python
import os
from torch.utils.checkpoint import checkpoint

def forward(block, x):
    x = checkpoint(block, x, use_reentrant=os.environ.get("REENTRANT", "False"))  # error
    return checkpoint(block, x, use_reentrant=os.environ["REENTRANT"])  # error
```
```python
import configparser
import sys
from torch.utils.checkpoint import checkpoint

settings = configparser.ConfigParser()
settings.read("run.ini")
REENTRANT = settings.get("memory", "reentrant")  # error
SAME = settings["memory"]["reentrant"]  # error

def forward(block, x):
    x = checkpoint(block, x, use_reentrant=REENTRANT)
    x = checkpoint(block, x, use_reentrant=SAME)
    return checkpoint(block, x, use_reentrant=sys.argv[1])  # error
```

## Good
```python
import os
from torch.utils.checkpoint import checkpoint

def forward(block, x):
    x = checkpoint(block, x, use_reentrant=os.environ.get("REENTRANT", "False") == "True")
    return checkpoint(block, x, use_reentrant=bool(os.environ.get("REENTRANT")))
```
```python
import configparser
import sys
from torch.utils.checkpoint import checkpoint

settings = configparser.ConfigParser()
settings.read("run.ini")

def forward(block, x):
    x = checkpoint(block, x, use_reentrant=settings.getboolean("memory", "reentrant"))
    x = checkpoint(block, x, use_reentrant=settings.get("memory", "reentrant") == "yes")
    x = checkpoint(block, x, use_reentrant=settings.get("memory", "reentrant", fallback=False))
    return checkpoint(block, x, use_reentrant="--reentrant" in sys.argv)
```
```python
from torch.utils.checkpoint import checkpoint
from transformers import TrainingArguments

def forward(block, x):
    return checkpoint(block, x, use_reentrant=False)

# Text that is JSON is converted.
args = TrainingArguments(
    "out", activation_checkpointing=True, activation_checkpointing_kwargs='{"use_reentrant": "false"}'
)
```
```yaml
output_dir: out
num_train_epochs: 1
learning_rate: 1.0e-4
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: False
```

## Fix safety
Unsafe: it runs the variant the text names, which is not the one that ran.

## Evidence
```python
import torch
from torch.utils.checkpoint import checkpoint
from transformers import TrainingArguments

x = torch.ones(2, requires_grad=True)
assert "CheckpointFunction" in type(checkpoint(torch.sin, x, use_reentrant="False").grad_fn).__name__
assert "CheckpointFunction" not in type(checkpoint(torch.sin, x, use_reentrant=False).grad_fn).__name__

converted = TrainingArguments(
    "out", gradient_checkpointing_kwargs='{"use_reentrant": "false"}', use_cpu=True, report_to="none"
)
assert converted.gradient_checkpointing_kwargs == {"use_reentrant": False}
```

## References
torch 2.13 `torch/utils/checkpoint.py` (`if use_reentrant:`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.nodes import expression
from ..facts.objects.parsers import Given, Said
from ..facts.values import Const, Dict, Element, Ref, Result, Value
from ..finding import Applicability, Severity
from ..model.events import TorchCheckpoint
from ..model.libraries.trainer import settings_of
from ..model.needs import CHECKPOINTS, together
from ..model.report import Replace, Report, Rewrite

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT133", "non-boolean-use-reentrant", Severity.ERROR
NEEDS = together("use_reentrant", CHECKPOINTS)
_CONFIG_PARSERS = ("configparser.ConfigParser", "configparser.RawConfigParser", "configparser.SafeConfigParser")


def check(run: Run) -> Iterator[Report]:
    """Report strings where a bool is due."""
    given = [event.use_reentrant for event in run.written(TorchCheckpoint)]
    dicts = [setting.kwargs for setting in settings_of(run)]
    given += [kwargs.get("use_reentrant") for kwargs in dicts if isinstance(kwargs, Dict)]
    for value in given:
        source = _source_of_text(value)
        if value.node is not None and source is not None:
            yield Report(
                value.node,
                f"{source} are strings, and any text is true, `False` too: the reentrant variant runs; "
                "compare it with a text",
            )
        value = _declared(value)
        node = expression(value.node)
        if isinstance(value, Const) and isinstance(value.value, str) and node is not None:
            yield _report(value, node, value.value)


def _declared(value: Value) -> Value:
    """The default of an option that has a text: it is a string whatever the command line says."""
    match value:
        case Given(default=default):
            return default
        case Said(default=Const(str()) as default):
            return default
    return value


def _source_of_text(value: Value) -> str | None:
    """What gives ``value``, as it is, where that is always a text, and never an empty one for certain."""
    match value:
        case Result(call) if call.name in ("os.environ.get", "os.getenv"):
            default = call.argument(1, "default")
            is_text = isinstance(default, Const) and isinstance(default.value, str) and bool(default.value)
            return "variables of the environment" if is_text else None
        case Element(of=Ref("os.environ")):
            return "variables of the environment"
        case Element(of=Ref("sys.argv"), index=int()):
            return "arguments of the command line"
        case Result(call) if call.method == "get" and _is_config_parser(call.receiver):
            return None if "fallback" in call.kwargs or call.open_kwargs else "values of a `ConfigParser`"
        case Element(of=Element(of=parser)) if _is_config_parser(parser):
            return "values of a `ConfigParser`"
    return None


def _is_config_parser(value: Value) -> bool:
    return isinstance(value, Result) and value.call.name in _CONFIG_PARSERS


def _report(value: Value, node: ast.expr, text: str) -> Report:
    meant = {"false": "False", "true": "True"}.get(text.lower())
    fix = Rewrite(Applicability.UNSAFE, f"Write `{meant}`", (Replace(node, meant),)) if meant else None
    return Report(
        node, f'`use_reentrant="{text}"` is a string, which is true: the reentrant variant runs; write a bool', fix=fix
    )
