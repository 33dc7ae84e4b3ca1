"""Every line of a kernel runs in the simulation before it is handed over, and a fault in any of them is found."""

from __future__ import annotations

import math

import emit_builds as builds
import pytest
from emit_builds import Body, Emitted, build, graph_of, small_case, structure
from golden_kernels import KERNELS, emitted

from wsopt.emit.source import covering_k_blocks
from wsopt.errors import CheckError
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.reference import random_inputs
from wsopt.interpret import Coverage, execute, marked
from wsopt.lowering.reduced import beyond, further, reaching, reduced
from wsopt.program.types import Structure
from wsopt.simulation import Simulation, simulate

LATE = structure(columns=128, consumers=2, subtiles=2)
"""Its inputs' copies start some passes into the loop, behind which the loop goes on."""


def run(made: Emitted, source: str | None = None, seeds: int = 1) -> Simulation:
    """The simulation of a kernel, or of another text in its place."""
    return simulate(made.graph, made.verified, source or made.source, seeds)


@pytest.mark.parametrize("name", KERNELS)
def test_every_line_of_the_goldens_runs(name: str) -> None:
    found = run(emitted(name))
    assert found.lines_run == found.lines > 20


@pytest.mark.slow
@pytest.mark.parametrize("body", [builds.residual, builds.clamped])
def test_a_wait_that_few_k_blocks_do_not_reach_is_missed(body: Body) -> None:
    made = build(graph_of(body), LATE)
    k_blocks = min(made.depth, 4) + 1
    assert covering_k_blocks(made.verified) > k_blocks
    few = reduced(made.graph, made.verified.program.structure, k_blocks)
    ran = execute(made.source, random_inputs(few, 0), seed=0, constants=few.constants).ran
    lines = made.source.split("\n")
    loop = Coverage(marked(made.source).lines, ran).missed
    (wait,) = [line for line in loop if "mbarrier.wait(" in lines[line - 1]]
    broken = "\n".join([*lines[: wait - 1], *lines[wait:]])
    assert small_case(made, k_blocks).fault(broken, 3) is None
    with pytest.raises(
        CheckError, match=r"kernel\.py:\d+: consumer .* with no barrier that orders it after the TMA copy"
    ):
        run(made, broken)
    found = run(made)
    assert found.lines_run == found.lines


def test_a_loop_runs_that_the_graphs_own_extents_do_not_reach() -> None:
    def body(g: GraphBuilder) -> Symbol:
        x, w = g.input("x", (128, 64), "bf16"), g.input("w", (128, 64), "bf16", constant=True)
        return g.cast(g.matmul(x, w, transpose_b=True), dtype="bf16", name="y")

    made = build(graph_of(body), structure())
    few = reduced(made.graph, made.verified.program.structure, 5)
    assert few.type_of("x").shape == (128, 64)
    ran = execute(made.source, random_inputs(few, 0), seed=0, constants={"w"}).ran
    assert Coverage(marked(made.source).lines, ran).missed
    found = run(made)
    assert found.lines_run == found.lines


def test_lines_of_a_graph_that_gives_no_numbers_run_too() -> None:
    """silu(-inf) is not a number, and so is every output: there is nothing to compare at other extents."""

    def body(g: GraphBuilder) -> Symbol:
        q, k, v = (g.input(name, (256, 64), "bf16") for name in "qkv")
        i, j = g.iota(shape=(256, 1), axis=0), g.iota(shape=(1, 256), axis=1)
        s = g.silu(g.where(j <= i, g.matmul(q, k, transpose_b=True), -math.inf))
        return g.cast(g.matmul(g.cast(g.softmax(s), dtype="bf16"), v), dtype="bf16", name="y")

    found = run(build(graph_of(body), structure(64, 64)))
    assert found.lines_run == found.lines > 20


def test_a_line_that_never_runs_is_refused() -> None:
    made = emitted("plain")
    planted = made.source.replace(
        "    visit = 0\n", "    visit = 0\n    if k_iterations > 1000:\n        visit = 7\n", 1
    )
    number = planted.split("\n").index("        visit = 7") + 1
    with pytest.raises(
        CheckError, match=rf"1 of the kernel's \d+ lines .*\n  kernel.py:{number}: visit = 7$"
    ):
        run(made, planted)
    other = planted.replace("        visit = 7\n", "        visit = 7\n" * 5)
    with pytest.raises(CheckError, match=r"5 of the kernel's(.|\n)*\n  and 2 more$"):
        run(made, other)


