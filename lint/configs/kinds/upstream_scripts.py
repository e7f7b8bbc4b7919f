"""The Trainer scripts of transformers' examples and of trl, where a launch script starts one that is not beside it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...facts.values import UNKNOWN, Const, Dict
from ..calls import call_of
from .ms_swift import parsed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...facts.values import Value
    from ...facts.walk import Program
    from ..document import Document
    from . import Config

LABEL = "a training script of transformers or trl"
#: Scripts in `examples/pytorch` of transformers that hand `TrainingArguments` to its Trainer.
_EXAMPLES = frozenset(
    f"run_{name}"
    for name in (
        *("clm", "mlm", "plm", "fim", "swag", "qa", "qa_beam_search", "seq2seq_qa", "glue", "xnli", "classification"),
        *("ner", "summarization", "translation", "image_classification", "mae", "mim", "clip", "audio_classification"),
        *("speech_recognition_ctc", "speech_recognition_ctc_adapter", "speech_recognition_seq2seq"),
        *("semantic_segmentation", "object_detection", "instance_segmentation"),
    )
)
_TRL = frozenset(("sft", "dpo", "grpo", "kto", "reward", "rloo"))
_TRL_FOLDER = re.compile(r"(?:^|/)trl/scripts\Z")
_KWARGS = ("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs")
_FINDS_UNUSED = "ddp_find_unused_parameters"
_ANCHORS = (*_KWARGS, "activation_checkpointing", "gradient_checkpointing", "fsdp_config", "deepspeed")
_SCRIPT = re.compile(r"([\w.-]+)\.py(?![\w.])")
_SHARDED = ("fsdp", "fsdp_config", "deepspeed")
_SEVERAL = re.compile(
    r"(?:torchrun|torch\.distributed\.(?:run|launch))\s.*--nproc[-_]per[-_]node[=\s]+(\d+)", re.DOTALL
)


def matches(root: Dict) -> bool:
    """Never: these scripts take their arguments from the command line."""
    return False


def arguments_begin(words: Sequence[str]) -> int | None:
    """The number of the first argument in a command that starts it; None for another, or with a file of them."""
    number = next((number for number, word in enumerate(words) if word.endswith(".py")), None)
    if number is None or words[0] in ("echo", "printf", "#"):
        return None
    folder, _, name = words[number][: -len(".py")].rpartition("/")
    is_known = name in _EXAMPLES or (name in _TRL and _TRL_FOLDER.search(folder) is not None)
    given = words[number + 1 :]
    is_plain = bool(given) and given[0].startswith("--")
    return number + 1 if is_known and is_plain and not any(re.match(r"--config\b", word) for word in given) else None


def add(config: Config, program: Program) -> None:
    """The arguments as far as the command says them; the script may say more."""
    document = config.document
    if document.root.open:
        return  # What follows, as `"$@"` does, wins.
    given = dict(document.root.items)
    given |= {name: _without_texts(parsed(document, given[name])) for name in _KWARGS if name in given}
    if _FINDS_UNUSED in given and (not _is_distributed(document) or any(name in given for name in _SHARDED)):
        given[_FINDS_UNUSED] = UNKNOWN
    call = call_of(document, program, "transformers.TrainingArguments", given, anchors=_ANCHORS)
    # An example has no switch but that of its command line; a config of trl is on by default.
    call.open_kwargs = not _is_example(document)
    program.calls.append(call)


def _is_example(document: Document) -> bool:
    """Whether the command starts one of the examples of transformers."""
    command = document.text[document.mapping.begin : document.mapping.end]
    return any(name in _EXAMPLES for name in _SCRIPT.findall(command)[:1])


def _without_texts(value: Value) -> Value:
    """The dict with its texts left open: `TrainingArguments` makes booleans and numbers of them."""
    if not isinstance(value, Dict):
        return value
    texts = {name for name, item in value.items.items() if isinstance(item, Const) and isinstance(item.value, str)}
    items = {name: UNKNOWN if name in texts else item for name, item in value.items.items()}
    return Dict(items, value.open, value.node)


def _is_distributed(document: Document) -> bool:
    """Whether torch's launcher surely starts several processes."""
    started = _SEVERAL.search(document.text[document.mapping.begin : document.mapping.end])
    return started is not None and int(started[1]) > 1
