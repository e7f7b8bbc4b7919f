"""FSDP1 in a run: which models are one unit as a whole, and which of their modules are units of their own.

The program wraps them itself, or Lightning, Fabric, accelerate or a Trainer of transformers does, by their settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...facts.values import (
    ABSENT,
    Absent,
    Class,
    Const,
    Dict,
    Ref,
    Result,
    Seq,
    Value,
    equals,
    is_absent,
    options,
    same,
)
from ..events import ACCELERATOR, Fsdp1Wrap, SwiftArgs, TrainerBuild, strategy_of
from ..events.extract import args_of
from ..names import canonical
from ..types import same_object, unwrapped
from ..wrapping.check_functions import policy_classes
from .launchers import handed_over
from .sharding import (
    frees_after_forward,
    is_whole_shard,
    may_be_same_module,
    named_class,
    root,
    same_class,
    unit_classes,
)

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ...facts.values import Call
    from ..run import Run

#: torch's own, outside of `enable_wrap` too, where a launcher may have entered that.
_MARKED = "torch.distributed.fsdp.wrap"
#: The settings that make units of some modules, by any launcher.
_PARTING = ("auto_wrap_policy", "activation_checkpointing_policy", "transformer_cls_names_to_wrap", "min_num_params")
#: The strategies that shard, by their names and by the numbers that accelerate takes for them.
_STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "1", "2", "4")
#: Those that free the parameters of a unit as soon as its forward pass is over.
_FREEING = ("FULL_SHARD", "HYBRID_SHARD", "1", "4")
#: The names of the classes that a Trainer's `fsdp_config` makes units of.
_NAMED_UNITS = ("transformer_layer_cls_to_wrap", "fsdp_transformer_layer_cls_to_wrap")


_VERSIONS = ("version", "fsdp_version")
#: The versions of transformers where a `fsdp_config` that does not say which FSDP it is for means the first.
_FIRST_BY_DEFAULT = "<5.0"


class ShardedUnit(NamedTuple):
    """A model that is one unit of FSDP1 as a whole."""

    module: Value
    node: ast.Call


class FreedUnits(NamedTuple):
    """The modules of some classes in a model: units of FSDP1 whose parameters are freed after their forward pass."""

    model: Value
    classes: list[Class | str]
    #: What asks for it.
    node: ast.Call
    #: What makes them: FSDP itself, or a launcher or a Trainer that gets the model.
    call: Call
    #: The names of further classes, of libraries.
    names: frozenset[str] = frozenset()

    def are_of(self, kind: Class | str | None) -> bool:
        """Whether the modules of a class are such units."""
        if isinstance(kind, str) and kind.rpartition(".")[2] in self.names:
            return True
        return any(same_class(kind, cls) for cls in self.classes)


def whole_units(run: Run) -> Iterator[ShardedUnit] | None:
    """The models that are one unit of FSDP1 each; None when some unit holds others, or that is not known."""
    wraps = list(run.of(Fsdp1Wrap))
    if any(unit_classes(wrap) != [] or not is_whole_shard(wrap) or _is_part(run, wrap, wraps) for wrap in wraps):
        return None
    if any(run.calls_to(_MARKED)):
        return None
    units = [ShardedUnit(wrap.module, wrap.node) for wrap in wraps]
    for owner, _, module in handed_over(run):
        plugin = _fsdp_settings(owner)
        if plugin is not None and _is_whole(plugin):
            units.append(ShardedUnit(module, plugin.node))
    return iter(units)


def freed_units(run: Run) -> Iterator[FreedUnits]:
    """The units by their classes, whoever asks for them."""
    for wrap in run.of(Fsdp1Wrap):
        classes = unit_classes(wrap) if frees_after_forward(wrap) else None
        if classes:
            yield FreedUnits(wrap.module, classes, wrap.node, wrap.call)
    for owner, given, module in handed_over(run):
        plugin = _fsdp_settings(owner)
        if plugin is None or not _frees(plugin):
            continue
        names = _names_asked(plugin)
        classes = [*_named(run, names)] if names is not None else _classes_asked(plugin)
        if classes or names:
            yield FreedUnits(module, classes, plugin.node, given, names or frozenset())
    yield from _by_trainer(run)


def wrapped_alone(run: Run, module: Value) -> Iterator[Fsdp1Wrap]:
    """The wraps of FSDP1 that make a unit of ``module``, `layers[i] = FSDP(layer)`, or gave it, and that free it."""
    for wrap in run.of(Fsdp1Wrap):
        if (gives(wrap, module) or may_be_same_module(wrap.module, module)) and frees_after_forward(wrap):
            yield wrap


def gives(wrap: Fsdp1Wrap, module: Value) -> bool:
    """Whether ``module`` is what ``wrap`` gave: `nn.ModuleList(FSDP(Block()) for _ in range(4))`."""
    given = same_object(module)
    return isinstance(given, Result) and given.call.node is wrap.node


def _by_trainer(run: Run) -> Iterator[FreedUnits]:
    """The units that a Trainer of transformers makes in a model of the program by FSDP1."""
    for trainer in run.of(TrainerBuild):
        for args in filter(None, map(args_of, options(trainer.args))):
            config = ABSENT if isinstance(args, SwiftArgs) else args.setting("fsdp_config")
            if isinstance(config, Dict) and _frees_by_name(args.setting("fsdp"), config):
                version = next((config.get(name) for name in _VERSIONS if name in config.items), ABSENT)
                names = frozenset(name for key in _NAMED_UNITS for name in _names_in(config.get(key)))
                by_default = is_absent(version) and run.versions.require("transformers", _FIRST_BY_DEFAULT)
                if names and (by_default or equals(version, 1, "1")):
                    yield FreedUnits(trainer.model, [*_named(run, names)], args.node, trainer.call, names)


def _frees_by_name(asked: Value, config: Dict) -> bool:
    """Whether `fsdp` makes units that are freed, by its words or, where it is just True, by default."""
    if not isinstance(asked, Const) or config.open:
        return False
    if asked.value is True:
        return "reshard_after_forward" not in config.items and "auto_wrap_policy" not in config.items
    words = str(asked.value).split()
    return "auto_wrap" in words and not {"full_shard", "hybrid_shard"}.isdisjoint(words)


def _fsdp_settings(made: Call) -> Call | None:
    """The call that says how the launcher that ``made`` built shards a model by FSDP1; None where it does not."""
    if canonical(made.name) == ACCELERATOR:
        plugin = made.keyword("fsdp_plugin")
        return plugin.call if isinstance(plugin, Result) and _is_first(plugin.call) else None
    match strategy_of(made):
        case Const("fsdp" | "fsdp_native"):
            return made
        case Result(call) if canonical(call.name).rpartition(".")[2] == "FSDPStrategy":
            return call
    return None


def _is_first(plugin: Call) -> bool:
    """Whether accelerate's plugin stands for FSDP1, which it does by default."""
    version = plugin.keyword("fsdp_version")
    return isinstance(version, Absent) or equals(version, 1) is True