# --- loops over K-blocks ------------------------------------------------------------------------------------


def masked(length: int, width: int, kind: str, *, softmax: bool = True) -> Body:
    """Attention, or products without a softmax, under a mask of this kind and width."""

    def body(g: GraphBuilder) -> Symbol:
        q, k, v = (g.input(name, (1, 2, length, 64), "bf16") for name in "qkv")
        i, j = (g.iota(shape=(length, length), axis=axis) for axis in (0, 1))
        behind = g.greater(j, g.sub(i, width))
        inside = {
            "window": lambda: g.logical_and(g.less_equal(j, i), behind),
            "both": lambda: g.logical_and(g.less_equal(j, g.add(i, width)), behind),
            "behind": lambda: behind,
            "from": lambda: g.greater_equal(j, width),
            "until": lambda: g.less(j, width),
            "band": lambda: g.less(j, g.add(i, width)),
            "across": lambda: g.greater_equal(g.add(i, j), width),
        }[kind]()
        s = g.mul(g.matmul(q, k, transpose_b=True), 0.125)
        s = g.where(inside, s, -math.inf if softmax else 0.0)
        weights = g.cast(g.softmax(s, axis=-1) if softmax else s, dtype="bf16")
        return g.cast(g.matmul(weights, v), dtype="bf16", name="o")

    return body


WIDE, DEEP = structure(64, 64, 2), structure(64, 128, 2)
WHOLE, PASSED, SHORT = "if whole_end > ", "in range(tile_begin, begin)", "    whole_end = whole_begin"
MASKS: dict[str, tuple[Body, Structure, dict[str, bool]]] = {
    "no K-block is whole": (masked(256, 32, "window"), WIDE, {WHOLE: False, PASSED: True}),
    "nor where K-blocks lie across": (masked(512, 128, "window"), DEEP, {WHOLE: False, PASSED: False}),
    "one is": (masked(512, 128, "window"), WIDE, {WHOLE: True, PASSED: True}),
    "a tile's consumers begin in one K-block": (masked(512, 256, "window"), DEEP, {PASSED: False}),
    "whole K-blocks for single rows": (masked(1024, 129, "both"), DEEP, {WHOLE: True}),
    "longer than the graph": (masked(128, 400, "window"), WIDE, {WHOLE: True, PASSED: True}),
    "no end": (masked(256, 100, "behind", softmax=False), WIDE, {"in range(whole_end, end)": False}),
    "a K-block's first": (masked(512, 128, "from"), WIDE, {"in range(begin, whole_begin)": False}),
    "a K-block's last": (masked(512, 128, "until", softmax=False), WIDE, {"in range(whole_end, end)": False}),
    "before a K-block's end": (masked(256, 32, "until"), WIDE, {WHOLE: False}),
    "never none": (masked(512, 128, "band", softmax=False), structure(64, 64), {WHOLE: True, SHORT: False}),
    "against the rows": (masked(256, 32, "across", softmax=False), WIDE, {PASSED: False}),
    "one consumer": (
        masked(512, 100, "window"),
        structure(64, 64),
        {"if last_row < row": False, PASSED: False},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MASKS)
def test_loops_over_k_blocks_run_or_are_not_written(name: str) -> None:
    body, chosen, written = MASKS[name]
    made = build(graph_of(body), chosen)
    assert {text: text in made.source for text in written} == written
    found = run(made)
    assert found.lines_run == found.lines


@pytest.mark.slow
def test_a_mask_that_reaches_too_far_runs_in_some_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    made = build(graph_of(masked(2048, 900, "window")), WIDE)
    monkeypatch.setattr("wsopt.lowering.reduced_chains._FAR", 600)
    cut = made.verified.program.structure
    assert reaching(made.graph, cut, 3) is None
    assert max(graph.type_of("k").shape[2] for graph in further(made.graph, cut, 3)) < 600
    longest = beyond(made.graph, cut)
    assert longest is not None
    assert longest.type_of("k").shape[2] > 900 + 2 * cut.tile_rows
    found = run(made)
    assert found.lines_run == found.lines
    monkeypatch.setattr("wsopt.simulation.beyond", lambda graph, s: None)
    with pytest.raises(CheckError, match="did not run at any extents"):
        run(made)
