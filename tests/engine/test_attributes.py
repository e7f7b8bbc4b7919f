"""A replay finds the attributes that its forward found, whoever set them since."""

from __future__ import annotations

import gc
import random
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig

from hf_ckpt import apply
from hf_ckpt.engine import Mode

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIG = LlamaConfig(
    num_hidden_layers=1, hidden_size=16, intermediate_size=24, num_attention_heads=2, vocab_size=31, use_cache=False
)
IDS = torch.arange(2 * 8).reshape(2, 8) % 31


class Mlp(nn.Module):
    """Looks at its values, which a trace cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.inside = nn.Linear(16, 16), nn.Tanh()
        self.scale = torch.ones(1)
        self.options: dict[str, list[object]] = {"scale": [1.0]}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inside(self.linear(x)) * self.scale[:1].clone() * torch.as_tensor(self.options["scale"][0]).clone()
        y = y.sin() if self.training else y.cos()
        return torch.exp(y * (2.0 if x.argmax().item() >= 0 else 1.0))


class Counts(Mlp):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return super().forward(x * self.calls)


class WritesInPlace(Mlp):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale.add_(0.25)
        return super().forward(x)


class Sets(nn.Module):
    """A norm that changes something about the MLP before each of its calls."""

    def __init__(self, mlp: Mlp, norm: nn.Module, change: Callable[[Mlp, float], None]) -> None:
        super().__init__()
        self.norm, self.mlp, self.change = norm, [mlp], change

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.change(self.mlp[0], x.sum().item() % 1)
        return self.norm(x)


def another(mlp: Mlp, value: float) -> None:
    mlp.scale = torch.tensor([value])


def in_place(mlp: Mlp, value: float) -> None:
    mlp.scale.fill_(value)


def item(mlp: Mlp, value: float) -> None:
    mlp.options["scale"][0] = value


def item_in_place(mlp: Mlp, value: float) -> None:
    if not isinstance(mlp.options["scale"][0], torch.Tensor):
        mlp.options["scale"][0] = torch.ones(())
    mlp.options["scale"][0].fill_(value)


def new_attribute(mlp: Mlp, value: float) -> None:
    if value > 0.5:
        mlp.options = {"scale": [value]}
    else:
        mlp.__dict__.pop("options", None)
        mlp.options = {"scale": [2.0]}


def switched(mlp: Mlp, value: float) -> None:
    mlp.train(value > 0.5)


def module(mlp: Mlp, value: float) -> None:
    mlp.inside = nn.Tanh() if value > 0.5 else nn.Sigmoid()


def nothing(mlp: Mlp, value: float) -> None:
    pass


CHANGES = [another, in_place, item, item_in_place, new_attribute, switched, module]


def build(change: Callable[[Mlp, float], None], mlp: type[Mlp] = Mlp) -> nn.Module:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG).train()
    for layer in model.model.layers:
        layer.mlp = mlp()
        layer.post_attention_layernorm = Sets(layer.mlp, layer.post_attention_layernorm, change)
    return model


def step(model: nn.Module) -> list[torch.Tensor]:
    """Two forwards that wait for one backward."""
    model.zero_grad()
    losses = [model(input_ids=ids, labels=ids).loss for ids in (IDS, IDS.flip(1))]
    (losses[0] * losses[1]).backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("engine", ["traced", "torch"])
@pytest.mark.parametrize(
    ("change", "mlp"), [*((change, Mlp) for change in CHANGES), (nothing, Counts), (nothing, WritesInPlace)]
)
def test_what_somebody_sets_between_calls(change: Callable[[Mlp, float], None], mlp: type[Mlp], engine: str) -> None:
    plain, model = build(change, mlp), build(change, mlp)
    handle = apply(model, "mlp", engine=engine)
    for _ in range(2):
        assert all(map(torch.equal, step(model), step(plain)))
    assert {layer.mode for layer in handle.report().layers} == {Mode.SUBLAYERS if engine == "traced" else ""}
    handle.restore()
    ours, theirs = (each.model.layers[0].mlp for each in (model, plain))
    assert ours.training == theirs.training
    assert str(vars(ours)) == str(vars(theirs))


def test_what_a_whole_layer_counts() -> None:
    plain, model = build(nothing, Counts), build(nothing, Counts)
    handle = apply(model, "full")
    for _ in range(2):
        assert all(map(torch.equal, step(model), step(plain)))
    assert {layer.mode for layer in handle.report().layers} == {Mode.WHOLE}
    assert model.model.layers[0].mlp.calls == plain.model.layers[0].mlp.calls
    handle.restore()


def test_a_large_tensor_that_somebody_begins_to_write_stops_the_run() -> None:
    writes = False

    def change(mlp: Mlp, value: float) -> None:
        if len(mlp.scale) == 1:
            mlp.scale = torch.ones(1 << 15, 16)
        if writes:
            mlp.scale.fill_(value)

    model = build(change)
    expected = step(model)
    handle = apply(model, "mlp")
    for _ in range(2):
        assert all(map(torch.equal, step(model), expected))
    writes = True
    with pytest.raises(RuntimeError, match="written in place"):
        step(model)
    handle.restore()


class Shares(Mlp):
    """Its linear layer and it share an attribute that one of them writes and the other reads."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(16, 4)
        self.share()

    def share(self) -> None:
        self.state: Any = {"scores": torch.zeros(1)}
        self.router.state = self.state
        self.router.register_forward_hook(lambda router, _, scores: router.state.update(scores=scores))

    def scores(self) -> torch.Tensor:
        return self.state["scores"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.router(x)
        return super().forward(x * self.scores()[..., :1])


class SharesWithAClosure(Shares):
    def share(self) -> None:
        state = self.state = {"scores": torch.zeros(1)}
        self.router.register_forward_hook(lambda _, __, scores: state.update(scores=scores))


class SharesAList(Shares):
    def share(self) -> None:
        self.state = ([torch.zeros(1)],)
        self.router.state = self.state[0]
        self.router.register_forward_hook(lambda router, _, scores: router.state.append(scores))

    def scores(self) -> torch.Tensor:
        return self.state[0][-1]


class SharesATensor(Shares):
    def share(self) -> None:
        self.state = self.router.state = torch.zeros(1)
        self.router.register_forward_hook(lambda router, *_: router.state.add_(1.0) and None)

    def scores(self) -> torch.Tensor:
        return self.state.clone()


class SharesABuffer(Shares):
    def share(self) -> None:
        self.router.register_buffer("state", torch.zeros(1))
        self.__dict__["state"] = self.router.state
        self.router.register_forward_hook(lambda router, *_: router.state.add_(1.0) and None)

    def scores(self) -> torch.Tensor:
        return self.state.clone()


class ReplacesADeepList(Shares):
    def share(self) -> None:
        self.state = [[[[[torch.ones(1)]]]]]

    def scores(self) -> torch.Tensor:
        self.state = [[[[list(self.state[0][0][0][0])]]]]
        return self.state[0][0][0][0][0]


class HasTensorsForKeys(Shares):
    def share(self) -> None:
        self.state = {torch.zeros(3): torch.ones(1)}

    def scores(self) -> torch.Tensor:
        return next(iter(self.state.values()))


SHARING = [Shares, SharesWithAClosure, SharesAList, SharesATensor, SharesABuffer, ReplacesADeepList, HasTensorsForKeys]


@pytest.mark.parametrize("policy", ["full", "mlp"])
@pytest.mark.parametrize("mlp", SHARING)
def test_what_modules_share(mlp: type[Mlp], policy: str) -> None:
    plain, model = build(nothing, mlp), build(nothing, mlp)
    handle = apply(model, policy)
    for _ in range(3):
        assert all(map(torch.equal, step(model), step(plain)))
    handle.restore()


class MyList(list):
    """A list of a class of its own, with an attribute."""


class MyDict(dict):
    """A dict of a class of its own."""

    def update(self, *_: Any, **__: Any) -> None:
        raise TypeError("items are set one by one")


class MyOrderedDict(OrderedDict):
    """An ordered dict of a class of its own."""


def a_list() -> MyList:
    made = MyList([1.0])
    made.last = 1.0
    return made


class Frozen(OrderedDict):
    """An ordered dict that refuses items once it is made, as those of Diffusers do."""

    def __init__(self, **items: Any) -> None:
        super().__init__(**items)
        self.is_frozen = True

    def __setitem__(self, key: str, value: Any) -> None:
        if hasattr(self, "is_frozen"):
            raise TypeError("it is frozen")
        super().__setitem__(key, value)


class Pair(NamedTuple):
    """A list and what it is for."""

    numbers: list[float]
    name: str


#: A container that a forward counts in, and how: by its latest number.
COUNTERS: list[Callable[[], Any]] = [
    lambda: OrderedDict(n=1.0), lambda: defaultdict(float, n=1.0), lambda: MyDict(n=1.0), lambda: MyOrderedDict(n=1.0),
    a_list, lambda: deque([1.0], maxlen=2), lambda: ([1.0], 0), lambda: {"inner": [MyDict(n=1.0)]},
    lambda: Pair([1.0], "calls"), lambda: Frozen(inner=[MyDict(n=1.0)]),
]  # fmt: skip


def count(container: Any) -> float:
    """Count in a container, or in the first one inside it."""
    if isinstance(container, tuple):
        return count(container[0])
    if isinstance(container, dict):
        if "inner" in container:
            return count(container["inner"][0])
        container["n"] += 1.0
        return float(container["n"])
    if isinstance(container, MyList):
        container.last += 1.0
        container.append(container[-1] + container.last)
    else:
        container.append(container[-1] + 1.0)
    return float(container[-1])


class CountsIn(nn.Module):
    """Counts its calls in a container, and may look at values, which a trace cannot."""

    def __init__(self, container: Any, *, looks: bool) -> None:
        super().__init__()
        self.container, self.looks, self.linear = container, looks, nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x * count(self.container))
        return torch.exp(y * (1.0 if not self.looks or y.argmax().item() >= 0 else 2.0))


