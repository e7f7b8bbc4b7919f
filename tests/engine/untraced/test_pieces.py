"""The pieces of a layer that cannot be traced: which there are, and that replaying each frees what was counted."""

import time

import torch
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig

from hf_ckpt import apply
from hf_ckpt.anatomy.roles import sublayers_by_role
from hf_ckpt.assignment import Assignment
from hf_ckpt.engine import buffer_keys
from hf_ckpt.engine.untraced import layer as untraced
from hf_ckpt.engine.untraced.counted_ledger import CHECKPOINT_SECONDS, CHOICES_OP, SUBLAYER_OP
from hf_ckpt.engine.untraced.layer import names_to_replay
from hf_ckpt.engine.untraced.pieces import MOST_PIECES, pieces_of
from hf_ckpt.engine.written_arguments import checkpointed
from hf_ckpt.planner.costs.assess import layer_held
from hf_ckpt.planner.costs.problem import Kind
from hf_ckpt.planner.costs.transient import transient_bytes
from hf_ckpt.policy.decision import Role

CONFIG = LlamaConfig(
    num_hidden_layers=2, hidden_size=32, intermediate_size=88, num_attention_heads=2, vocab_size=61, use_cache=False
)
IDS = torch.arange(2 * 24).reshape(2, 24) % 61


