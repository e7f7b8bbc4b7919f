"""What draws random numbers in a region: from torch's generator, which a checkpoint restores, or from another one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from ...facts.nodes import all_nodes, returned_by
from ...facts.straight import only_value
from ...facts.values import (
    Absent,
    Attr,
    Const,
    Element,
    Result,
    Value,
    conditional_options,
    equals,
    is_absent,
    options,
    same,
)
from ..conditions.guards import excludes_mode
from ..conditions.ramps import last_of_ramp
from ..events import AdapterAttach, Backward, EvalSwitch, ModeSwitch, TrainerBuild, TrainSwitch
from ..known_models.pretrained_dropout import dropout_of_weights
from ..names import canonical
from ..types import unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...facts.values import Call, Guard
    from ..regions.region import Region
    from ..run import Run

#: Modules that drop or perturb while training: the position, name and default of their probability.
_MODULES: dict[str, tuple[int, str, float]] = {
    **{f"torch.nn.{kind}": (0, "p", 0.5) for kind in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d")},
    **{f"torch.nn.{kind}": (0, "p", 0.5) for kind in ("AlphaDropout", "FeatureAlphaDropout")},
    "torch.nn.MultiheadAttention": (2, "dropout", 0.0),
    "torch.nn.TransformerEncoderLayer": (3, "dropout", 0.1),
    "torch.nn.TransformerDecoderLayer": (3, "dropout", 0.1),
    "torch.nn.RReLU": (1, "upper", 1 / 3),
    "torchvision.ops.StochasticDepth": (0, "p", 0.0),
    "timm.layers.DropPath": (0, "drop_prob", 0.0),
    "timm.models.layers.DropPath": (0, "drop_prob", 0.0),
}
#: Modules that drop between their layers, where they have more than one (``torch.nn.RNNBase``).
_RECURRENT = ("torch.nn.LSTM", "torch.nn.GRU", "torch.nn.RNN")
#: Functions of the same kind, whose probability comes second and `training` third.
_FUNCTIONS: dict[str, tuple[float, bool]] = {
    **{f"torch.nn.functional.{kind}": (0.5, True) for kind in ("dropout", "dropout1d", "dropout2d", "dropout3d")},
    "torch.nn.functional.alpha_dropout": (0.5, False),
    "torch.nn.functional.feature_alpha_dropout": (0.5, False),
    **{f"torch.{kind}": (0.5, True) for kind in ("dropout", "feature_dropout", "alpha_dropout")},
}
#: Methods of a distribution of torch, which draws from torch's own generator.
_DISTRIBUTION_SAMPLERS = ("rsample", "sample", "sample_n")
#: It drops by its fifth argument, whatever the mode.
_ATTENTION = "torch.nn.functional.scaled_dot_product_attention"
#: In the name of a function that takes dropout out of a model.
_TAKES_OUT = "dropout"
#: Configurations whose layers drop unless told otherwise, with the arguments that say how much.
_CONFIGS: dict[str, tuple[str, ...]] = {
    "transformers.GPT2Config": ("resid_pdrop", "attn_pdrop"),
    "transformers.OPTConfig": ("dropout",),
    "transformers.BertConfig": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "transformers.RobertaConfig": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "transformers.T5Config": ("dropout_rate",),
    "transformers.BartConfig": ("dropout",),
}
#: Arguments of any configuration that set a dropout inside its layers; zero by default.
_LAYER_DROPOUTS = (
    *("attention_dropout", "hidden_dropout", "activation_dropout", "resid_dropout", "attn_pdrop", "resid_pdrop"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout_rate"),
)
_SAMPLERS = frozenset(
    f"torch.{name}"
    for name in (
        *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like"),
        *("bernoulli", "multinomial", "normal", "poisson", "nn.functional.gumbel_softmax"),
    )
)
#: Methods of a tensor that fill it with random numbers, or draw with it.
_TENSOR_SAMPLERS = frozenset(
    (
        *("normal_", "uniform_", "bernoulli_", "random_", "exponential_", "cauchy_", "geometric_", "log_normal_"),
        *("bernoulli", "multinomial"),
    )
)
_GENERATORS = frozenset(
    (
        *("torch.Generator", "random.Random", "random.SystemRandom"),
        *("numpy.random.default_rng", "numpy.random.RandomState", "numpy.random.Generator"),
    )
)
#: What these libraries offer beside drawing.
_NO_DRAW = frozenset(
    ("seed", "default_rng", "get_state", "set_state", "getstate", "setstate", "manual_seed", "compare_digest")
)


_CLOCKS = frozenset(
    f"time.{name}{unit}" for name in ("time", "perf_counter", "monotonic", "process_time") for unit in ("", "_ns")
)


class Draw(NamedTuple):
    """Something that draws: where, what it is called, and under which conditions a region comes to it."""

    node: ast.AST
    what: str
    conditions: tuple[Guard, ...] = ()


def torch_draws(run: Run, region: Region, training: bool = True) -> Iterator[Draw]:
    """What certainly draws from torch's own generator in a region.

    Nothing does where the region seeds it: it draws the same numbers again.

    Args:
        run: The run.
        region: What runs again.
        training: Whether the model is in train mode.
    """
    if any(region.calls_to("torch.manual_seed", "torch.random.manual_seed")):
        return
    for module in region.modules if training else ():
        if isinstance(module, Result) and drops(module.call) and not _in_eval(run, module):
            yield Draw(module.call.node, module.call.name.rpartition(".")[2], region.conditions_of(module))
    for call in region.calls:
        if _draws(call, training):
            yield Draw(call.node, f"{call.name.rpartition('.')[2] or call.method}()", region.conditions_of(call))


def drops(built: Call) -> bool:
    """Whether a module of a library, as ``built``, drops or perturbs while it trains."""
    name = canonical(built.name)
    if name in _RECURRENT:
        layers = built.argument(2, "num_layers")
        several = all(isinstance(option, Const) and option.value not in (0, 1) for option in options(layers))
        return several and _positive(built.argument(5, "dropout"), 0.0)
    if name not in _MODULES:
        return False
    position, argument, default = _MODULES[name]
    return _positive(built.argument(position, argument), default)


def foreign_draws(region: Region) -> Iterator[Draw]:
    """What in ``region`` draws from a generator that a checkpoint does not restore and the region does not seed."""
    if any(region.calls_to("random.seed", "numpy.random.seed")):
        return
    inside: set[ast.AST] = {function.node for function in region.functions}
    for call in region.calls:
        if _is_foreign(call, inside) or (call.name in _CLOCKS and _scales_result(call, region)):
            yield Draw(call.node, f"{call.name or call.method}()", region.conditions_of(call))


def _is_foreign(call: Call, inside: set[ast.AST]) -> bool:
    library, _, function = call.name.rpartition(".")
    if library in ("random", "numpy.random", "secrets"):
        return function[:1].islower() and function not in _NO_DRAW
    if call.name in _SAMPLERS:
        return _made_outside(call.keyword("generator"), inside)
    if call.method in _TENSOR_SAMPLERS and _made_outside(call.keyword("generator"), inside):
        return True
    return bool(call.method) and call.method not in _NO_DRAW and _made_outside(call.receiver, inside)


def _scales_result(call: Call, region: Region) -> bool:
    """Whether what a function of ``region`` returns is one of its inputs times something with ``call`` in it.

    A clock that is only read to measure does no harm.
    """
    for function in region.functions:
        names = {argument.arg for argument in function.node.args.args} - {"self"}
        only = only_value(function.node)
        for value in (*returned_by(function.node), *([] if only is None else [only])):
            for part in all_nodes(value):
                if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult | ast.Div):
                    sides = [{*all_nodes(side)} for side in (part.left, part.right)]
                    clock = next((index for index, side in enumerate(sides) if call.node in side), None)
                    if clock is not None and any(
                        isinstance(node, ast.Name) and node.id in names for node in sides[1 - clock]
                    ):
                        return True
    return False


def _made_outside(generator: Value, inside: set[ast.AST]) -> bool:
    """Whether ``generator`` is a random generator that the program built outside of the region."""
    match generator:
        case Result(call) if call.method == "manual_seed":
            return _made_outside(call.receiver, inside)
        case Result(call) if call.name in _GENERATORS:
            return call.place.function is None or call.place.function.node not in inside
    return False


def _draws(call: Call, training: bool) -> bool:
    name = canonical(call.name)
    if name in _SAMPLERS or call.method in _TENSOR_SAMPLERS:
        if call.method.startswith("bernoulli") and _is_certain(call.argument(0, "p")):
            return False
        return is_absent(call.keyword("generator")) is True or equals(call.keyword("generator"), None) is True
    if call.method in _DISTRIBUTION_SAMPLERS and _is_distribution(call.receiver):
        return True
    if name == _ATTENTION:
        return _positive(call.argument(4, "dropout_p"), 0.0, training)
    if name not in _FUNCTIONS:
        return False
    default, trains = _FUNCTIONS[name]
    given = call.argument(2, "training")
    off = not trains if isinstance(given, Absent) else equals(given, False) is True
    off = off or (not training and isinstance(given, Attr) and given.name == "training")
    return not off and _positive(call.argument(1, "p"), default)


def may_drop_nothing(call: Call) -> bool:
    """Whether ``call`` is of a function that drops, and its probability may be zero."""
    return canonical(call.name) in _FUNCTIONS and not _draws(call, training=True)


def _is_distribution(value: Value) -> bool:
    return isinstance(value, Result) and canonical(value.call.name).startswith("torch.distributions.")


def _is_certain(probability: Value) -> bool:
    """Whether a draw with this probability has one outcome: nothing is dropped, or everything."""
    return all(isinstance(option, Const) and option.value in (0, 1) for option in options(probability))


def _positive(probability: Value, default: float, training: bool = True) -> bool:
    """Whether something is surely dropped: with `0.1 if self.training else 0.0`, in train mode."""
    possible = [
        option
        for option, under in conditional_options(probability)
        if not any(excludes_mode(guard, training) for guard in under)
    ]
    return bool(possible) and all(_is_positive(option, default) for option in possible)


def _is_positive(probability: Value, default: float) -> bool:
    match probability:
        case Absent():
            return default > 0
        case Const(int() | float() as number):
            return number > 0
        case Element() | Result() if (last := last_of_ramp(probability)) is not None:
            return _is_positive(last, default)
        case Attr(base=Result(call), name=name) if name == _MODULES.get(canonical(call.name), (0, "", 0.0))[1]:
            position, _, otherwise = _MODULES[canonical(call.name)]
            return _positive(call.argument(position, name), otherwise)  # `self.attn_drop.p`
    return False


def _in_eval(run: Run, module: Value) -> bool:
    return any(same(module, switch.receiver) for switch in run.of(EvalSwitch))


def adapter_dropout(run: Run, model: Value | None) -> Draw | None:
    """The `lora_dropout` above zero of the adapter that ``model`` (any model for None) trains with."""
    attached = [(event.model, event.config) for event in run.of(AdapterAttach)]
    attached += [(event.model, event.peft_config) for event in run.of(TrainerBuild)]
    for owner, config in attached:
        if model is not None and not same(unwrapped(owner), unwrapped(model)):
            continue
        for option in options(config):
            match option:
                case Result(call) if call.name.startswith("peft.") and _positive(call.keyword("lora_dropout"), 0.0):
                    return Draw(call.node, "lora_dropout")
    return None


def config_dropout(model: Value) -> Draw | None:
    """The dropout above zero in the configuration that the transformers model ``model`` is built from."""
    for option in options(unwrapped(model)):
        if isinstance(option, Result):
            given = (value.call for value in option.call.args[:1] if isinstance(value, Result))
            for call in (option.call, *given):
                name = _layer_dropout(call)
                if name is not None:
                    return Draw(call.node, name)
    return None


def loaded_dropout(run: Run, model: Value) -> Draw | None:
    """The dropout of weights on the Hub, where the model is trained in train mode and nothing takes it out."""
    loaded = unwrapped(model)
    name = dropout_of_weights(loaded)
    if not name or loaded.node is None or any(write.field == "p" for write in run.writes):
        return None
    if any(_TAKES_OUT in call.called.lower() for call in run.program.calls):
        return None
    trained = [it.receiver for it in run.of(TrainSwitch) if it.on and not it.place.guards and _lasts(run, it)]
    trained += [] if any(run.of(EvalSwitch)) else [trainer.model for trainer in run.of(TrainerBuild)]
    return Draw(loaded.node, name) if any(same(unwrapped(it), loaded) for it in trained) else None


def _lasts(run: Run, switch: TrainSwitch) -> bool:
    """Whether a backward pass follows ``switch`` before anything is put in eval mode."""
    evals = [it for it in run.of(ModeSwitch) if it.on is not True]
    if not evals:
        return True
    steps = (it for it in run.of(Backward) if it.order > switch.order and it.place.walk == switch.place.walk)
    return any(not any(switch.order < it.order < step.order for it in evals) for step in steps)


def _layer_dropout(call: Call) -> str | None:
    """The argument of ``call``, which builds a model or a configuration, that makes its layers drop."""
    if not call.name.startswith("transformers."):
        return None
    usual = _CONFIGS.get(canonical(call.name), ())
    certain = (name for name in usual if _positive(call.keyword(name), 0.1))
    return next(certain, next((name for name in _LAYER_DROPOUTS if _positive(call.keyword(name), 0.0)), None))