def counting(make: Callable[[], Any], *, looks: bool) -> nn.Module:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG).train()
    for layer in model.model.layers:
        layer.mlp = CountsIn(make(), looks=looks)
    return model


@pytest.mark.parametrize("policy", ["full", "mlp"])
@pytest.mark.parametrize("looks", [False, True], ids=["traced", "replayed"])
@pytest.mark.parametrize("make", COUNTERS)
def test_what_a_module_counts_in_a_container(make: Callable[[], Any], looks: bool, policy: str) -> None:
    plain, model = counting(make, looks=looks), counting(make, looks=looks)
    handle = apply(model, policy)
    for _ in range(2):
        assert all(map(torch.equal, step(model), step(plain)))
    handle.restore()
    ours, theirs = (each.model.layers[0].mlp.container for each in (model, plain))
    assert ours == theirs
    assert type(ours) is type(theirs)


def test_a_container_that_was_replaced_is_another_one_of_its_class() -> None:
    def change(mlp: Mlp, value: float) -> None:
        mlp.options = defaultdict(lambda: [value])

    plain, model = build(change), build(change)
    handle = apply(model, "mlp")
    for _ in range(2):
        assert all(map(torch.equal, step(model), step(plain)))
    handle.restore()


class OneMemory(Mlp):
    """Writes to a tensor, and reads a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.all = torch.ones(6)
        self.first, self.last = self.all[:3], self.all.view(2, 3)[1]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.first.add_(0.25)
        return super().forward(x * self.all[0].clone() + self.last[0].clone())


@pytest.mark.parametrize("policy", ["full", "mlp"])
def test_attributes_in_one_memory(policy: str) -> None:
    plain, model = build(nothing, OneMemory), build(nothing, OneMemory)
    handle = apply(model, policy)
    for _ in range(3):
        assert all(map(torch.equal, step(model), step(plain)))
    handle.restore()
    assert torch.equal(model.model.layers[0].mlp.all, plain.model.layers[0].mlp.all)


class Apart(OneMemory):
    """Its attributes lie side by side in one memory, as integers and as floats."""

    def __init__(self) -> None:
        super().__init__()
        self.all, self.last = self.first, self.all[3:].view(torch.int32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.first.add_(0.25)
        return Mlp.forward(self, x * self.all[0].clone() + self.last[:1].view(torch.float32).clone())


def test_attributes_side_by_side_in_one_memory() -> None:
    plain, model = build(nothing, Apart), build(nothing, Apart)
    handle = apply(model, "mlp")
    for _ in range(2):
        assert all(map(torch.equal, step(model), step(plain)))
    handle.restore()


class Toggles(Mlp):
    """Every second forward leaves things as they were before the first: a replay must, too."""

    def __init__(self) -> None:
        super().__init__()
        self.double, self.modes = False, {"double": False}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.double, self.modes["double"] = not self.double, not self.modes["double"]
        return super().forward(x * (1.0 + self.double + 2.0 * self.modes["double"]))


@pytest.mark.parametrize("engine", ["traced", "torch"])
def test_what_a_replay_changes_is_put_back_where_it_was_as_the_forward_found_it(engine: str) -> None:
    plain, model = build(nothing, Toggles), build(nothing, Toggles)
    handle = apply(model, "mlp", engine=engine)
    for _ in range(3):
        assert all(map(torch.equal, step(model), step(plain)))
    handle.restore()


class Gathers(nn.Module):
    """Begins with an empty dict; no trace of that is one of what comes later."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.made = nn.Linear(16, 16), defaultdict(lambda: torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.made["scale"] = self.made["scale"] + 0.5
        return torch.exp(self.linear(x * self.made["scale"]))


