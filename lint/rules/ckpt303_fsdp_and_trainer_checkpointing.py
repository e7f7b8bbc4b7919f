"""Activation checkpointing by FSDP and by the Trainer at once.

## What it does
Flags `TrainingArguments` (or a trl config, where checkpointing is on unless it is switched off) with FSDP enabled,
`activation_checkpointing` true in `fsdp_config`, and checkpointing switched on in the arguments too. FSDP may also be
set up by the accelerate configuration that the script is checked with (`ckpt-lint train.py --config fsdp.yaml`), by
flags of `accelerate launch` in a launch script or by variables that the script writes to `os.environ`, and the
arguments may stand in a YAML or JSON file, axolotl's too.

## Why is this bad?
The Trainer refuses: building it raises a ValueError, after the model has been loaded. In trl it takes only the FSDP
setting, since its own switch is on by default.

## Bad
```python
from transformers import TrainingArguments

args = TrainingArguments(
    "out",
    fsdp="full_shard auto_wrap",
    fsdp_config={"activation_checkpointing": True},
    gradient_checkpointing=True,  # error
)
```
```python
from trl import SFTConfig

args = SFTConfig("out", fsdp=True, fsdp_config={"version": 2, "activation_checkpointing": "true"})  # error
```
```yaml
output_dir: out
per_device_train_batch_size: 4
learning_rate: 2.0e-5
gradient_checkpointing: true  # error
fsdp: full_shard auto_wrap
fsdp_config:
  activation_checkpointing: true
  transformer_layer_cls_to_wrap: [LlamaDecoderLayer]
```
```python
import os
from transformers import TrainingArguments

os.environ["ACCELERATE_USE_FSDP"] = "true"
os.environ["FSDP_ACTIVATION_CHECKPOINTING"] = "true"
args = TrainingArguments("out", gradient_checkpointing=True)  # error
```
```yaml
base_model: Qwen/Qwen3-8B
micro_batch_size: 1
sequence_len: 2048
gradient_checkpointing: true  # error
fsdp_config:
  fsdp_version: 2
  activation_checkpointing: true
```

## Good
```yaml
base_model: Qwen/Qwen3-8B
micro_batch_size: 1
sequence_len: 2048
activation_offloading: true
gradient_checkpointing: true
fsdp_config:
  fsdp_version: 2
  activation_checkpointing: true
```
```python
import os
from transformers import TrainingArguments

os.environ["FSDP_ACTIVATION_CHECKPOINTING"] = "true"
args = TrainingArguments("out", gradient_checkpointing=True)
```
```python
from omegaconf import OmegaConf
from transformers import TrainingArguments
from trl import SFTConfig

settings = OmegaConf.create({"fsdp": "full_shard", "fsdp_config": {"activation_checkpointing": True}})
from_settings = TrainingArguments("out", **settings)
by_fsdp = TrainingArguments("out", fsdp="full_shard", fsdp_config={"activation_checkpointing": True})
by_trainer = TrainingArguments("out", fsdp="full_shard", fsdp_config={"version": 2}, gradient_checkpointing=True)
without_fsdp = TrainingArguments("out", fsdp_config={"activation_checkpointing": True}, gradient_checkpointing=True)
off = TrainingArguments(
    "out", fsdp="full_shard", fsdp_config={"activation_checkpointing": False}, gradient_checkpointing=True
)
trl_by_fsdp = SFTConfig(
    "out", gradient_checkpointing=False, fsdp=True, fsdp_config={"activation_checkpointing": True}
)
switched_off = SFTConfig("out", fsdp=True, fsdp_config={"activation_checkpointing": True})
switched_off.activation_checkpointing = False

def from_a_file(path, wanted):
    TrainingArguments("out", fsdp="full_shard", fsdp_config=path, gradient_checkpointing=True)
    return TrainingArguments(
        "out", fsdp="full_shard", fsdp_config={"activation_checkpointing": wanted}, gradient_checkpointing=True
    )
```
```yaml
# Only a script whose arguments switch checkpointing on makes a mistake of it.
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_processes: 8
fsdp_config:
  fsdp_version: 2
  fsdp_activation_checkpointing: true
```

## Fix safety
Unsafe: FSDP's checkpointing remains, which restores no random state on FSDP2 (see CKPT109).

## Evidence
```python
import os
import tempfile

os.environ["ACCELERATE_USE_CPU"] = "true"
import torch
from accelerate import Accelerator
from accelerate.utils import FullyShardedDataParallelPlugin
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

def build(**switch):
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1,
    )
    args = TrainingArguments(
        tempfile.mkdtemp(), use_cpu=True, report_to="none", fsdp=True,
        fsdp_config={"activation_checkpointing": True}, **switch,
    )
    args.device
    # Without an accelerator FSDP is not selected; on one it leaves its plugin in the state, as here.
    state = Accelerator(cpu=True).state
    state.fsdp_plugin = FullyShardedDataParallelPlugin(**args.fsdp_plugin_args)
    try:
        Trainer(LlamaForCausalLM(config), args)
    except ValueError as error:
        return str(error)
    finally:
        state._reset_state(True)
    return ""

if __name__ == "__main__":
    assert "can't both be set to True" in build(activation_checkpointing=True)
    assert "can't both be set to True" not in build()
```

## References
transformers 5.23 `trainer.py` (`create_accelerator_and_postprocess`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..facts.values import Dict, equals, is_absent, same, truth
from ..finding import Applicability, Severity
from ..model.events import EnvironmentSetting, SwiftArgs, TrainerArgs
from ..model.libraries.trainer import SWITCHES, is_enabled, object_of, switched_at, switched_by, where
from ..model.needs import together
from ..model.report import Remark, Report, Rewrite, SetKeyword

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ..facts.values import Value
    from ..model.run import Run

CODE, NAME, SEVERITY = "CKPT303", "fsdp-and-trainer-checkpointing", Severity.ERROR
NEEDS = (
    *together("fsdp_config", "activation_checkpointing", TrainerArgs),
    *together("use_fsdp", "fsdp_activation_checkpointing", TrainerArgs),
    # The names may be put together: `environ[f"FSDP_{name}"]`, `name.upper()`.
    *together(("ACTIVATION_CHECKPOINTING", "activation_checkpointing"), "USE_FSDP", EnvironmentSetting, TrainerArgs),
    ("fsdp_config", "base_model"),
)
STOPS_TRAINER = True


def check(run: Run) -> Iterator[Report]:
    """Report arguments that switch checkpointing on twice."""
    by_environment = _by_environment(run)
    for args in run.of(TrainerArgs):
        if not is_enabled(run, args, object_of(args)) or isinstance(args, SwiftArgs):
            continue  # ms-swift switches one of the two off itself.
        config = args.setting("fsdp_config")
        if truth(args.setting("fsdp")) and isinstance(config, Dict):
            wanted = next(_wanted(config), None)
            if wanted is not None:
                yield _report(run, args, where(wanted, config.node or args.node))
        elif by_environment is not None and is_absent(config) is True:
            yield _report(run, args, by_environment)


def _by_environment(run: Run) -> ast.AST | None:
    """Where the program itself sets what `accelerate launch` would for FSDP with checkpointing; None if it does not."""
    found: dict[str, ast.AST] = {}
    for setting in run.of(EnvironmentSetting):
        for name, value in setting.variables.items():
            if not setting.place.guards and equals(value, "true", "True", "1") is True:
                found[name] = setting.node
    return found.get("FSDP_ACTIVATION_CHECKPOINTING") if "ACCELERATE_USE_FSDP" in found else None


def _wanted(config: Dict) -> Iterator[Value]:
    for name in ("activation_checkpointing", "fsdp_activation_checkpointing"):
        if equals(config.get(name), True, "true", "True") is True:
            yield config.get(name)


def _report(run: Run, args: TrainerArgs, wanted: ast.AST) -> Report:
    write = next((it for it in run.writes if it.field in SWITCHES and same(it.obj, object_of(args))), None)
    name = switched_by(args)
    return Report(
        write.node if write is not None else switched_at(args),
        "FSDP and the Trainer both checkpoint, and the Trainer raises a ValueError when it is built; "
        f"write `{name}=False` or take it out of `fsdp_config`",
        notes=(Remark(wanted, "FSDP's own checkpointing is asked for here"),) if wanted is not args.node else (),
        fix=Rewrite(Applicability.UNSAFE, f"Write `{name}=False`", (SetKeyword(args.node, name, "False"),))
        if write is None
        else None,
    )
