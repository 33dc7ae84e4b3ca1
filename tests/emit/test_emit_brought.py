"""Kernels whose epilogue's tiles the loading warp brings: right under interleavings, compiled, no wait too many."""

from __future__ import annotations

import functools
import re
from collections import Counter
from dataclasses import replace

import emit_builds as builds
import pytest
from emit_builds import (
    MARGIN,
    SEEDS,
    Body,
    Emitted,
    graph_of,
    h200,
    lets_the_next_kernel_in_last,
    small_case,
    structure,
)

from wsopt.checker import verify
from wsopt.codegen.aot import compile_kernel
from wsopt.emit.source import emit
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.interpret import mutants
from wsopt.perf.price import lower
from wsopt.program.types import Structure
from wsopt.schedule.spec import parse_conditions
from wsopt.solve.optimum import solve


def widened(g: GraphBuilder) -> Symbol:
    """y = x w' + r with a residual of f32, in whose buffers no output can be staged."""
    x, w = g.input("x", (1024, 512), "bf16"), g.input("w", (1024, 512), "bf16", constant=True)
    total = g.add(g.matmul(x, w, transpose_b=True, name="p"), g.input("r", (1024, 1024), "f32"))
    return g.cast(total, dtype="bf16", name="y")


def mixed(g: GraphBuilder) -> Symbol:
    """y = (x w' + r) s with a tile of each type: outputs are staged where one of the two was read."""
    x, w = g.input("x", (1024, 512), "bf16"), g.input("w", (1024, 512), "bf16", constant=True)
    r, s = g.input("r", (1024, 1024), "f32"), g.input("s", (1024, 1024), "bf16")
    total = g.mul(g.add(g.matmul(x, w, transpose_b=True, name="p"), r), s)
    return g.cast(total, dtype="bf16", name="y")


CASES: dict[str, tuple[Body, Structure, str]] = {
    "own buffers": (widened, structure(128, consumers=2, subtiles=2), "store_warp=no"),
    "own buffers, store warps": (widened, structure(consumers=2, subtiles=2), "store_warp=yes"),
    "in place": (builds.residual, structure(128, consumers=2, subtiles=4), "store_warp=yes"),
    "two kinds": (mixed, structure(consumers=2, subtiles=2), "store_warp=yes"),
    "two kinds, staged apart": (mixed, structure(consumers=2, subtiles=2), "store_warp=yes,staging=2"),
    "three consumers": (builds.residual, structure(consumers=3, subtiles=2), "store_warp=yes"),
    "ping-pong": (builds.residual, structure(consumers=2, ping_pong=True, subtiles=2), "store_warp=yes"),
    "ping-pong, own buffers": (widened, structure(consumers=2, ping_pong=True), "store_warp=no"),
    "one tile a block": (widened, structure(persistent=False, subtiles=2), "store_warp=no"),
    "exchanged": (widened, structure(swap=True, subtiles=2), "store_warp=no"),
    "a shallow ring": (builds.clamped, structure(consumers=2, depth=32), "store_warp=yes,ring=2"),
}


@functools.cache
def made(name: str) -> Emitted:
    """The best schedule whose inputs the loading warp brings."""
    body, s, text = CASES[name]
    graph = graph_of(body)
    program = lower(find_region(graph), s, h200())
    program = replace(program, conditions=parse_conditions(f"{text},inputs_by_loader=yes", "here"))
    solved = solve(program, h200(), MARGIN)
    assert solved.schedule is not None, solved.reason
    verified = verify(solved.schedule, program, h200(), MARGIN)
    return Emitted(graph, verified, emit(verified))


def loader(source: str) -> str:
    """The text of the loading warp."""
    return source.partition("def loader(")[2].partition("@gluon.jit")[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    found = made(name)
    for k_iterations in (None, 1, 3):
        assert small_case(found, k_iterations).fault(found.source, SEEDS) is None


@pytest.mark.parametrize("name", CASES)
def test_the_loading_warp_starts_all_copies(name: str) -> None:
    found = made(name)
    rest = found.source.replace(loader(found.source), "")
    assert rest.count("tma_load(") == 0
    assert "_input" in loader(found.source)
    assert lets_the_next_kernel_in_last(found.source)
    consumer = found.source.partition("def consumer(")[2].partition("@gluon.jit")[0]
    assert ("gdc_wait()" in consumer) == bool(found.verified.program.after.vectors)


def test_inputs_come_in_time_under_a_shallow_ring() -> None:
    assert "INPUTS_AHEAD" in made("a shallow ring").source
    assert "INPUTS_AHEAD" not in made("in place").source


@pytest.mark.compiler
@pytest.mark.parametrize("name", ["own buffers", "in place", "ping-pong", "a shallow ring"])
def test_compiles(name: str) -> None:
    found = compile_kernel(made(name).source)
    assert (found.stack_bytes, found.spill_loads, found.spill_stores) == (0, 0, 0)
    assert not found.early_arrivals
    assert found.shared_bytes <= made(name).verified.schedule.shared_memory_bytes


# A wait that has passed passes again; buffers are told apart by their numbers, and the only one has number 0.
SAME = {
    "in place": {"depth+1": 1, "depth-1": 1},
    "ping-pong, own buffers": {"depth+1": 1},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["own buffers", "in place", "ping-pong, own buffers", "two kinds"])
def test_mutants_of_the_copies_of_inputs_die(name: str) -> None:
    found = made(name)
    lines, cases = found.source.splitlines(), [small_case(found, n) for n in (1, 5)]
    touched = re.compile(r"(mbarrier|tma_load|if |\w+ = \w+_input).*([rs]_(full|empty|input)|freed|visit %)")
    own = [
        one
        for one in mutants(found.source)
        if one.kind != "double-wait" and touched.match(lines[one.line - 1].strip())
    ]
    assert {"drop-wait", "drop-arrive", "drop-expect"} <= {one.kind for one in own}
    left = Counter(one.kind for one in own if not any(each.fault(one.source, SEEDS) for each in cases))
    assert left == SAME.get(name, {})
