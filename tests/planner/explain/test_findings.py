import dataclasses
import sys
from io import StringIO

import pytest
from rich.console import Console

from hf_ckpt.assignment import Assignment
from hf_ckpt.errors import MissingExtraError
from hf_ckpt.ledger import Source
from hf_ckpt.planner.budget import held_without_checkpointing
from hf_ckpt.planner.costs.assess import assess
from hf_ckpt.planner.costs.problem import HeadOption, HostLink, Kind, Limits, Problem
from hf_ckpt.planner.explain.findings import TensorRow, frontier, kinds_in_use, ledger_rows, next_gain, tensor_rows
from hf_ckpt.planner.explain.plot import plot_frontier
from hf_ckpt.planner.explain.tables import frontier_table, gain_line, tensors_table
from hf_ckpt.planner.solver.solve import Solution, solve
from hf_ckpt.planner.verb import verb_of

from ..planner_ledgers import Builder, llama_kind

PROBLEM = Problem((llama_kind(),), (0,) * 8, (HeadOption(1, 1 << 30),), overhead=1e-4)


def shown(table):
    console = Console(width=160, record=True, file=StringIO())
    console.print(table)
    return console.export_text()


def test_rows_of_a_small_layer():
    b = Builder()
    x = b.buffer(10, Source.INPUT)
    (hidden,) = b.op([x], [(4, False)])
    (y,) = b.op([hidden], [(1 << 30, True)], name="aten.silu.default")
    (mask,) = b.op([y], [(8, True)], rebuildable=False)
    kind = Kind(b.ledger(), (1.0, 2.0, 4.0), transient=0)
    first, second = ledger_rows(kind, Assignment.where(keep=[mask]))
    assert (first.verb, first.seconds, first.seconds_per_gib) == ("rebuild", 3.0, 3.0)
    assert (second.verb, second.seconds, second.seconds_per_gib) == ("keep", None, None)
    redrawn = dataclasses.replace(kind.ledger.buffers[mask], source=Source.RANDOM)
    assert verb_of(Assignment(), redrawn) == "redraw"
    text = shown(tensors_table([TensorRow(row, {row.verb: 1}) for row in (first, second)], "layer 0"))
    assert "silu" in text
    assert "never" in text


def test_the_frontier_falls():
    points = frontier(PROBLEM)
    assert len(points) > 6
    held = [p.solution.predicted.held for p in points]
    seconds = [p.solution.predicted.seconds for p in points]
    assert held == sorted(held)
    assert seconds == sorted(seconds, reverse=True)
    assert (held[-1], seconds[-1], points[-1].share) == (held_without_checkpointing(PROBLEM), 0.0, 1.0)
    assert "x1.000" in shown(frontier_table(points, step_seconds=1.0))


def test_what_the_next_gib_buys():
    limits = Limits(held=held_without_checkpointing(PROBLEM) // 2)
    solution = solve(PROBLEM, limits)
    gain = next_gain(PROBLEM, limits, solution)
    assert 0 < gain.saved < gain.before
    assert "1.1 GB more would save" in gain_line(gain)
    everything = solve(PROBLEM, Limits())
    assert "buys nothing" in gain_line(next_gain(PROBLEM, Limits(), everything))


def test_runs_of_equal_layers():
    solution = solve(PROBLEM, Limits(held=held_without_checkpointing(PROBLEM) // 2))
    runs = kinds_in_use(PROBLEM, solution)
    assert [number for layers, _, _ in runs for number in layers] == list(range(8))
    assert len(runs) < 8


def test_every_tensor_once_with_its_layers_largest_first():
    solution = solve(PROBLEM, Limits(held=held_without_checkpointing(PROBLEM) // 2))
    rows = tensor_rows(PROBLEM, solution)
    totals = [row.total for row in rows]
    assert totals == sorted(totals, reverse=True)
    assert sum(totals) == 8 * sum(row.nbytes for row in ledger_rows(PROBLEM.kinds[0], Assignment()))
    assert all(sum(row.verbs.values()) % 8 == 0 for row in rows)
    assert any(len(row.verbs) == 2 for row in rows)


def test_plot(tmp_path):
    pytest.importorskip("matplotlib")
    plot_frontier(frontier(PROBLEM), tmp_path / "frontier.png", marked=1e9)
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")


def test_plot_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"hf-ckpt\[plot\]"):
        plot_frontier(frontier(PROBLEM, 2), tmp_path / "frontier.png")


def test_inputs_of_layers_are_listed_where_the_plan_stores_some_elsewhere():
    problem = dataclasses.replace(PROBLEM, link=HostLink(25e9))
    own = problem.kinds[0].own_input
    sent, held = Assignment.where(offload=[own.index]), Assignment()
    for plans, verbs in (((sent,) * 3 + (held,) * 5, {"offload": 3, "keep": 5}), ((held,) * 8, None)):
        solution = Solution(plans, problem.heads[0], assess(problem, plans, problem.heads[0]))
        rows = tensor_rows(problem, solution)
        inputs = [row for row in rows if not row.row.op]
        assert [row.verbs for row in inputs] == ([verbs] if verbs else [])
        everything = f"{held_without_checkpointing(problem) / 1e9:.1f} GB"
        assert everything in shown(tensors_table(rows, "tensors")).splitlines()[-2]
