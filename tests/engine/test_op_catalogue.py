"""The catalogue of ops, held against torch's own schemas and the ops that real layers run."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import BertConfig, BertForMaskedLM

import hf_ckpt
from hf_ckpt.op_catalogue import Cost, is_listed, traits_of
from hf_ckpt.policy.decision import RecomputeLayer, SaveableOps
from hf_ckpt.policy.saveable import is_saveable
from hf_ckpt.regions.ops import keeps

from .tracing.test_choices import FAMILIES, undecided
from .zoo import ARCHITECTURES, batch, build, install

RULES = [SaveableOps(rule) for rule in ("dots", "dots_with_no_batch_dims", "nothing")] + [
    SaveableOps("names", names) for names in (("mm",), ("aten.bmm",), ("aten.silu.default", "convolution"))
]
_FAST = ("llama", "gpt2", "mixtral", "deepseek_v3")


class Targets(TorchDispatchMode):
    """Collects the ops that run, as selective checkpointing sees them."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[torch._ops.OpOverload] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(func)
        return func(*args, **kwargs or {})


def ops_of(architecture: str) -> tuple[set[str], set[torch._ops.OpOverload]]:
    """The names of the ops in the traces of a model's layers, and the ops that its forward runs."""
    model = undecided(architecture) if architecture in FAMILIES else build(architecture)
    engines = install(model, RecomputeLayer())
    with Targets() as targets:
        model(**batch())
    ledgers = [ledger for engine in engines if (ledger := engine.ledger()) is not None]
    assert ledgers
    return {op.name for ledger in ledgers for op in ledger.ops if op.outputs}, targets.seen


def check(architecture: str) -> None:
    names, targets = ops_of(architecture)
    assert {name for name in names if not is_listed(name)} == set()
    for rule in RULES:
        for target in targets:
            assert keeps(rule, target) == is_saveable(rule, str(target)), target


@pytest.mark.parametrize("architecture", _FAST)
def test_every_op_of_real_layers_is_listed_and_means_the_same_to_both_engines(architecture: str) -> None:
    check(architecture)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", sorted({*ARCHITECTURES, *FAMILIES} - set(_FAST)))
def test_every_op_is_listed_in_all_other_architectures(architecture: str) -> None:
    check(architecture)


def test_what_draws_random_numbers_is_priced_as_such() -> None:
    for name in (
        "bernoulli",
        "native_dropout",
        "uniform",
        "normal",
        "exponential",
        "rand_like",
        "randn",
        "multinomial",
    ):
        packet = getattr(torch.ops.aten, name, None) or getattr(torch.ops.aten, name + "_")
        overload = getattr(packet, packet.overloads()[0])
        assert torch.Tag.nondeterministic_seeded in overload.tags
        assert traits_of(str(overload)).cost is Cost.RANDOM


def test_every_listed_op_exists() -> None:
    from hf_ckpt import op_catalogue

    for name in op_catalogue._CATALOGUE:
        assert hasattr(torch.ops.aten, name) or hasattr(torch.ops.aten, f"{name}_"), name


@pytest.mark.parametrize("rule", RULES[:2], ids=["dots", "no_batch_dims"])
def test_a_convolution_is_kept_by_both_engines(rule: SaveableOps) -> None:
    assert keeps(rule, torch.ops.aten.convolution.default)
    assert is_saveable(rule, "aten.convolution.default")
    assert is_saveable(rule, "transformers.grouped_mm_fallback.default")


def test_the_same_products_run_again_under_both_engines() -> None:
    """Counted in backward: what a product policy keeps is not run again, by either engine."""

    def products(engine: str | None) -> dict[str, int]:
        torch.manual_seed(0)
        config = BertConfig(
            vocab_size=96, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64
        )
        model = BertForMaskedLM(config).train()
        handle = hf_ckpt.apply(model, "dots_with_no_batch_dims_saveable", engine=engine) if engine else None
        ids = batch()["input_ids"]
        for _ in range(2):
            loss = model(input_ids=ids, labels=ids).loss
            with Counts() as counts:
                loss.backward()
        if handle is not None:
            handle.restore()
        return {
            name: counts.calls.get(name, 0) for name in ("aten.mm.default", "aten.addmm.default", "aten.bmm.default")
        }

    plain, traced, reference = products(None), products("traced"), products("torch")
    assert traced == reference
    assert traced["aten.addmm.default"] == plain["aten.addmm.default"]
    assert traced["aten.bmm.default"] > plain["aten.bmm.default"]


class Counts(TorchDispatchMode):
    """Counts the calls of every op."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls[str(func)] = self.calls.get(str(func), 0) + 1
        return func(*args, **kwargs or {})