class RunsABackward(nn.Module):
    """Asks for a gradient in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(torch.tanh(self.linear(leaf)).sum(), leaf)
        return torch.exp(torch.tanh(self.linear(x))) + slope


def with_mlp(kind: type[nn.Module]) -> nn.Module:
    """A model whose layer nothing but its MLP keeps from a trace."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG).train()
    model.model.layers[0].mlp = kind()
    return model


@pytest.mark.parametrize("kind", [Gathers, RunsABackward])
def test_what_a_trace_would_get_wrong(kind: type[nn.Module]) -> None:
    plain, model = with_mlp(kind), with_mlp(kind)
    handle = apply(model, "full")
    for _ in range(3):
        assert all(map(torch.equal, step(model), step(plain)))
    assert {layer.mode for layer in handle.report().layers} == {Mode.WHOLE}
    handle.restore()


class Seen:
    """What a module has seen."""

    def __init__(self) -> None:
        self.shifts: list[torch.Tensor] = []


class Logging(nn.Module):
    """Appends tensors to a list inside an object."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.seen = nn.Linear(16, 16), Seen()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.shifts.append(torch.ones(1))
        return torch.exp(self.linear(x))


def test_a_trace_fills_no_list_inside_an_object() -> None:
    model = with_mlp(Logging)
    handle = apply(model, "full")
    step(model)
    assert [type(shift) for shift in model.model.layers[0].mlp.seen.shifts] == [torch.Tensor] * 2
    handle.restore()


class TwoTypesInOneMemory(OneMemory):
    def __init__(self) -> None:
        super().__init__()
        self.last = self.all[3:].view(torch.int32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.first.add_(0.25)
        return Mlp.forward(self, x * self.all[0].clone() + self.last[:1].view(torch.float32).clone())


def test_attributes_of_two_types_in_one_memory_stop_the_run() -> None:
    model = build(nothing, TwoTypesInOneMemory)
    handle = apply(model, "mlp")
    with pytest.raises(RuntimeError, match="written in place"):
        step(model)
    handle.restore()


class Logs(Mlp):
    """Keeps a tensor that is in nobody's loss, the way ``keep`` says."""

    def keep(self, value: torch.Tensor) -> None:
        self.kept = value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.keep(self.linear(x).square())
        return super().forward(x)