def _is_whole(settings: Call) -> bool:
    """Whether the settings of FSDP shard the parameters of a whole model together."""
    strategy = settings.keyword("sharding_strategy")
    is_sharded = _is_left_out(strategy) or _is_one_of(strategy, _STRATEGIES)
    parts_nothing = _is_told_to_part_nothing(settings) or all(_is_left_out(settings.keyword(it)) for it in _PARTING)
    return is_sharded and parts_nothing and not settings.open_kwargs


def _is_told_to_part_nothing(settings: Call) -> bool:
    """Whether accelerate's plugin says so by name; what would choose the modules is not read then."""
    policy = settings.keyword("auto_wrap_policy")
    return isinstance(policy, Const) and str(policy.value).upper() == "NO_WRAP"


def _is_left_out(value: Value) -> bool:
    return isinstance(value, Absent) or equals(value, None) is True


def _frees(settings: Call) -> bool:
    """Whether the parameters of a unit are freed after its forward pass, as they are by default."""
    asked = [settings.keyword(name) for name in ("sharding_strategy", "reshard_after_forward")]
    return all(_is_left_out(value) or _is_one_of(value, _FREEING) for value in asked)


def _is_one_of(strategy: Value, names: tuple[str, ...]) -> bool:
    match strategy:
        case Const(str() | int() as name) | Ref(name):
            return str(name).rpartition(".")[2].upper() in names
    return False


def _classes_asked(settings: Call) -> list[Class | str]:
    """The classes that a launcher's policy makes units of, as far as they are known."""
    classes = policy_classes(settings.keyword("auto_wrap_policy")) or ()
    return [cls for cls in map(named_class, classes) if cls is not None]


def _names_asked(settings: Call) -> frozenset[str] | None:
    """The names of the classes that accelerate makes units of; None where its policy does not go by names."""
    policy = settings.keyword("auto_wrap_policy")
    if isinstance(policy, Const) and str(policy.value).upper() == "TRANSFORMER_BASED_WRAP":
        return frozenset(_names_in(settings.keyword("transformer_cls_names_to_wrap")))
    return None


def _names_in(names: Value) -> Iterator[str]:
    """The names in a list of them, or in a text with commas."""
    texts = names.items if isinstance(names, Seq) else [names]
    for text in texts:
        if isinstance(text, Const) and isinstance(text.value, str):
            yield from (name.strip() for name in text.value.split(","))


def _named(run: Run, names: frozenset[str]) -> Iterator[Class]:
    """The classes of the program with these names."""
    return (cls for cls in run.program.classes if cls.name in names)


def _is_part(run: Run, wrap: Fsdp1Wrap, wraps: list[Fsdp1Wrap]) -> bool:
    """Whether what is wrapped is taken out of another module: `FSDP(net.layers[i])`, one iteration a layer."""
    if wrap.place.loops or any(root(option) is not unwrapped(option) for option in options(wrap.module)):
        return True
    others = (run.bodies.of(unwrapped(other.module)) for other in wraps if other.node is not wrap.node)
    return any(same(wrap.module, module) for region in others for module in region.modules)
