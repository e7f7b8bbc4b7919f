"""What wraps a model for several GPUs in place of the program: Lightning, Fabric and accelerate, by their settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...facts.objects.containers import container_kind
from ...facts.values import (
    Absent,
    Class,
    Const,
    Function,
    Result,
    Seq,
    Value,
    options,
)
from ..events import ACCELERATOR, DdpWrap, FlagWrite, HandOver, HfEnable, SwiftArgs, TrainerBuild, strategy_of
from ..events.extract import args_of
from ..names import canonical
from ..types import is_hf_model, unwrapped
from .sharding import class_of
from .trainer import finds_unused, is_enabled, speaks_of_ddp

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from ...facts.values import Call, Place
    from ..events import TrainerArgs
    from ..regions.region import Region
    from ..run import Run

_STEPS = ("training_step", "forward")
#: The classes of Lightning that stand for DDP, those up to 1.5 and 1.9 too.
_DDP_STRATEGIES = ("DDPStrategy", "DDPSpawnStrategy", "DDPPlugin", "DDPSpawnPlugin")


class DataParallel(NamedTuple):
    """A model that ends up in DDP."""

    module: Value
    #: What decides about it: DDP itself, or the strategy or handler that stands for it.
    settings: Call
    #: The call that wraps the model.
    call: Call
    finds_unused: Value
    is_static: Value

    @property
    def node(self) -> ast.Call:
        """Where DDP is asked for."""
        return self.settings.node

    @property
    def place(self) -> Place:
        """Where the model is wrapped."""
        return self.call.place


def data_parallel(run: Run) -> Iterator[DataParallel]:
    """The models that the program, or a launcher that it sets up, wraps in DDP."""
    for wrap in run.of(DdpWrap):
        call = wrap.call
        finds, static = call.argument(7, "find_unused_parameters"), call.keyword("static_graph")
        yield DataParallel(wrap.module, call, call, finds, static)
    for owner, call, module in handed_over(run):
        for settings, finds in _ddp_settings(owner):
            yield DataParallel(module, settings, call, finds, settings.keyword("static_graph"))
    yield from _by_trainer(run)


def _by_trainer(run: Run) -> Iterator[DataParallel]:
    """The models of the program that a Trainer of transformers wraps in DDP, where its arguments speak of that."""
    for trainer in run.of(TrainerBuild):
        cls = class_of(trainer.model)
        for value in options(trainer.args) if isinstance(cls, Class) else ():
            args = args_of(value)
            if args is None or isinstance(args, SwiftArgs) or not speaks_of_ddp(args):
                continue
            finds = finds_unused(run, args)
            if isinstance(finds, Absent) and not (is_hf_model(trainer.model) and _may_be_switched_on(run, args, value)):
                finds = Const(True)  # The Trainer's default, but for a model of transformers whose switch is on.
            yield DataParallel(trainer.model, args.call, trainer.call, finds, args.setting("ddp_static_graph"))


def _may_be_switched_on(run: Run, args: TrainerArgs, value: Value) -> bool:
    """Whether a flag of transformers may be on in a model of the program, which checkpoints by it or without it."""
    switched = is_enabled(run, args, value) is not False or any(run.of(HfEnable, FlagWrite))
    return switched or any("gradient_checkpointing" in (*cls.fields, *cls.body) for cls in run.program.classes)


def trained_region(run: Run, module: Value) -> Region:
    """What a training step of ``module`` runs: the step of a LightningModule, the forward pass of a plain one."""
    cls, whole = class_of(module), unwrapped(module)
    if not isinstance(cls, Class):
        return run.bodies.of(*([whole] if container_kind(whole) == "Sequential" else []))
    step = next((cls.body[name] for name in _STEPS if isinstance(cls.body.get(name), Function)), cls.instance)
    return run.bodies.of(step)


def handed_over(run: Run) -> Iterator[tuple[Call, Call, Value]]:
    """The launcher's construction, the call that gives it a model, and the model."""
    for event in run.of(HandOver):
        yield from ((build, event.call, module) for build, module in event.handed())


def _ddp_settings(made: Call) -> Iterator[tuple[Call, Value]]:
    """The calls that may set DDP up, and what each says about unused parameters."""
    if canonical(made.name) == ACCELERATOR:
        handler = _handler(made)
        if handler is not None:
            yield handler, handler.argument(3, "find_unused_parameters")
        return
    for chosen in (*options(strategy_of(made)), *_plugins(made)):
        match chosen:
            case Const(str(name)) if name.startswith("ddp"):
                yield made, Const(name.endswith("find_unused_parameters_true"))
            case Result(call) if canonical(call.name).rpartition(".")[2] in _DDP_STRATEGIES:
                yield call, call.keyword("find_unused_parameters")


def _plugins(made: Call) -> list[Value]:
    """What Lightning's Trainer gets as plugins: before 1.6 one that stands for DDP, and is the strategy then."""
    plugins = made.keyword("plugins")
    return plugins.items if isinstance(plugins, Seq) else [plugins]


def _handler(made: Call) -> Call | None:
    """The ``DistributedDataParallelKwargs`` among the handlers of an Accelerator."""
    handlers = made.keyword("kwargs_handlers")
    for handler in handlers.items if isinstance(handlers, Seq) else ():
        if isinstance(handler, Result) and canonical(handler.call.name) == "accelerate.DistributedDataParallelKwargs":
            return handler.call
    return None