class LogsInAList(Logs):
    def keep(self, value: torch.Tensor) -> None:
        self.kept = [[value]]


class LogsInAnObject(Logs):
    def keep(self, value: torch.Tensor) -> None:
        self.kept = SimpleNamespace(value=value)


@pytest.mark.parametrize("mlp", [Logs, LogsInAList, LogsInAnObject])
def test_the_graphs_of_earlier_steps_are_not_held(mlp: type[Mlp]) -> None:
    model = build(nothing, mlp)
    handle = apply(model, "mlp")
    alive = []
    for _ in range(4):
        step(model)
        gc.collect()
        alive.append(sum(isinstance(each, torch.Tensor) for each in gc.get_objects()))
    assert alive[-1] == alive[-2]
    handle.restore()


class Counter:
    """An object of a class that no library brings."""

    def __init__(self) -> None:
        self.n, self.seen = 0.0, [1.0]
        self.inner: Any = None

    def next(self) -> float:
        self.n += 0.5
        self.seen.append(self.n)
        return self.n + len(self.seen)


@dataclass(slots=True)
class Slots:
    """A counter without a dict."""

    n: float = 1.0

    def next(self) -> float:
        self.n += 0.5
        return self.n


class SlotsAndMore(Slots):
    """Slots of its parent, and attributes."""


