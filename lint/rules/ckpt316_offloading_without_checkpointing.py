"""Offloading of activations while the checkpointing that it needs is off.

## What it does
Flags configurations that move activations to the CPU without checkpointing: `fsdp_activation_checkpointing_offload` of
accelerate without `fsdp_activation_checkpointing` or without FSDP2, `activation_offloading` of axolotl without
`gradient_checkpointing`, and `enable_activation_offloading` of torchtune without `enable_activation_checkpointing`; in
scripts `FullyShardedDataParallelPlugin` with these arguments spelled out.

## Why is this bad?
What is offloaded are the inputs of checkpointed layers. Each of these programs checks that and raises before the first
step: a ValueError in accelerate and axolotl, a RuntimeError in torchtune.

## Bad
```python
from accelerate import FullyShardedDataParallelPlugin

plugin = FullyShardedDataParallelPlugin(  # error
    fsdp_version=2, activation_checkpointing=False, activation_checkpointing_offload=True
)
```
```yaml
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_processes: 8
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_activation_checkpointing_offload: true  # error
```
```yaml
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_activation_checkpointing_offload: true  # error
```
```yaml
base_model: NousResearch/Llama-3.2-1B
datasets:
  - path: teknium/GPT4-LLM-Cleaned
    type: alpaca
micro_batch_size: 2
activation_offloading: true  # error
```
```yaml
model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
batch_size: 2
enable_activation_checkpointing: False
enable_activation_offloading: True  # error
```

## Good
```python
from accelerate import FullyShardedDataParallelPlugin

plugin = FullyShardedDataParallelPlugin(
    fsdp_version=2, activation_checkpointing=True, activation_checkpointing_offload=True
)
from_the_launcher = FullyShardedDataParallelPlugin(activation_checkpointing_offload=True)
```
```yaml
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_activation_checkpointing: true
  fsdp_activation_checkpointing_offload: true
```
```yaml
base_model: NousResearch/Llama-3.2-1B
datasets:
  - path: teknium/GPT4-LLM-Cleaned
    type: alpaca
micro_batch_size: 2
gradient_checkpointing: true
activation_offloading: legacy
```
```yaml
model:
  _component_: torchtune.models.llama3_1.llama3_1_8b
enable_activation_checkpointing: True
enable_activation_offloading: True
```

## Fix safety
Unsafe: checkpointing is turned on, which is what offloading needs but changes the run.

## Evidence
```python
from accelerate import FullyShardedDataParallelPlugin

def problem(**options):
    try:
        FullyShardedDataParallelPlugin(**options)
    except ValueError as error:
        return str(error)
    return ""

if "activation_checkpointing_offload" in FullyShardedDataParallelPlugin.__dataclass_fields__:  # accelerate 1.15
    assert "requires `activation_checkpointing=True`" in problem(fsdp_version=2, activation_checkpointing_offload=True)
    both = {"activation_checkpointing": True, "activation_checkpointing_offload": True}
    assert "requires `fsdp_version=2`" in problem(fsdp_version=1, **both)
    assert problem(fsdp_version=2, **both) == ""
```

## References
accelerate 1.15 `utils/dataclasses.py` (`FullyShardedDataParallelPlugin.__post_init__`); axolotl 0.19
`utils/schemas/validation.py` (`check_activation_offloading_wo_gc`); torchtune 0.6
`recipes/full_finetune_distributed.py` and the other recipes that train a `model`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Value, equals, is_absent, truth
from ..finding import Applicability, Severity
from ..model.events import FsdpPlugin
from ..model.libraries.trainer import where
from ..model.needs import together
from ..model.report import Report, Rewrite, SetKeyword

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..facts.values import Call
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT316", "offloading-without-checkpointing", Severity.ERROR
NEEDS = (("activation_checkpointing_offload", FsdpPlugin), *together("activation_offloading", ("axolotl", "torchtune")))
_ACCELERATE = {"accelerate": ">=1.15"}
#: By what is called: the argument that offloads, and the one that checkpoints.
_ARGUMENTS = {
    "axolotl.TrainingArguments": ("activation_offloading", "gradient_checkpointing"),
    "torchtune.recipe": ("enable_activation_offloading", "enable_activation_checkpointing"),
}


def check(run: Run) -> Iterator[Report]:
    """Report offloading that has nothing to offload."""
    for call in run.calls_to(*_ARGUMENTS):
        offloads, checkpoints = _ARGUMENTS[call.name]
        if truth(call.keyword(offloads)) and _is_off(call.keyword(checkpoints)):
            yield _report(call, offloads, checkpoints, "True")
    for plugin in run.of(FsdpPlugin):
        call, wanted = plugin.call, "activation_checkpointing_offload"
        if not run.versions.admit(_ACCELERATE) or equals(call.keyword(wanted), True) is not True:
            continue
        # The environment gives what the call does not.
        if equals(call.keyword("activation_checkpointing"), False):
            yield _report(call, wanted, "activation_checkpointing", "True")._replace(versions="accelerate>=1.15")
        elif equals(plugin.version, 1):
            yield _report(call, wanted, "fsdp_version", "2")._replace(versions="accelerate>=1.15")


def _is_off(switch: Value) -> bool:
    return is_absent(switch) is True or equals(switch, False, None) is True


def _report(call: Call, offloads: str, needed: str, value: str) -> Report:
    change = SetKeyword(call.node, needed, value)
    return Report(
        where(call.keyword(offloads), call.node),
        f"`{offloads}` needs `{needed}` to be {value}: this raises before the first step",
        fix=Rewrite(Applicability.UNSAFE, f"Write `{needed}={value}`", (change,)),
    )
