"""``ckpt-lint explain``: the checkpointing that will really hold in a run, and which line decides it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from ..configs.kinds.deepspeed import SETTINGS as DEEPSPEED_SETTINGS
from ..facts.interpreter.program import read_program
from ..facts.origin import origin
from ..facts.values import ABSENT, Attr, Dict, Result, equals, is_absent, options, same, truth
from ..model import events as e
from ..model.conditions.verdict import judged
from ..model.conditions.versions import Versions
from ..model.events.extract import MEGATRON_SWIFT, args_of, is_args
from ..model.libraries.quantized import is_quantized
from ..model.libraries.trainer import KWARGS, SWITCHES, enable_reentrant, where
from ..model.run import Run
from ..model.state.modes import Modes
from ..model.types import class_names, is_hf_model, origins, unwrapped
from ..model.variant import hf_kwargs_reentrant
from ..rules import load_rules
from .alternatives import told_once
from .programs import asked_of_megatron, asked_of_swift, asked_of_torchtune
from .state import Explanation, Model, State, Step, Where, variant
from .wording import WRAPPED, Asked, asked, code, condition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ..facts.imported.local import FindModule
    from ..facts.values import Call, Value
    from ..facts.walk import Program
    from ..rules import Rule


#: The methods of a model that switch its checkpointing.
_SWITCHES = tuple(f"{kind}_checkpointing_{way}" for kind in ("gradient", "activation") for way in ("enable", "disable"))
#: Those of diffusers and timm; the variant is the library's.
_OTHER_SWITCHES = ("enable_gradient_checkpointing", "disable_gradient_checkpointing", "set_grad_checkpointing")
_ASKS = "asks the Trainer for: "
_LEAVES = "leaves the model as it is"
_FOR_DEEPSPEED = "settings of `deepspeed.checkpointing.checkpoint`, for code that calls it: turns nothing on by itself"
_EVAL = "it takes effect in train mode only, and nothing here calls `train()` on what `from_pretrained` gives"


def explain(
    text: str, filename: str, versions: Mapping[str, str], find_module: FindModule | None = None
) -> Explanation:
    """What every line of a script does to checkpointing, in program order, and what holds in the end.

    Args:
        text: The script.
        filename: What the explanation calls it.
        versions: The range that each library is used in.
        find_module: Gives the modules of the project that it imports; None when only this text is read.

    Raises:
        SyntaxError: The text is no Python.
    """
    return explain_program(read_program(text, filename, find_module), versions)


def explain_program(program: Program, versions: Mapping[str, str]) -> Explanation:
    """The same for a script that was read already, together with the configurations it runs with."""
    run = Run(program, Versions(versions))
    story = _Story(run)
    for event in run.events:
        story.tell(event)
    steps = [*story.steps, *_elsewhere(story), *_writes(run)]
    steps += [*_recipes(run, story.raising), *_raised(run, story.raising)]
    unique = dict.fromkeys(step for _, step in sorted(steps, key=lambda pair: (pair[0], pair[1].where.line)))
    verdicts = tuple(model.verdict(_caveat(run, model)) for model in story.models)
    return Explanation(program.filename, tuple(unique), verdicts)


def _raising(run: Run) -> dict[ast.AST, str]:
    """The calls that raise, each with what is wrong about it."""
    return _reported(run, [rule for rule in load_rules() if rule.raises])


def _stopping(run: Run) -> dict[ast.AST, str]:
    """The arguments with which building a Trainer raises, each with what is wrong about it."""
    return _reported(run, [rule for rule in load_rules() if rule.stops_trainer])


def _reported(run: Run, rules: list[Rule]) -> dict[ast.AST, str]:
    reports = (report for rule in rules if run.versions.admit(rule.versions) for report in judged(run, rule.check(run)))
    return {report.node: report.message for report in reports if report.condition is None}


def _raised(run: Run, raising: Mapping[ast.AST, str]) -> Iterator[tuple[int, Step]]:
    for node, message in raising.items():
        order = min((fact.order for fact in run.met(node)), default=0)
        yield order, _step(node, f"raises: {message}")


def _checkpoints(switch: Value) -> bool:
    return equals(switch, True, "true") is True


class _Story:
    """The run, told event by event."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.models: list[Model] = []
        self.steps: list[tuple[int, Step]] = []
        self.raising = _raising(run)
        self._stopping = _stopping(run)
        self._told_once = told_once(run.events)
        self._told = {other for _, others in self._told_once.values() for other in others}
        #: The plugin of accelerate that was built last, and whether one asks for checkpointed layers at all.
        self._plugin: ast.AST | None = None
        self._wraps_layers = any(plugin.checkpoints for plugin in run.of(e.FsdpPlugin))

    def tell(self, event: e.Event) -> None:
        """Note what ``event`` does; what raises does nothing, nor does what was told with another event."""
        if event.node in self.raising or event in self._told:
            return
        effect = self._effect(event)
        if effect:
            self.steps.append((event.order, _step(event.node, effect)))

    def _effect(self, event: e.Event) -> str:
        place, when = _where(event.node), self._when(event)
        match event:
            case e.HfEnable():
                state = State(True, enable_reentrant(self.run, event))
                return self._model_of(event).change(place, state, when)
            case e.HfDisable():
                return self._model_of(event).change(place, State(False), when)
            case e.KbitPrepare():
                model, state = self._model_of(event), _prepared(self.run, event)
                if state.on is False:
                    return _under(when, f"{_LEAVES}: {model.state}")
                return model.change(place, state, when)
            case e.SwiftArgs():
                return f"asks ms-swift for: {asked_of_swift(self.run, event)}"
            case e.TrainerArgs():
                return f"{_ASKS}{asked(self.run, event, ABSENT).state}"
            case e.TrainerBuild():
                return self._train(event, when)
            case e.BlockWrapping():
                changed = self._model(event.model, event.node).change(place, State(True, event.reentrant), when)
                return f"{changed}: wraps modules inside {_wrapped_in(event)}"
            case e.CheckpointWrap():
                return _under(when, f"wraps a module, {variant(event.reentrant)}")
            case e.OwnCheckpoint():
                return _under(when, f"checkpoints a region of its own, by {event.library}'s function")
            case e.CheckpointSequential(segments=segments) if equals(segments, 1):
                return _under(when, "checkpoints nothing: its one segment is the last, which runs as it is")
            case e.Checkpointing():
                return _under(when, f"checkpoints a region of its own, {variant(event.reentrant)}")
            case e.FsdpPlugin(checkpoints=True):
                self._plugin = event.node
                return _under(when, f"asks accelerate for: {WRAPPED}")
            case e.AcceleratePrepare() if self._wraps_layers:
                return self._prepare(event, when)
        return ""

    def _prepare(self, prepare: e.AcceleratePrepare, when: str) -> str:
        models = [value for value in prepare.objects if _is_model(value)]
        for value in models:
            self._model(value, prepare.node).change(_where(self._plugin or prepare.node), State(True, False), when)
        return WRAPPED if models else ""

    def _train(self, trainer: e.TrainerBuild, when: str) -> str:
        model = self._model(trainer.model, trainer.node)
        known = [(args, value) for value in options(trainer.args) if (args := args_of(value)) is not None]
        if len(known) < len(options(trainer.args)):
            model.change(_where(trainer.node), State(None), "")
            return "what it turns on is not known: its arguments do not come from this file"
        wishes = [(args, asked(self.run, args, value)) for args, value in known]
        # What a parser fills is no call of the class, so it has no step of its own yet.
        parsed = [
            (args.order, _step(args.node, f"{_ASKS}{wanted.state}")) for args, wanted in wishes if wanted.is_option
        ]
        self.steps += parsed
        args, wanted = wishes[0]
        stopped = next((self._stopping[node] for node in _written(args) if node in self._stopping), None)
        if stopped is not None and len(wishes) == 1:
            return f"raises: {stopped}"
        if any(other.state != wanted.state for _, other in wishes):
            wanted = Asked(State(None))
        wrapping = _wraps_layers(args)
        if wrapping is not None:
            model.change(_where(wrapping), State(True, False), when)
            return f"{WRAPPED} (from {_words(wrapping)})"
        if wanted.state.on is False:
            return f"{_LEAVES}: {model.state}"
        replaced = "; replaces what was asked for before" if model.history and wanted.state.on else ""
        said = model.change(_where(args.node), wanted.or_else(model.state), when)
        return f"{said} (from {_words(args.node)}){replaced}"

    def _when(self, event: e.Event) -> str:
        shared = self._told_once.get(event)
        when = condition(event.place.guards if shared is None else shared[0])
        method = self._method_offered(event) if isinstance(event, e.HfDisable) else None
        return " and ".join(filter(None, (method and f"`{method}` runs", when)))

    def _method_offered(self, event: e.HfDisable) -> str | None:
        """The function that does what ``event`` does to a model made elsewhere, if nothing here calls it."""
        place, model = event.place, unwrapped(event.model)
        if place.walk == 0 or place.stack or place.function is None:
            return None
        made = model.call if isinstance(model, Result) else None
        return None if made is None or made.place.walk == place.walk else place.function.name

    def _model_of(self, event: e.HfEnable | e.HfDisable | e.KbitPrepare) -> Model:
        """The model of ``event``, in all ways that it may be built."""
        model = self._model(event.model, event.node)
        others = self._told_once.get(event, ((), []))[1]
        model.values += [found for it in others if isinstance(it, type(event)) for found in origins(it.model)]
        return model

    def _model(self, value: Value, node: ast.Call) -> Model:
        found = list(origins(value))
        for model in self.models:
            if all(any(same(inner, known) for known in model.values) for inner in found):
                return model
        self.models.append(Model(found, _name(node)))
        return self.models[-1]