def namespace_next(namespace: SimpleNamespace) -> float:
    namespace.n += 0.5
    return float(namespace.n)


def array_next(array: np.ndarray) -> float:
    array += 0.5
    return float(array[0])


#: What keeps state, and how a forward changes it.
KEEPERS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "namespace": (lambda: SimpleNamespace(n=0.0), namespace_next),
    "object": (Counter, Counter.next),
    "object in containers": (lambda: {"all": [Counter()]}, lambda kept: kept["all"][0].next()),
    "slots": (Slots, Slots.next),
    "slots and attributes": (SlotsAndMore, SlotsAndMore.next),
    "array": (lambda: np.zeros(2), array_next),
    "torch's generator": (
        lambda: torch.Generator().manual_seed(3), lambda kept: torch.rand(8, 16, generator=kept)
    ),
    "array that nobody writes to": (lambda: np.broadcast_to(np.ones(1), (2,)), lambda kept: float(kept[0])),
    "Python's generator": (lambda: random.Random(3), random.Random.random),
    "NumPy's generator": (lambda: np.random.default_rng(3), lambda kept: float(kept.random())),
    "NumPy's older generator": (lambda: np.random.RandomState(3), lambda kept: float(kept.rand())),
}  # fmt: skip


class Keeps(nn.Module):
    def __init__(self, keeper: str, *, looks: bool) -> None:
        super().__init__()
        make, self.next = KEEPERS[keeper]
        self.kept, self.looks, self.linear = make(), looks, nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).tanh() * self.next(self.kept)
        return torch.exp(y * (1.0 if not self.looks or y.argmax().item() >= 0 else 2.0))


@pytest.mark.parametrize(
    ("engine", "policy", "looks"),
    [("traced", "full", False), ("traced", "full", True), ("traced", "mlp", True), ("torch", "full", False)],
)
@pytest.mark.parametrize("keeper", KEEPERS)
def test_what_a_module_changes_behind_its_attributes(keeper: str, engine: str, policy: str, looks: bool) -> None:
    def build() -> nn.Module:
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(CONFIG).train()
        for layer in model.model.layers:
            layer.mlp = Keeps(keeper, looks=looks)
        return model

    plain, model = build(), build()
    handle = apply(model, policy, engine=engine)
    for _ in range(3):
        assert all(map(torch.equal, step(model), step(plain)))
    handle.restore()
    ours, theirs = (each.model.layers[0].mlp for each in (model, plain))
    assert torch.equal(*(torch.as_tensor(mlp.next(mlp.kept)) for mlp in (ours, theirs)))


def in_an_object(mlp: Mlp, value: float) -> None:
    mlp.kept.n = value


def deeper(mlp: Mlp, value: float) -> None:
    mlp.kept.inner.n = value


def in_a_list_of_an_object(mlp: Mlp, value: float) -> None:
    mlp.kept.seen[1] = value


def beside_a_tensor(mlp: Mlp, value: float) -> None:
    mlp.options["scale"][1] = value


def in_an_array(mlp: Mlp, value: float) -> None:
    mlp.array[1] = value


def in_another_object(mlp: Mlp, value: float) -> None:
    mlp.namespace = SimpleNamespace(n=value)


