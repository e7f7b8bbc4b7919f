"""An exception handler that hides that checkpointing was called with a keyword it does not take.

## What it does
Flags `model.gradient_checkpointing_enable(use_reentrant=False)` (and other keywords the method takes in no version)
inside a `try` whose handler catches the `TypeError`.

## Why is this bad?
The call raises every time, so the handler runs every time: the keyword never had an effect. What runs is the fallback,
with its own default variant, or no checkpointing at all.

## Bad
```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("base")
try:
    model.gradient_checkpointing_enable(use_reentrant=False)  # error
except TypeError:
    model.gradient_checkpointing_enable()
```

```python
from transformers import AutoModelForCausalLM

def enable(model):
    for name in ("activation_checkpointing_enable", "gradient_checkpointing_enable"):
        enable_it = getattr(model, name, None)
        if enable_it is None:
            continue
        try:
            enable_it(use_reentrant=False)  # error
            return True
        except Exception:
            print("failed")
    return False

enable(AutoModelForCausalLM.from_pretrained("base"))
```
```python
from contextlib import suppress
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("base")
with suppress(TypeError, AttributeError):
    model.gradient_checkpointing_enable(use_reentrant=False)  # error
```

## Good
```python
import contextlib
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("base")
with contextlib.suppress(AttributeError):
    model.gradient_checkpointing_enable({"use_reentrant": False})
```
```python
from transformers import AutoModelForCausalLM

def enable(model):
    for name in ("activation_checkpointing_enable", "gradient_checkpointing_enable"):
        enable_it = getattr(model, name, None)
        if enable_it is None:
            continue
        try:
            enable_it({"use_reentrant": False})
            return True
        except Exception:
            print("failed")
    return False

enable(AutoModelForCausalLM.from_pretrained("base"))
```
```python
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("base")
try:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
except TypeError:
    model.gradient_checkpointing_enable()
try:
    model.gradient_checkpointing_enable()
except Exception:
    print("not supported")
```

## Fix safety
Unsafe: the keyword takes effect.

## Evidence
```python
import warnings
from transformers import LlamaConfig, LlamaForCausalLM

warnings.simplefilter("ignore")
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1,
    )
)
try:
    model.gradient_checkpointing_enable(use_reentrant=False)
except TypeError as error:
    assert "use_reentrant" in str(error)
else:
    raise AssertionError("no error")
assert not model.is_gradient_checkpointing
```

## References
transformers 5.23 `modeling_utils.py` (`gradient_checkpointing_enable`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.nodes import source_text
from ..facts.values import is_given
from ..finding import Applicability, Severity
from ..model.events import HfEnable
from ..model.flow.handlers import catches_there
from ..model.report import Remark, RenameKeyword, Replace, Report, Rewrite

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT214", "swallowed-checkpointing-error", Severity.WARNING
NEEDS = (HfEnable,)
#: Arguments of torch's checkpoint, which belong into the dict.
_MISPLACED = ("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop")
_CATCHES = ("TypeError", "Exception", "BaseException")


def check(run: Run) -> Iterator[Report]:
    """Report calls that always fail where nobody sees it."""
    for enable in run.of(HfEnable):
        wrong = [name for name in _MISPLACED if is_given(enable.call, name)]
        handlers = (handler for block in enable.place.tries for handler in block.handlers)
        handler = next((found for found in handlers if catches_there(found, enable.place, *_CATCHES)), None)
        if wrong and handler is not None:
            yield Report(
                enable.node,
                f"this call always raises TypeError (no version takes `{wrong[0]}=`) and the handler hides it; "
                f'pass `gradient_checkpointing_kwargs={{"{wrong[0]}": ...}}`',
                notes=(Remark(handler, "this runs every time"),),
                fix=_fix(run, enable, wrong),
            )


def _fix(run: Run, enable: HfEnable, wrong: list[str]) -> Rewrite | None:
    if len({other.call.method for other in run.of(HfEnable) if other.node is enable.node}) > 1:
        return None  # Each of them has a keyword of its own.
    if enable.node.args or [keyword.arg for keyword in enable.node.keywords] != wrong:
        return None
    renamed = enable.call.method.replace("_enable", "_kwargs")
    value = enable.node.keywords[0].value
    return Rewrite(
        Applicability.UNSAFE,
        f"Pass it in `{renamed}`",
        (
            RenameKeyword(enable.node, wrong[0], renamed),
            Replace(value, f'{{"{wrong[0]}": {source_text(value)}}}'),
        ),
    )