class Lora(nn.Module):
    """LoRA with dropout, on a frozen matrix."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.dropout = base.requires_grad_(False), nn.Dropout(0.1)
        self.a, self.b = nn.Linear(base.in_features, 4, bias=False), nn.Linear(4, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.b(self.a(self.dropout(x)))


class Careful(nn.Module):
    """Looks at its values to decide what to do, which a trace cannot."""

    def forward(self, gate: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(gate) if gate.argmax().item() >= 0 else gate


def build() -> nn.Module:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG).train()
    for layer in model.model.layers:
        layer.requires_grad_(False)
        layer.self_attn.q_proj = Lora(layer.self_attn.q_proj)
        layer.self_attn.v_proj = Lora(layer.self_attn.v_proj)
        layer.mlp.down_proj = Lora(layer.mlp.down_proj)
        layer.mlp.act_fn = Careful()
    return model


def pieces(layer: nn.Module) -> dict[str, str]:
    return pieces_of(layer, sublayers_by_role(layer))


def test_the_modules_of_attention_and_mlp_are_pieces_down_to_the_smallest() -> None:
    found = pieces(build().model.layers[0])
    assert found["mlp"] == found["input_layernorm"] == ""
    assert found["mlp.down_proj"] == found["mlp.act_fn"] == "mlp"
    assert found["mlp.down_proj.dropout"] == "mlp.down_proj"


def test_no_level_is_offered_that_makes_too_many_no_experts_no_parametrizations_and_no_module_twice() -> None:
    class Block(nn.Module):
        def __init__(self, mlp: nn.Module) -> None:
            super().__init__()
            self.mlp = mlp

    def inside(mlp: nn.Module) -> set[str]:
        return {*pieces_of(Block(mlp), {Role.MLP: ("mlp",)})} - {"mlp"}

    wide = nn.Sequential(*(nn.Sequential(*(nn.Linear(2, 2) for _ in range(8))) for _ in range(MOST_PIECES // 8)))
    assert len(inside(wide)) == MOST_PIECES // 8
    routed = nn.Module()
    routed.gate, routed.members = nn.Linear(2, 2), nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    assert inside(routed) == {"mlp.gate"}
    different = nn.Module()
    different.net = nn.ModuleList([nn.Linear(2, 2), nn.GELU(), nn.Dropout()])
    assert inside(different) == {"mlp.net.0", "mlp.net.1", "mlp.net.2"}
    same = nn.GELU()
    assert inside(nn.Sequential(nn.Sequential(nn.Linear(2, 2), same), same)) == {"mlp.0", "mlp.1", "mlp.0.0"}
    normed = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))
    assert inside(normed) == {"mlp.0"}
    assert {*pieces_of(Block(wide), {Role.EXPERTS: ("mlp",)})} == {"mlp"}
    holds_weights = nn.Sequential(nn.Linear(2, 2))
    holds_weights.register_module("scales", nn.ParameterDict())
    assert inside(holds_weights) == {"mlp.0"}


def test_pieces_are_looked_for_again_when_counting_begins_and_not_in_every_forward(monkeypatch) -> None:
    looked, chose = [], []
    monkeypatch.setattr(untraced, "pieces_of", lambda *args: looked.append(args) or pieces_of(*args))
    monkeypatch.setattr(untraced, "names_to_replay", lambda *args: chose.append(args) or names_to_replay(*args))
    model = build()
    handle = apply(model, "full")
    replays = [region.replay for region in handle.installation.regions]

    def forwards(expected_looked: int, expected_chosen: int) -> None:
        looked.clear()
        chose.clear()
        for _ in range(3):
            model(input_ids=IDS, labels=IDS).loss.backward()
        assert (len(looked), len(chose)) == (expected_looked, expected_chosen)

    for replay in replays:
        replay.counts = True
    forwards(2, 2)
    for replay in replays:
        replay.counts = False
        replay.plan = Assignment.where(keep=[f"/{SUBLAYER_OP}/0/0"])
    forwards(0, 2)
    for layer, replay in zip(model.model.layers, replays, strict=True):
        layer.mlp.down_proj = layer.mlp.down_proj.base
        replay.counts = True
    forwards(2, 2)
    assert not any(op.module == "mlp.down_proj.dropout" for op in replays[0].ledger().ops)
    handle.restore()


def test_replaying_a_piece_frees_what_was_counted_and_changes_no_bit() -> None:
    model = build()

    def step() -> list[torch.Tensor]:
        model.zero_grad()
        torch.manual_seed(1)
        model(input_ids=IDS, labels=IDS).loss.backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    expected = step()
    handle = apply(model, "full")
    replays = [region.replay for region in handle.installation.regions]
    for replay in replays:
        replay.counts = True
    step()
    replay = replays[1]  # its input has a gradient, as that of every layer but the first one
    ledger = replay.ledger()
    assert ledger is not None
    names = [op.module for op in ledger.ops]
    made = {op.module: op.outputs[0] for op in ledger.ops}
    kind = Kind(ledger, tuple(op.seconds or 0.0 for op in ledger.ops), 0)
    keys = buffer_keys(ledger)
    worth = [name for name in names if ledger.buffers[made[name]].nbytes]
    assert {"mlp", "mlp.down_proj", "self_attn.v_proj"} <= {*worth}

    def inside(name: str) -> set[int]:
        return {made[other] for other in names if not name or other == name or other.startswith(f"{name}.")}

    pairs = [("self_attn.v_proj", "mlp"), ("self_attn", "mlp.down_proj")]
    for again in [(), *((name,) for name in worth), *pairs]:
        dropped = set().union(*map(inside, again))
        plan = Assignment.where(keep=kind.everything - dropped)
        replay.plan = Assignment.where(keep=[keys[b] for b in plan.kept])
        with handle.measure():
            found = step()
        held = handle.report().layers[1].held_bytes
        assert held == layer_held(kind, plan), again  # what the layers share counts for the first one
        assert all(map(torch.equal, found, expected)), again
        assert transient_bytes(ledger, held=plan.kept) <= transient_bytes(ledger), again
    handle.restore()
    assert {op.name for op in ledger.ops} == {SUBLAYER_OP, CHOICES_OP}  # Careful chooses


def test_what_a_checkpoint_takes_around_a_forward_of_nothing() -> None:
    module, given = nn.Identity(), torch.ones(2, requires_grad=True)

    def least(call) -> float:
        times = []
        for _ in range(200):
            start = time.perf_counter()
            call(given).sum().backward()
            times.append(time.perf_counter() - start)
        return min(times)

    around = least(lambda x: checkpointed(module.forward, (x,), module)) - least(module)
    assert CHECKPOINT_SECONDS / 10 < around < 10 * CHECKPOINT_SECONDS
