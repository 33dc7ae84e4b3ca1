"""Bounds of what fits together and of whole loops: no schedule is below them; loops that are one are solved once."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import pytest
from fewer_structures import search_only
from ortools.sat.python import cp_model
from solve_examples import MARGIN, attention, gated, region, structure

from wsopt.frontend.region import find_region
from wsopt.frontend.types import Region
from wsopt.graph.builder import GraphBuilder
from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf import timing
from wsopt.perf.price import lower
from wsopt.program.limits import Limit
from wsopt.program.program import TileProgram
from wsopt.program.types import Sharing, Structure
from wsopt.schedule import memory
from wsopt.solve import optimum, whole_loop
from wsopt.solve.bound import (
    buffers_with_ends,
    depths,
    fitted_bound_us,
    ii_bounds,
    infeasible,
    lower_bound_us,
)
from wsopt.solve.optimum import Outcome, solve
from wsopt.solve.search import Search
from wsopt.solve.whole_loop import by_loaders, loaders_interval, loop_interval
from wsopt.solve.worker import solved


def converted() -> Region:
    """A product whose right operand is of i8, with a scale for each 64 elements of a row: three rings."""
    g = GraphBuilder("converted")
    x, w = g.input("x", (512, 2048), "bf16"), g.input("w", (2048, 2048), "i8", constant=True)
    scale = g.input("s", (2048, 32), "bf16", constant=True)
    scaled = g.cast(g.dequantize(w, scale, group=64), dtype="bf16")
    g.output(g.cast(g.matmul(x, scaled, transpose_b=True), dtype="bf16", name="y"))
    return find_region(g.build())


def norm() -> Region:
    g = GraphBuilder("norm")
    g.output(g.cast(g.softmax(g.input("x", (4096, 1024), "bf16")), dtype="bf16", name="y"))
    return find_region(g.build())


REGIONS = {
    "attention": attention,
    "gated": lambda: gated(2048, 2048, 1024),
    "product": lambda: region(2048, 2048, 1024, residual=True),
    "product of f8": lambda: region(2048, 2048, 1024, "f8e4m3"),
    "converted": converted,
    "rows": norm,
}


@functools.cache
def some(name: str, machine: Machine) -> tuple[TileProgram, ...]:
    """Programs of structures all over a graph's space that no budget rules out: the best, and others far from it."""
    found = REGIONS[name]()
    every = [*structures(found, machine)]
    programs = (lower(found, one, machine) for one in every[:: max(1, len(every) // 40)])
    fit = [one for one in programs if not infeasible(one, machine, MARGIN)]
    fit.sort(key=lambda one: lower_bound_us(one, machine))
    return (fit[0], *fit[1 :: max(1, len(fit) // 4)])


@pytest.mark.parametrize("name", REGIONS)
def test_no_schedule_is_below_the_bounds_of_what_fits_and_of_its_loop(name: str, h200: Machine) -> None:
    for program in some(name, h200):
        loop = loaders_interval(program, h200, MARGIN)
        bound = fitted_bound_us(program, h200, loop)
        found = solve(program, h200, MARGIN)
        assert fitted_bound_us(program, h200) <= bound
        if found.schedule is not None:
            assert found.schedule.ii >= loop, program.structure
            assert found.schedule.prediction.microseconds >= bound * (1 - 1e-12), program.structure


def test_the_first_bound_holds_whichever_ring_is_the_deepest(h200: Machine) -> None:
    wide = replace(structure(64, 256, 256, 1), persistent=False, subtiles=4, group=1)
    program = lower(REGIONS["converted"](), wide, h200)
    found = solve(program, h200, MARGIN).schedule
    assert found is not None
    (_, first), *others = found.rings
    assert first < max(slots for _, slots in others)
    assert found.prediction.microseconds >= lower_bound_us(program, h200)


@pytest.mark.parametrize("name", REGIONS)
def test_the_bound_of_a_loop_is_the_least_interval_that_has_a_schedule(name: str, h200: Machine) -> None:
    for program in (one for whole in some(name, h200)[:2] for one in by_loaders(whole)):
        bound = loop_interval(program, h200, MARGIN).bound
        low, most = ii_bounds(program, h200)
        loop = whole_loop._Loop(program, h200, MARGIN, whole_loop._room(program, h200), low, most)
        every = (
            bound,
            *range(low, bound, max(program.grain, (bound - low) // 8 // program.grain * program.grain)),
        )
        answers = [solved(loop.model(interval, interval), 10.0)[1] for interval in every]
        assert answers[0] in (cp_model.OPTIMAL, cp_model.FEASIBLE), program.structure
        assert not {*answers[1:]} - {cp_model.INFEASIBLE}, program.structure


def test_structures_that_differ_behind_the_loop_have_one_loop(
    h200: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ask = list[object](), whole_loop.solved
    monkeypatch.setattr(
        whole_loop, "solved", lambda model, limit: (asked.append(model), ask(model, limit))[1]
    )
    whole_loop._refuted.cache_clear()
    wide, one = attention(128), replace(structure(64, 128, 128, 2), group=1)
    programs = [lower(wide, replace(one, subtiles=subtiles), h200) for subtiles in (1, 2, 4)]
    bounds = {loaders_interval(one, h200, MARGIN) for one in programs if not infeasible(one, h200, MARGIN)}
    first = whole_loop._refuted.cache_info().misses
    assert len(bounds) == 1
    assert first == 1, "buffers leave rings the same choices of slots"
    assert 1 <= len(asked) <= 12
    loop_interval(programs[0], h200, MARGIN + 8)
    assert whole_loop._refuted.cache_info().misses == first + 1, "with other registers it is another loop"


def test_rooms_are_one_where_rings_have_the_same_choices(h200: Machine) -> None:
    program = some("converted", h200)[0]
    room = whole_loop._room(program, h200)
    slot = min(whole_loop._slot_bytes(program))
    held = min(memory.shared_memory(program, 0, one) for one in buffers_with_ends(program, h200))
    assert room <= h200.shared_memory_per_block_bytes - held
    just = replace(h200, shared_memory_per_block_bytes=held + room)
    less = replace(h200, shared_memory_per_block_bytes=held + room - 1)
    assert whole_loop._room(program, just) == room > whole_loop._room(program, less) >= room - slot * 8


def test_what_fits_is_the_least_of_all_predictions(h200: Machine) -> None:
    for name in ("converted", "attention", "product of f8"):
        program = some(name, h200)[0]
        low, most = ii_bounds(program, h200)
        rings = [depths(program, h200, number) for number in range(len(program.rings))]
        fits = [
            timing.predict(program, h200, low, buffers, slots).microseconds
            for buffers in buffers_with_ends(program, h200)
            for slots in itertools.product(*rings)
            if memory.shared_memory(program, slots, buffers) <= h200.shared_memory_per_block_bytes
        ]
        bound = fitted_bound_us(program, h200)
        assert bound >= lower_bound_us(program, h200)
        # Intervals of shallow rings are longer than the least of all.
        assert bound >= min(fits) * (1 - 1e-12)
        assert fitted_bound_us(program, h200, most) >= bound
        # Of a block whose K-blocks are no more than its ring has slots the interval is none of the time.
        assert any(
            fitted_bound_us(one, h200, ii_bounds(one, h200)[1]) > fitted_bound_us(one, h200)
            for one in some(name, h200)
        )


def test_a_search_with_these_bounds_solves_few_and_finds_what_solving_all_does(
    h200: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = REGIONS["converted"]()
    s = some("converted", h200)[0].structure
    among = [
        replace(s, columns=columns, depth=depth, group=group, subtiles=1)
        for columns, depth, group in itertools.product((64, 128), (64, 128), (1, 8))
    ]
    search_only(monkeypatch, among)
    search = Search(found, h200, MARGIN)
    verified, certificate = search.run()
    each = [solve(lower(found, one, h200), h200, MARGIN) for one in among]
    times = [one.schedule.prediction.microseconds for one in each if one.schedule is not None]
    assert verified.schedule.prediction.microseconds == min(times)
    counted = certificate.pruned + certificate.solved + sum(number for _, number in certificate.infeasible)
    assert counted == certificate.considered == len(among)
    assert certificate.solved <= 2 < len(times)


def test_limits_that_are_lifted_make_another_loop(h200: Machine) -> None:
    program = some("attention", h200)[0]
    apart = replace(program, lifted=frozenset({Limit.ONE_PROGRAM}))
    assert loop_interval(apart, h200, MARGIN).bound <= loop_interval(program, h200, MARGIN).bound


def quantized() -> Region:
    """Rows of a gate that are quantized: two consumers compute for as long as the next rows take to come."""
    g = GraphBuilder("quantized")
    a, b = (g.input(name, (4096, 5504), "bf16") for name in "ab")
    gated = g.silu(a) * b
    g.output(*(op(gated, dtype="i8", group=5504) for op in (g.quantize, g.quantize_scale)))
    return find_region(g.build())


def test_a_loop_of_which_not_every_interval_can_be_asked_for_has_a_schedule(h200: Machine) -> None:
    rows = Structure(1, 8192, 1, 2, 8, Sharing.COOPERATIVE, True, False, 1, 1)
    program = lower(quantized(), replace(rows, stored_by_threads=True), h200)
    loop = loop_interval(program, h200, MARGIN)
    assert loop.given_up
    found = solve(program, h200, MARGIN)
    assert found.outcome is Outcome.FEASIBLE
    assert found.schedule is not None
    assert loop.bound <= found.schedule.ii <= 1.15 * loop.bound


def test_little_work_for_its_bound_leaves_the_optimum(h200: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    program = some("attention", h200)[0]
    whole = solve(program, h200, MARGIN)
    _without_work(monkeypatch, "_LIMIT")
    found = solve(program, h200, MARGIN)
    assert found.outcome is whole.outcome is Outcome.OPTIMAL
    assert found.objective == whole.objective


@pytest.mark.parametrize("name", ["gated", "product"])
def test_an_interval_that_is_left_open_is_stepped_over(
    name: str, h200: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = some(name, h200)[0]
    whole = solve(program, h200, MARGIN)
    _without_work(monkeypatch, "_LIMIT")
    monkeypatch.setattr(optimum, "_PROBE_LIMIT", 0.0)
    found = solve(program, h200, MARGIN)
    assert (whole.outcome, found.outcome) == (Outcome.OPTIMAL, Outcome.FEASIBLE)
    assert whole.schedule is not None
    assert found.schedule is not None
    assert whole.schedule.ii <= found.schedule.ii <= whole.schedule.ii * 129 / 128


def _without_work(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """Bounds of loops that are given up before anything is asked."""
    monkeypatch.setattr(whole_loop, limit, -1.0)
    whole_loop._refuted.cache_clear()