def _wrapped_in(event: e.BlockWrapping) -> str:
    if isinstance(event, e.LauncherCheckpointing):
        return "the model that the launcher gets"
    return f"`{code(event.node.args[0]) if event.node.args else 'it'}`"


def _prepared(run: Run, event: e.KbitPrepare) -> State:
    enables = True if is_absent(event.enables) else truth(event.enables)
    if is_quantized(run, event.model, event.place) is False:
        enables = False  # peft freezes the weights of such a model, and turns nothing on.
    # It passes a dict of its own even when none is given, and an empty one means torch's default.
    return State(enables, hf_kwargs_reentrant(event.kwargs, default=True)) if enables else State(enables)


def _written(args: e.TrainerArgs) -> tuple[ast.AST, ...]:
    """What a finding about these arguments may stand at."""
    return args.node, *args.node.keywords


def _wraps_layers(args: e.TrainerArgs) -> ast.AST | None:
    """What in the FSDP settings of the Trainer makes accelerate wrap the layers; None when nothing does."""
    settings = args.setting("fsdp_config")
    names = ("activation_checkpointing", "fsdp_activation_checkpointing")
    if not isinstance(settings, Dict):
        return None
    asking = [settings.get(name) for name in names if _checkpoints(settings.get(name))]
    return where(asking[0], args.node) if asking else None


