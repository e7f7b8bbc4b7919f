"""A policy is resolved once, and refused once: everything it asks for in one value, or one sentence why not."""

from __future__ import annotations

import pytest

from hf_ckpt.errors import CkptError, ModelStructureError, PolicyError
from hf_ckpt.planner.budget import ShareBudget
from hf_ckpt.policy import parse_policy
from hf_ckpt.policy.decision import Layer, RecomputeLayer, Role, Stack, Tower
from hf_ckpt.policy.platform import Engine, Platform
from hf_ckpt.policy.resolve import resolve

ROLES = {Role.ATTENTION: ("self_attn",), Role.MLP: ("mlp",), Role.NORM: ("norm",)}


def stack(count: int = 4, tower: Tower = Tower.LANGUAGE, **layer: object) -> Stack:
    layers = tuple(Layer(i, f"{tower}.layers.{i}", "Block", **({"sublayers": ROLES} | layer)) for i in range(count))
    return Stack(f"{tower}.layers", tower, layers, "sdpa")


def test_everything_a_policy_asks_for_is_in_the_value() -> None:
    resolved = resolve(parse_policy("budget=0.5+head(4)+offload"), [stack()], Platform(device="cuda"))
    assert resolved.requests.budget == ShareBudget(0.5)
    assert (resolved.requests.head_chunks, resolved.requests.offload) == (4, True)
    assert resolved.recomputes
    assert not resolve(parse_policy("none"), [stack()], Platform()).recomputes


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("full+offload", "they are in host memory already"),
        ("budget=0.5+offload", "they are in host memory already"),
        ("full+head(2)+head(4)", "names `head` 2 times: name it once"),
        ("budget=0.5@first(2)+budget=0.7@layers(2-)", "names `budget` 2 times"),
        (
            "budget=0.5@language+budget=0.5@vision",
            "names `budget` 2 times: name it once, for all places together: `@(language+vision)`",
        ),
        ("budget=0.5+budget=0.7", "names `budget` 2 times"),
        ("full@vision", "`full@vision` names no layer of this model: name some of language.layers (language, 4 layers"),
        ("mlp@vision", "with attention, mlp, norm)"),
        ("audio", "`audio` names no layer"),
        ("none@audio", "`none@audio` names no layer"),
        ("first(2)@last(2)", "`first(2)@last(2)` names no layer"),
        ("full+attention@vision", "`attention@vision` names no layer"),
        ("(attention+norm@vision)@first(2)", "`norm@vision@first(2)` names no layer"),
        ("full@(audio+vision)", "`full@(audio+vision)` names no layer"),
        ("layers(9)", "has 4 layers: 0 to 3"),
    ],
)
def test_refusals(policy: str, says: str) -> None:
    with pytest.raises(PolicyError) as error:
        resolve(parse_policy(policy), [stack()], Platform())
    assert says in str(error.value)


def test_a_stack_without_the_sublayer_is_passed_over() -> None:
    bare = stack(2, Tower.AUDIO, sublayers={Role.NORM: ("norm",)})
    resolved = resolve(parse_policy("attention"), [bare, stack(2)], Platform())
    assert [name for name, decision in resolved.layers.items() if "attention" in repr(decision).lower()] == [
        "language.layers.0", "language.layers.1",
    ]  # fmt: skip
    with pytest.raises(PolicyError, match=r"\(no layer of audio.layers \(Block\) has a sublayer of role attention\)"):
        resolve(parse_policy("attention"), [bare], Platform())


@pytest.mark.parametrize("policy", ["budget=0.5", "segments(2)", "dots_saveable", "dots_saveable@first(1)+norm"])
def test_what_a_compiled_graph_cannot_follow(policy: str) -> None:
    compiled = Platform(engine=Engine.TORCH, compiled=True)
    with pytest.raises(PolicyError, match="cannot be followed inside the graph"):
        resolve(parse_policy(policy), [stack()], compiled)
    for fine in ("full", "every(2)", "attention+norm", "full+head(2)", "none"):
        resolve(parse_policy(fine), [stack()], compiled)


def test_what_engine_and_model_cannot_do() -> None:
    with pytest.raises(PolicyError, match='pass engine="traced" to SelectiveCkpt or apply'):
        resolve(parse_policy("budget=0.5"), [stack()], Platform(engine=Engine.TORCH))
    with pytest.raises(PolicyError, match="torch's checkpoint cannot do in one layer"):
        resolve(parse_policy("dots_saveable+norm"), [stack()], Platform(engine=Engine.TORCH))
    with pytest.raises(ModelStructureError, match="no lm_head"):
        resolve(parse_policy("full+head(2)"), [stack()], Platform(missing_head="no lm_head"))
    with pytest.raises(CkptError, match="torch has no op of that name"):
        resolve(parse_policy("save_only_these_names(mn)"), [stack()], Platform(has_op=lambda name: name == "mm"))
    with pytest.raises(PolicyError, match="on the meta device"):
        resolve(parse_policy("budget=0.5"), [stack()], Platform(device="meta"))


@pytest.mark.parametrize("policy", ["offload", "attention+offload", "segments(2)+offload", "none+offload"])
def test_offload_without_anything_to_move_is_refused(policy: str) -> None:
    with pytest.raises(PolicyError, match="leaves `offload` nothing to move"):
        resolve(parse_policy(policy), [stack()], Platform(device="cuda"))


@pytest.mark.parametrize("platform", [Platform(Engine.TORCH, device="cuda"), Platform(compiled=True, device="cuda")])
def test_offload_needs_the_traced_engine(platform: Platform) -> None:
    with pytest.raises(PolicyError, match="`offload` moves tensors that the engine `traced` holds"):
        resolve(parse_policy("full+offload"), [stack()], platform)


def test_offload_without_a_budget_is_about_layers_recomputed_whole() -> None:
    resolved = resolve(parse_policy("full@first(2)+attention@last(1)+offload"), [stack()], Platform(device="cuda"))
    sent = [isinstance(decision, RecomputeLayer) and decision.offload for decision in resolved.layers.values()]
    assert sent == [True, True, False, False]
    planned = resolve(parse_policy("full@first(2)+budget=0.5@last(2)+offload"), [stack()], Platform(device="cuda"))
    assert [d for d in planned.layers.values() if isinstance(d, RecomputeLayer)] == [RecomputeLayer()] * 2
