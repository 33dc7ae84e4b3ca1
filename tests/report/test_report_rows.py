"""What is said of rows that stream: the ring's depth is explained by what other depths would take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wsopt.frontend.region import find_region
from wsopt.graph.parse import parse_graph
from wsopt.machine import load_machine
from wsopt.perf.effective_ii import stream_effective_ii
from wsopt.program.conditions import Conditions
from wsopt.program.program import Unit
from wsopt.report.sentences import sentences
from wsopt.report.text import inspect_text
from wsopt.schedule.verified import VerifiedSchedule
from wsopt.solve.bound import max_depth
from wsopt.solve.search import Search

pytestmark = pytest.mark.solver

F32_ROWS = {
    "format": "wsopt.graph/1",
    "name": "rows",
    "inputs": [{"name": "x", "shape": [4096, 2048], "dtype": "f32"}],
    "nodes": [{"name": "y", "op": "softmax", "inputs": ["x"]}],
    "outputs": ["y"],
}
IN_RINGS = Conditions(structure=(("occupancy", 0),))
"""That copies bring rows into rings: threads of several blocks on an SM may read them as well."""
PROBLEM = Path(__file__).parents[2] / "problems" / "softmax_rows.json"


@pytest.fixture(scope="module")
def rows() -> VerifiedSchedule:
    graph = parse_graph(json.loads(PROBLEM.read_text()), PROBLEM.stem)
    verified, _ = Search(find_region(graph), load_machine("h200"), conditions=IN_RINGS).run()
    return verified


def test_a_ring_is_told_with_what_others_would_take(rows: VerifiedSchedule) -> None:
    program, machine, depth = rows.program, rows.machine, rows.schedule.depth("ring")
    (told,) = [text for text in sentences(rows) if "on the way to each SM" in text]
    (ring,) = program.rings
    assert f"{depth * ring.slot_bytes:,} bytes" in told
    deepest = max_depth(program, machine)
    assert 1 < depth < deepest
    own = stream_effective_ii(program, machine, depth)
    for other in (depth - 1, deepest):
        assert stream_effective_ii(program, machine, other) > own
        assert f"{stream_effective_ii(program, machine, other):,} with {other}" in told
    assert f"{own:,} cycles" in told


def test_what_takes_no_cycles_has_no_bar() -> None:
    # f32 needs no widening: reading a tile holds the port of shared memory alone.
    region = find_region(parse_graph(F32_ROWS, "rows"))
    verified, certificate = Search(region, load_machine("h200"), conditions=IN_RINGS).run()
    (read,) = [op for op in verified.program.loop if str(op.id) == "read@0"]
    assert [unit for unit, _ in read.held] == [Unit.SHARED]
    assert "read the rows" in inspect_text(verified, certificate)


def test_blocks_side_by_side_are_told_of() -> None:
    blocks = Conditions(structure=(("occupancy", 8), ("consumer_warps", 4)))
    region = find_region(parse_graph(F32_ROWS, "rows"))
    verified, certificate = Search(region, load_machine("h200"), conditions=blocks).run()
    text = " ".join(inspect_text(verified, certificate).split())
    s, work = verified.program.structure, sum(op.issue for op in verified.program.loop)
    assert f"each of which reads, reduces and stores a tile of {s.rows} rows in {8 * work:,} cycles" in text
    assert f"so that one ends every {work:,} cycles" in text
    assert "none: threads read what a block's tile takes" in text
    assert "Threads store each output." in text