class ReadsAll(Mlp):
    def __init__(self) -> None:
        super().__init__()
        self.kept = Counter()
        self.kept.inner, self.kept.seen = Counter(), [torch.ones(1), 1.0]
        self.options = {"scale": [torch.ones(1), 1.0]}
        self.array, self.namespace = np.ones(2), SimpleNamespace(n=1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        read = (self.kept.n, self.kept.inner.n, self.kept.seen[1], self.options["scale"][1], self.array[1])
        return torch.exp(self.linear(x).tanh() * float(sum(read) + self.namespace.n))


@pytest.mark.parametrize(
    "change",
    [in_an_object, deeper, in_a_list_of_an_object, beside_a_tensor, in_an_array, in_another_object],
)  # fmt: skip
def test_a_trace_is_of_what_stands_behind_the_attributes_now(change: Callable[[Mlp, float], None]) -> None:
    plain, model = with_mlp(ReadsAll), with_mlp(ReadsAll)
    handle = apply(model, "full")
    for value in (1.0, 1.0, 0.5, 0.25, 0.5):
        for each in (plain, model):
            change(each.model.layers[0].mlp, value)
        assert all(map(torch.equal, step(model), step(plain)))
    assert {layer.mode for layer in handle.report().layers} == {Mode.SYMBOLIC}
    handle.restore()


class Twice:
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Thrice:
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * 3


class Reads(nn.Module):
    """Reads what is not there at first, and what is the same but for its kind."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.empty, self.options, self.listed = SimpleNamespace(), {"t": torch.ones(1)}, [torch.ones(1)]
        self.function: Any = Twice()
        self.method, self.partial = self.twice, partial(torch.mul, other=1.0)
        self.slots, self.numbers = Slots(), SimpleNamespace(f=np.float32(1.0), c=1j, b=b"1")

    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def thrice(self, x: torch.Tensor) -> torch.Tensor:
        return x * 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        there = getattr(self.empty, "n", 1.0) + self.options.get("n", 1.0) + len(self.listed) + self.slots.n
        there += float(self.numbers.f) + self.numbers.c.imag + float(self.numbers.b)
        y = self.method(self.function(self.linear(x).tanh() * there * self.partial.keywords["other"]))
        return torch.exp(y / 50)


CHANGED_LATER: dict[str, Callable[[Reads], Any]] = {
    "attribute of an empty object": lambda mlp: setattr(mlp.empty, "n", 0.5),
    "item beside a tensor": lambda mlp: mlp.options.update(n=0.5),
    "length of a list of tensors": lambda mlp: mlp.listed.append(torch.ones(1)),
    "object of another class": lambda mlp: setattr(mlp, "function", Thrice()),
    "method": lambda mlp: setattr(mlp, "method", mlp.thrice),
    "partial": lambda mlp: setattr(mlp, "partial", partial(torch.mul, other=0.5)),
    "slot": lambda mlp: setattr(mlp.slots, "n", 0.5),
    "number of NumPy's": lambda mlp: setattr(mlp.numbers, "f", np.float32(0.5)),
    "complex number": lambda mlp: setattr(mlp.numbers, "c", 0.5j),
    "bytes": lambda mlp: setattr(mlp.numbers, "b", b"2"),
}


@pytest.mark.parametrize("change", CHANGED_LATER)
def test_a_trace_is_of_what_was_there_and_of_its_kind(change: str) -> None:
    plain, model = with_mlp(Reads), with_mlp(Reads)
    handle = apply(model, "full")
    for _ in range(2):
        assert all(map(torch.equal, step(model), step(plain)))
        for each in (plain, model):
            CHANGED_LATER[change](each.model.layers[0].mlp)
    assert {layer.mode for layer in handle.report().layers} == {Mode.SYMBOLIC}
    handle.restore()


class PutsAnother(nn.Module):
    """Puts another object with slots in its place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.kept = nn.Linear(16, 16), SlotsAndMore()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.kept = SlotsAndMore(self.kept.n + 0.5)
        return torch.exp(self.linear(x).tanh() * self.kept.n)


@pytest.mark.parametrize("engine", ["traced", "torch"])
def test_an_object_with_slots_that_a_forward_replaces(engine: str) -> None:
    plain, model = with_mlp(PutsAnother), with_mlp(PutsAnother)
    handle = apply(model, "full", engine=engine)
    for _ in range(2):
        assert all(map(torch.equal, step(model), step(plain)))
    handle.restore()
