"""What `accelerate config` writes and `accelerate launch --config_file` reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...facts.values import ABSENT, Const, Dict, Result, Value, equals, is_absent
from ..arguments import give_where_missing
from ..calls import call_of

if TYPE_CHECKING:
    from ...facts.values import Call
    from ...facts.walk import Program
    from ..document import Document
    from . import Config

LABEL = "accelerate"
_BESIDE = ("compute_environment", "num_processes", "num_machines", "machine_rank", "fsdp_config", "deepspeed_config")
_PLUGIN = "accelerate.FullyShardedDataParallelPlugin"
#: Options of FSDP that decide about checkpointing, with what accelerate takes for one that is missing.
_DEFAULTS: dict[str, object] = {
    "version": 1,
    "activation_checkpointing": False,
    "activation_checkpointing_offload": False,
}
#: How the file calls options of FSDP that decide what is freed when, and how the plugin does.
_SHARDING = {
    "sharding_strategy": "sharding_strategy",
    "reshard_after_forward": "reshard_after_forward",
    "transformer_layer_cls_to_wrap": "transformer_cls_names_to_wrap",
}
_ANCHORS = ("fsdp_config", "deepspeed_config", "distributed_type")


def matches(root: Dict) -> bool:
    """`distributed_type` beside another key that `accelerate config` writes."""
    return "distributed_type" in root.items and any(name in root.items for name in _BESIDE)


def apply(config: Config, program: Program) -> None:
    """Give what the launcher sets up to every Accelerator and Trainer."""
    document = config.document
    kind = document.root.get("distributed_type")
    if equals(kind, "FSDP"):
        plugin = _plugin(document, program)
        program.calls.append(plugin)
        for call in program.calls:
            if call.name == "accelerate.Accelerator" and is_absent(call.keyword("fsdp_plugin")) is True:
                call.kwargs["fsdp_plugin"] = Result(plugin)
        give_where_missing(program, {"fsdp": Const(True, kind.node), "fsdp_config": _options(document)})
    elif equals(kind, "DEEPSPEED"):
        file = _section(document, "deepspeed_config").get("deepspeed_config_file")
        give_where_missing(program, {"deepspeed": file} if isinstance(file, Const) else {})
    elif equals(kind, "MULTI_GPU") and equals(document.root.get("num_processes"), 1) is not True:
        # An argument that says nothing but that there is DDP.
        give_where_missing(program, {"ddp_backend": Const(None, kind.node)})


def _plugin(document: Document, program: Program) -> Call:
    chosen = _options(document)
    given = {("fsdp_version" if name == "version" else name): value for name, value in chosen.items.items()}
    section = _section(document, "fsdp_config")
    keys = {("fsdp_version" if name == "version" else name): _key(section, name) for name in _DEFAULTS}
    given |= _policy(section) | _sharding(section)
    call = call_of(document, program, _PLUGIN, given, anchors=_ANCHORS, keys=keys, section=section)
    # The launcher is there before the script begins.
    call.order = 0
    switch = given["activation_checkpointing"].node
    if switch is not None:
        document.place_like(call.node, switch)
    return call


def _policy(section: Dict) -> dict[str, Value]:
    """The policy by which FSDP wraps parts of the model, as the plugin means it."""
    policy = section.get(_key(section, "auto_wrap_policy"))
    if is_absent(policy) is True:
        return {}
    return {"auto_wrap_policy": Const(None, policy.node) if equals(policy, "NO_WRAP", "no_wrap") else policy}


def _sharding(section: Dict) -> dict[str, Value]:
    """How much of a unit is sharded, and the classes of which each module is one, where the file says it."""
    asked = {name: section.get(_key(section, option)) for option, name in _SHARDING.items()}
    return {name: value for name, value in asked.items() if is_absent(value) is not True}


def _key(section: Dict, name: str) -> str:
    """How the file writes an option: the launcher adds the prefix where it is missing."""
    return name if name in section.items and f"fsdp_{name}" not in section.items else f"fsdp_{name}"


def _options(document: Document) -> Dict:
    """The options of FSDP by accelerate's own names, those it adds itself included."""
    section = _section(document, "fsdp_config")
    found: dict[str, Value] = {}
    for name, default in _DEFAULTS.items():
        given = section.get(_key(section, name))
        found[name] = Const(default, section.node) if is_absent(given) is True else _plain(given)
    return Dict(found, section.open, section.node)


def _plain(value: Value) -> Value:
    """The value as the environment variable means it: `"2"` is 2, `"true"` is True."""
    if isinstance(value, Const) and isinstance(value.value, str):
        plain = {"1": 1, "2": 2, "true": True, "false": False}.get(value.value.lower(), value.value)
        return Const(plain, value.node)
    return value


def _section(document: Document, name: str) -> Dict:
    found = document.root.items.get(name, ABSENT)
    return found if isinstance(found, Dict) else Dict({}, is_absent(found) is not True, document.root.node)
