"""Policies as values: grammar, dict form, composition, decisions. No torch here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hf_ckpt import policies as policies_folder
from hf_ckpt.errors import CkptError, PolicyError
from hf_ckpt.policy import decide, from_dict, parse_policy, policies, to_dict
from hf_ckpt.policy.decision import (
    Keep,
    Layer,
    Planned,
    RecomputeExcept,
    RecomputeLayer,
    RecomputeSegment,
    RecomputeSublayers,
    RecomputeUnion,
    Role,
    SaveableOps,
    Stack,
    Tower,
)
from hf_ckpt.policy.platform import Platform
from hf_ckpt.policy.resolve import resolve

SUBLAYERS = {Role.ATTENTION: ("self_attn",), Role.MLP: ("mlp",), Role.NORM: ("input_layernorm",)}


def stack(count: int = 8, tower: Tower = Tower.LANGUAGE, kernel: str = "sdpa") -> Stack:
    name = f"{tower}.layers"
    layers = tuple(Layer(i, f"{name}.{i}", "LlamaDecoderLayer", SUBLAYERS) for i in range(count))
    return Stack(name, tower, layers, kernel)


def chosen(policy: str, count: int = 8) -> list[int]:
    decisions = decide(parse_policy(policy), [stack(count)])
    return [i for i, d in enumerate(decisions.values()) if not isinstance(d, Keep)]


WRITTEN = [
    "none",
    "full",
    "every(2)",
    "first(3)",
    "last(3)",
    "layers(0-3,7)",
    "layers(4-)",
    "segments(2)",
    "segments(sqrt)",
    "attention",
    "mlp",
    "norm",
    "attention+norm",
    "attention+norm@layers(0-3)",
    "(attention+norm)@first(2)+full@last(1)",
    "dots_saveable@first(1)+mlp@layers(1-)",
    "save_only_these_names(mm,aten.addmm)",
    "full@vision+norm@every(2)@language",
    "balanced",
    "budget=0.5",
    "budget=72GiB+head(8)",
    "budget=auto",
    "budget=40GiB+offload",
    "budget=80GB",
    "budget=0.5@(language+vision)",
    "attention@(first(2)+last(2))@every(2)",
]


@pytest.mark.parametrize("text", WRITTEN)
def test_policy_survives_string_and_json(text: str) -> None:
    policy = parse_policy(text)
    assert str(policy) == text
    assert parse_policy(str(policy)) == policy
    assert from_dict(json.loads(json.dumps(to_dict(policy)))) == policy


NEW_POLICY = '''
from dataclasses import dataclass
from typing import ClassVar
from hf_ckpt.policy.base import LayerSelector

@dataclass(frozen=True, slots=True)
class Odd(LayerSelector):
    """Every second layer, from the second on."""
    name: ClassVar[str] = "odd"
    def select(self, stack):
        return frozenset(range(1, len(stack.layers), 2))
'''


def test_a_policy_is_one_new_file(tmp_path, monkeypatch) -> None:
    (tmp_path / "odd.py").write_text(NEW_POLICY)
    monkeypatch.setattr(policies_folder, "__path__", [*policies_folder.__path__, str(tmp_path)])
    policies.cache_clear()
    try:
        assert policies().keys() >= {"odd", "full", "budget", "head"}
        assert str(parse_policy("attention@odd+full@first(1)")) == "attention@odd+full@first(1)"
    finally:
        sys.modules.pop("hf_ckpt.policies.odd", None)
        policies.cache_clear()


def test_every_policy_is_found_under_the_name_it_is_written_with() -> None:
    assert all(policy.name == name for name, policy in policies().items())
    files = {policy.__module__.rpartition(".")[2] for policy in policies().values()}
    assert files == {path.stem for path in Path(policies_folder.__path__[0]).glob("*.py")} - {"__init__"}


@pytest.mark.parametrize("name", sorted(policies()))
def test_every_policy_shows_how_it_is_written(name: str) -> None:
    written = policies()[name].usage or name
    assert isinstance(parse_policy(written.removeprefix("budget=40GiB+")), policies()[name])
    assert str(parse_policy(written)) == written


@pytest.mark.parametrize(
    ("policy", "layers"),
    [
        ("none", []),
        ("full", list(range(8))),
        ("every(3)", [0, 3, 6]),
        ("first(3)", [0, 1, 2]),
        ("first(99)", list(range(8))),
        ("last(2)", [6, 7]),
        ("layers(1-2,5)", [1, 2, 5]),
        ("layers(6-)", [6, 7]),
        ("attention@layers(2-5)@every(2)", [2, 4]),
        ("full@vision", []),
    ],
)
def test_which_layers(policy: str, layers: list[int]) -> None:
    assert chosen(policy) == layers


def test_segments_are_regions_of_consecutive_layers() -> None:
    decisions = list(decide(parse_policy("segments(3)"), [stack(8)]).values())
    assert decisions[:3] == [RecomputeSegment(0, 2)] * 3
    assert decisions[6:] == [RecomputeSegment(6, 7)] * 2
    assert next(iter(decide(parse_policy("segments(sqrt)"), [stack(9)]).values())) == RecomputeSegment(0, 2)


def test_composition_rebuilds_what_any_term_rebuilds() -> None:
    first = next(iter(decide(parse_policy("attention+norm"), [stack()]).values()))
    assert first == RecomputeSublayers(frozenset({Role.ATTENTION, Role.NORM}))
    assert next(iter(decide(parse_policy("attention+full"), [stack()]).values())) == RecomputeLayer()
    mixed = list(decide(parse_policy("dots_saveable@first(1)+mlp@last(1)"), [stack(2)]).values())
    assert mixed == [RecomputeExcept(SaveableOps("dots")), RecomputeSublayers(frozenset({Role.MLP}))]


def test_op_policies_add_up_to_a_union() -> None:
    dots, fewer = RecomputeExcept(SaveableOps("dots")), RecomputeExcept(SaveableOps("dots_with_no_batch_dims"))
    both = RecomputeSublayers(frozenset({Role.ATTENTION, Role.NORM}))
    for policy, expected in (
        ("dots_saveable+attention+norm", RecomputeUnion((dots, both))),
        ("norm+dots_saveable+attention+dots_saveable", RecomputeUnion((dots, both))),
        ("dots_saveable+dots_with_no_batch_dims_saveable", RecomputeUnion((dots, fewer))),
        ("dots_saveable+attention+full", RecomputeLayer()),
        ("dots_saveable+everything_saveable", dots),
    ):
        assert next(iter(decide(parse_policy(policy), [stack()]).values())) == expected, policy


def test_towers_are_told_apart() -> None:
    stacks = [stack(3, Tower.VISION), stack(4)]
    names = {name for name, d in decide(parse_policy("every(2)"), stacks).items() if not isinstance(d, Keep)}
    assert names == {"vision.layers.0", "vision.layers.2", "language.layers.0", "language.layers.2"}
    names = {
        n for n, d in decide(parse_policy("full@vision+last(1)@language"), stacks).items() if not isinstance(d, Keep)
    }
    assert names == {"vision.layers.0", "vision.layers.1", "vision.layers.2", "language.layers.3"}


def test_balanced_knows_the_kernel() -> None:
    eager = next(iter(decide(parse_policy("balanced"), [stack(kernel="eager")]).values()))
    fused = next(iter(decide(parse_policy("balanced"), [stack(kernel="sdpa")]).values()))
    assert eager == RecomputeSublayers(frozenset({Role.ATTENTION, Role.NORM}))
    assert fused == RecomputeSublayers(frozenset({Role.MLP, Role.NORM}))


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("ful", "did you mean `full`"),
        ("every(0)", "whole number above 0"),
        ("every", "whole number above 0"),
        ("full(2)", "takes no arguments"),
        ("layers", "needs indices"),
        ("layers(5-2)", "runs backwards"),
        ("layers(x)", "not an index"),
        ("layers(8)", "has 8 layers: 0 to 7"),
        ("attention+", "name of a policy is missing"),
        ("(full", "never closed"),
        ("every(2", "never closed"),
        ("full full", "was not expected here"),
        ("full@attention", "does not name layers"),
        ("full+segments(2)", "to a segment and to another recompute at once"),
        ("save_only_these_names", "needs op names"),
        ("budget", "takes one value"),
        ("budget=lots", "budget"),
        ("budget=0.5+norm", "decides about every layer it is given"),
        ("head(0)", "whole number above 0"),
        ("(full+head(2))@first(2)", "`head(2)` is about no layers"),
        ("", "name of a policy is missing"),
    ],
)
def test_bad_policies_get_one_clear_sentence(policy: str, says: str) -> None:
    with pytest.raises(CkptError) as error:
        resolve(parse_policy(policy), [stack()], Platform())
    assert says in str(error.value)
    assert "\n" not in str(error.value)


MALFORMED_ENTRIES = [
    {},
    {"nme": "full"},
    {"budget": 0.5, "full": []},
    {"terms": [{"name": 3}]},
    {"terms": [3]},
    {"terms": None},
    {"name": "full", "extra": 1},
    {"name": "full", "terms": ["norm"]},
    {"name": "first", "args": None},
    {"name": "first", "args": [True]},
    {"name": "first", "args": [[2]]},
    {"name": "full", "on": [2]},
]


@pytest.mark.parametrize("entry", MALFORMED_ENTRIES, ids=str)
def test_bad_dicts_are_named(entry: dict) -> None:
    with pytest.raises(PolicyError, match="is not of the form"):
        parse_policy(entry)


@pytest.mark.parametrize(
    ("entry", "policy"),
    [
        ({"name": "budget", "args": 0.5}, "budget=0.5"),
        ({"budget": 0.5}, "budget=0.5"),
        ({"budget": "80GB"}, "budget=80GB"),
        ({"attention": [], "on": {"first": 8}}, "attention@first(8)"),
        ({"terms": [{"budget": "72GiB"}, {"head": 8}]}, "budget=72GiB+head(8)"),
        ({"budget": 0.5, "on": {"terms": ["language", "vision"]}}, "budget=0.5@(language+vision)"),
        ({"name": "budget", "args": "auto"}, "budget=auto"),
        ({"name": "first", "args": [2]}, "first(2)"),
        ({"terms": "full"}, "full"),
        ({"terms": ["attention", {"name": "norm"}]}, "attention+norm"),
        ({"name": "full", "on": ["first(2)"]}, "full@first(2)"),
        ({"name": "full", "on": {"name": "first", "args": 2}}, "full@first(2)"),
        ({"terms": ["attention", "norm"], "on": "first(2)"}, "(attention+norm)@first(2)"),
    ],
    ids=str,
)
def test_dicts_may_be_short(entry: dict, policy: str) -> None:
    assert parse_policy(entry) == parse_policy(policy)


def test_an_empty_list_of_terms_is_no_policy() -> None:
    with pytest.raises(PolicyError, match="names no policy: `none` keeps everything"):
        parse_policy({"terms": []})


@pytest.mark.parametrize(
    ("budget", "policy"),
    [
        ("0.5", "budget=0.5"),
        ("auto", "budget=auto"),
        (0.5, "budget=0.5"),
    ],
)
def test_a_bare_budget_is_told_how_it_is_written(budget: str | float, policy: str) -> None:
    with pytest.raises(PolicyError) as error:
        parse_policy(budget)  # type: ignore[arg-type]
    assert f"`{budget}` is a memory budget, not a policy: write `{policy}`" in str(error.value)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("auto+offload", "`auto` is a memory budget, not a policy: write `budget=auto`"),
        ("72 GiB+offload", "`72 GiB` is a memory budget, not a policy: write `budget=72GiB`"),
        ("(norm+50%)@first(2)", "`50%` is a memory budget, not a policy: write `budget=0.5`"),
    ],
)
def test_a_bare_budget_in_a_sum_is_told_so_too(text: str, budget: str) -> None:
    with pytest.raises(PolicyError) as error:
        parse_policy(text)
    assert str(error.value) == budget


@pytest.mark.parametrize(
    ("size", "policy"),
    [
        ("50%", "budget=0.5"),
        ("72GiB", "budget=72GiB"),
        (" 72 GiB", "budget=72GiB"),
        ("80GB", "budget=80GB"),
        ("80G", "budget=80GB"),
        ("80Gi", "budget=80GiB"),
        ("budget=80G+head(8)", "budget=80GB+head(8)"),
    ],
)
def test_a_size_with_its_unit_is_a_budget(size: str, policy: str) -> None:
    assert str(parse_policy(size)) == policy


def test_a_budget_without_a_unit_is_told_so() -> None:
    with pytest.raises(CkptError, match="'80' is a memory budget without a unit: write '80GiB'"):
        parse_policy("budget=80")


@pytest.mark.parametrize("text", ["budget=72 GiB", "budget = 72 gib", "budget=72 GiB+head(8)", "budget=50 %@first(2)"])
def test_a_budget_may_have_a_space_before_its_unit(text: str) -> None:
    assert parse_policy(text) == parse_policy(text.replace(" ", ""))


def test_missing_sublayers_are_said() -> None:
    bare = Stack("h", Tower.LANGUAGE, (Layer(0, "h.0", "OPTDecoderLayer"),), "sdpa")
    with pytest.raises(PolicyError, match="no layer of h \\(OPTDecoderLayer\\) has a sublayer of role mlp"):
        resolve(parse_policy("mlp"), [bare], Platform())


def test_policies_never_import_torch() -> None:
    code = "import sys, hf_ckpt.policy as p; p.parse_policy('full+norm@vision'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_union_of_selectors_names_the_layers_of_any() -> None:
    stacks = [stack(3, Tower.VISION), stack(4)]
    both = decide(parse_policy("budget=0.5@(language+vision)"), stacks)
    assert set(both.values()) == {Planned()}
    some = decide(parse_policy("full@(first(1)+vision)@last(2)"), stacks)
    assert [name for name, d in some.items() if d != Keep()] == ["vision.layers.1", "vision.layers.2"]
