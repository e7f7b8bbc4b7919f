"""Both switches for checkpointing in a torchtune configuration, of which the recipe then takes neither.

## What it does
Flags `ac_mode` beside `enable_activation_checkpointing: True` in the YAML of a torchtune recipe.

## Why is this bad?
The recipes that know `ac_mode` (`full_finetune_distributed` and `qat_distributed`) ask whether the other switch is off
before they look at it, and ask whether it is missing before they look at the other switch. With both nothing is
checkpointed, no message says so, and the run may be out of memory. Every other recipe ignores `ac_mode`.

## Bad
```yaml
model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
batch_size: 2
enable_activation_checkpointing: True
ac_mode: selective  # error
ac_option: 2
```

## Good
```yaml
model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
enable_activation_checkpointing: False
ac_mode: selective
ac_option: 2
```
```yaml
model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
enable_activation_checkpointing: True
ac_mode: null
```

## Evidence
```python
from importlib.util import find_spec
from pathlib import Path

torchtune = find_spec("torchtune")
if torchtune is not None:
    recipe = Path(torchtune.origin).parents[1] / "recipes" / "full_finetune_distributed.py"
    text = recipe.read_text(encoding="utf-8")
    assert "if (not enable_activation_checkpointing) and (ac_mode is not None):" in text
    assert "if enable_activation_checkpointing and ac_mode is None:" in text
```

## References
torchtune 0.6.1 `recipes/full_finetune_distributed.py` and `recipes/qat_distributed.py` (`_setup_model`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import equals, truth
from ..finding import Severity
from ..model.libraries.trainer import where
from ..model.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT216", "cancelling-checkpointing-modes", Severity.WARNING
NEEDS = ("ac_mode",)


def check(run: Run) -> Iterator[Report]:
    """Report recipes that are told to checkpoint in two ways."""
    for call in run.calls_to("torchtune.recipe"):
        mode = call.keyword("ac_mode")
        if truth(call.keyword("enable_activation_checkpointing")) and equals(mode, "full", "selective", "none"):
            yield Report(
                where(mode, call.node),
                "`ac_mode` and `enable_activation_checkpointing: True` cancel each other: torchtune's distributed "
                "recipes checkpoint nothing then, and its others ignore `ac_mode`; keep one of the two",
            )
