"""Training arguments of transformers or trl in a file, as `parse_json_file`, `TrlParser` and `trl sft` read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import Dict, Ref
from ..arguments import ANCHORS, parsed_arguments, take_over
from ..calls import call_of

if TYPE_CHECKING:
    from ...facts.walk import Program
    from . import Config

LABEL = "training arguments of transformers or trl"
#: Fields of `TrainingArguments` that hardly anything else has, and those that others have too.
_PECULIAR = (
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "num_train_epochs",
    "lr_scheduler_type",
    "save_total_limit",
    "eval_strategy",
    "evaluation_strategy",
    "save_strategy",
    "logging_strategy",
    "remove_unused_columns",
    "load_best_model_at_end",
)
_COMMON = (
    "output_dir",
    "gradient_checkpointing",
    "gradient_checkpointing_kwargs",
    "gradient_accumulation_steps",
    "learning_rate",
    "logging_steps",
    "save_steps",
    "max_steps",
    "warmup_ratio",
    "warmup_steps",
    "weight_decay",
    "report_to",
    "bf16",
    "fp16",
    "optim",
    "seed",
    "fsdp",
    "deepspeed",
    "do_train",
    "dataloader_num_workers",
)
#: What files of other programs have beside such fields.
_FOREIGN = (
    *("base_model", "finetuning_type", "stage", "compute_environment", "distributed_type", "architectures"),
    *("train_type", "tuner_type", "_target_"),
)


def matches(root: Dict) -> bool:
    """Three fields of the dataclass, one of them peculiar to it."""
    peculiar = sum(name in root.items for name in _PECULIAR)
    common = sum(name in root.items for name in _COMMON)
    return bool(peculiar) and peculiar + common >= 3 and not any(name in root.items for name in _FOREIGN)


def add(config: Config, program: Program) -> None:
    """The arguments as far as the file says them: the script and the command line may say more."""
    document = config.document
    keys = {name: name for name in (*document.root.items, *ANCHORS)}
    call = call_of(document, program, "transformers.TrainingArguments", document.root.items, anchors=ANCHORS, keys=keys)
    call.open_kwargs = True
    program.calls.append(call)


def fill(config: Config, program: Program) -> bool:
    """Give what a parser of the script reads from the file to the arguments that it returns."""
    document = config.document
    keys = {name: name for name in (*document.root.items, *ANCHORS)}
    is_json = document.filename.endswith(".json")
    reads = ("parse_json_file",) if is_json else ("parse_yaml_file", "parse_args_and_config")
    taken = False
    for call, method in parsed_arguments(program):
        if method in reads:
            made = call_of(document, program, call.name, document.root.items, anchors=ANCHORS, keys=keys)
            # Only a parser that reads nothing but the file leaves nothing open; a class of the project has defaults.
            is_all = method != "parse_args_and_config" and isinstance(call.func, Ref)
            take_over(program, call, made, is_all)
            taken = True
    return taken