def _is_model(value: Value) -> bool:
    """Whether what accelerate prepares is a model, not an optimizer or loader."""
    return is_hf_model(value) or "torch.nn.Module" in class_names(unwrapped(value))


def _caveat(run: Run, model: Model) -> str:
    """Why a model on which checkpointing is on does not use it in the training loop of the file; empty if it does."""
    value = model.values[0]
    if len(model.values) > 1 or not isinstance(value, Result) or not value.call.name.endswith(".from_pretrained"):
        return ""
    trains_itself = any(run.of(e.Backward)) and not any(run.of(e.TrainerBuild))
    switched = any(run.of(e.TrainSwitch)) or Modes(run, value).escapes
    return _EVAL if trains_itself and not switched else ""


def _writes(run: Run) -> Iterator[tuple[int, Step]]:
    """Settings written after the arguments were built: since transformers 5.23 the old names are not read any more."""
    for write in run.writes:
        if write.field not in (*SWITCHES, *KWARGS) or not is_args(write.obj):
            continue
        old_name = write.field.startswith("gradient_")
        dead = old_name and not run.versions.may_be("transformers", "<5.23")
        effect = "no effect: the Trainer reads the new name only" if dead else "changes what the Trainer is asked for"
        yield write.order, _step(write.node, effect)


def _elsewhere(story: _Story) -> Iterator[tuple[int, Step]]:
    """The switches of models that come from elsewhere, and those of other libraries."""
    told = {event.node for event in story.run.events if isinstance(event, e.HfEnable | e.HfDisable)}
    for call in story.run.method_calls(*_SWITCHES, *_OTHER_SWITCHES):
        if call.node not in told and call.node not in story.raising and isinstance(call.func, Attr):
            effect = f"of a model that is not known here: {_switched(story.run, call)}"
            yield call.order, _step(call.node, _under(condition(call.place.guards), effect))


def _switched(run: Run, call: Call) -> str:
    """What a method switches, by its name."""
    if "disable" in call.method:
        return str(State(False))
    if call.method in _SWITCHES:
        return str(State(True, enable_reentrant(run, e.HfEnable(call))))
    enabled = call.argument(0, "enable")
    return str(State(True if is_absent(enabled) else truth(enabled)))


def _recipes(run: Run, raising: Mapping[ast.AST, str]) -> Iterator[tuple[int, Step]]:
    """What the settings of programs ask for that do not go through a script's calls."""
    for call in run.calls_to("torchtune.recipe"):
        yield call.order, _step(call.node, f"asks torchtune for: {asked_of_torchtune(call)}")
    for call in run.calls_to(DEEPSPEED_SETTINGS):
        yield call.order, _step(call.node, _FOR_DEEPSPEED)
    for call in run.calls_to(*MEGATRON_SWIFT):
        if not raising.keys().isdisjoint({call.node, *(value.node for value in call.kwargs.values())}):
            continue
        yield call.order, _step(call.node, f"asks Megatron for: {asked_of_megatron(call)}")


def _step(node: ast.AST, effect: str) -> Step:
    return Step(_where(node), code(node), effect)


def _under(when: str, effect: str) -> str:
    return f"when {when}: {effect}" if when else effect


def _words(node: ast.AST) -> str:
    where = _where(node)
    return f"line {where.line}" if where.file is None else f"{where.file}:{where.line}"


def _where(node: ast.AST) -> Where:
    return Where(getattr(node, "lineno", 1), origin(node))


def _name(call: ast.Call) -> str:
    """How the code calls the model that ``call`` is about."""
    if isinstance(call.func, ast.Attribute) and call.func.attr in _SWITCHES:
        return code(call.func.value)
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "model"), None)
    if given is None and call.args:
        given = call.args[0]
    return code(given) if given is not None else "the model"
