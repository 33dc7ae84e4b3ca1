"""Rows that TMA takes none of: threads read and store every tile, and the ring tells consumers when to begin."""

from __future__ import annotations

from dataclasses import replace

import pytest
from emit_builds import (
    Body,
    case,
    check_computes,
    check_shows,
    graph_of,
    kernels_of,
    small_case,
)
from emit_mutants import Place, survivors

from wsopt.checker import verify
from wsopt.codegen import compile_kernel
from wsopt.codegen.oracle import verdict
from wsopt.emit.source import expectation
from wsopt.errors import CheckError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.interpret import Mutant
from wsopt.lowering.row_structures import row_structures
from wsopt.machine import Machine
from wsopt.perf.copies import TILE_GRAIN, memory_cycles
from wsopt.program.facts import Signal
from wsopt.program.ids import OpKind, Unit
from wsopt.program.types import Sharing, Structure


def softmax(*shape: int, dtype: str = "bf16") -> Body:
    """The softmax of each row, and the logarithm of its sum."""

    def body(g: GraphBuilder) -> tuple[Symbol, ...]:
        x = g.input("x", shape, dtype)
        return g.cast(g.softmax(x), dtype, name="y"), g.logsumexp(x, axis=-1, name="l")

    return body


def biased_softmax(g: GraphBuilder) -> Symbol:
    """A softmax of scores with a bias that batches share."""
    x, b = g.input("x", (3, 19, 97), "f32"), g.input("b", (19, 97), "f32")
    return g.cast(g.softmax(g.add(x, b)), "f32", name="y")


def loss(rows: int, columns: int) -> Body:
    """The cross-entropy of each row with the class that a label names."""

    def body(g: GraphBuilder) -> Symbol:
        x, labels = g.input("x", (rows, columns), "bf16"), g.input("labels", (rows, 1), "i32")
        hit = g.equal(g.iota(shape=(rows, columns), axis=1), labels)
        picked = g.reduce_sum(g.where(hit, x, 0.0), axis=-1)
        return g.sub(g.logsumexp(x, axis=-1), picked, name="y")

    return body


def norm(g: GraphBuilder) -> Symbol:
    """A layer norm, whose weight and bias are vectors along the columns."""
    x, w, b = g.input("x", (45, 197), "f16"), g.input("w", (197,), "f16"), g.input("b", (197,), "f16")
    return g.cast(g.layer_norm(x, w, b), "f16", name="y")


def residual_mean(g: GraphBuilder) -> Symbol:
    """A mean over an image's places, of two tensors of different types."""
    x, z = g.input("x", (5, 9, 7, 7), "bf16"), g.input("z", (5, 9, 7, 7), "f32")
    return g.reduce_mean(g.reshape(g.add(x, z), shape=(5, 9, 49)), axis=-1, name="y")


def places(g: GraphBuilder) -> Symbol:
    return g.reduce_argmax(g.input("x", (37, 333), "f32"), axis=-1, name="y")


def over_rows(g: GraphBuilder) -> Symbol:
    return g.reduce_sum(g.input("x", (45, 301), "bf16"), axis=0, name="y")


def outer(g: GraphBuilder) -> Symbol:
    return g.cast(g.softmax(g.input("x", (3, 20, 75), "bf16"), axis=1), "bf16", name="y")


def biased(g: GraphBuilder) -> Symbol:
    """Elements alone, with a vector along rows of an odd width."""
    return g.cast(
        g.silu(g.add(g.input("x", (37, 601), "bf16"), g.input("b", (601,), "bf16"))), "bf16", name="y"
    )


def one_colour(g: GraphBuilder) -> Symbol:
    """Elements that lie apart."""
    x = g.slice(g.input("x", (37, 200, 3), "bf16"), start=1, stop=2)
    return g.cast(g.relu(g.reshape(x, shape=(37, 200))), "bf16", name="y")


def surrounded(g: GraphBuilder) -> Symbol:
    x = g.pad(g.input("x", (37, 304), "bf16"), low=(0, 5), high=(0, 3))
    return g.cast(g.silu(x), "bf16", name="y")


def cut(rows: int, columns: int, consumers: int = 1) -> Structure:
    return Structure(rows, columns, 1, consumers, 4, Sharing.COOPERATIVE, True, False, 1, 1)


CASES: dict[str, tuple[Body, Structure]] = {
    "softmax": (softmax(45, 201), cut(4, 256, 2)),
    "softmax at run time": (softmax(45, 201), replace(cut(4, 256, 2), dynamic=True)),
    "long softmax at run time": (softmax(5, 40963), replace(cut(1, 4096), dynamic=True)),
    "softmax of batches": (biased_softmax, cut(4, 128, 2)),
    "long softmax": (softmax(5, 40963), cut(1, 4096, 2)),
    "loss": (loss(45, 49), cut(8, 64, 2)),
    "long loss": (loss(5, 40963), cut(1, 4096)),
    "norm": (norm, cut(4, 256, 3)),
    "mean": (residual_mean, cut(8, 64, 2)),
    "places": (places, cut(4, 512)),
    "over rows": (over_rows, cut(4, 256)),
    "outer": (outer, cut(32, 32)),
    "biased": (biased, cut(2, 256, 2)),
    "one colour": (one_colour, cut(4, 256)),
    "surrounded": (surrounded, cut(4, 256, 2)),
}
emitted = kernels_of(CASES)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_computes(name: str) -> None:
    check_computes(emitted(name))


FAULTS = {
    ("softmax", "columns, 0) < ROW_LENGTH"): "columns, 0) < ROW_LENGTH + 1",
    ("softmax", "rows, 1) < row_extent"): "rows, 1) < row_extent + 1",
    ("softmax", "    gdc_wait()\n"): "",
    ("softmax", "        mbarrier.wait(ring_full.index(slot), phase)\n"): "",
    ("softmax", "        mbarrier.wait(ring_empty.index(slot), phase ^ 1)\n"): "",
    ("softmax", "        mbarrier.arrive(ring_full.index(slot), count=1)\n"): "",
    ("softmax", "        mbarrier.arrive(ring_empty.index(slot), count=1)\n"): "",
    ("softmax at run time", "tell_tile(tile_numbers, slot, tile)"): "tell_tile(tile_numbers, slot, tile + 1)",
    ("softmax of batches", "batch * x_batch_stride"): "batch * x_row_stride",
    ("long softmax", "column = part * TILE_COLUMNS"): "column = 0",
    ("one colour", "x_column_stride + 1"): "x_column_stride",
    ("surrounded", "+ -5 >= 0"): "+ -5 >= -1",
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "good"), FAULTS)
def test_faults_are_found(name: str, good: str) -> None:
    check_shows(emitted(name), good, FAULTS[name, good])


def _place(source: str, mutant: Mutant) -> Place:
    """The kind of a mutant, and what its line begins with."""
    return mutant.kind, source.splitlines()[mutant.line - 1].strip().split("(")[0]


EQUIVALENT = {
    ("drop-fence", "fence_async_shared"): "no copy's unit looks at a barrier",
    ("double-wait", "mbarrier.wait"): "a wait that has passed passes again",
    ("swap-argument", ""): "the two consumers' numbers are interchangeable",
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "waits"), [("softmax", 2), ("softmax at run time", 4)])
def test_single_mistakes_are_found(name: str, waits: int) -> None:
    made = emitted(name)
    cases = [case(made.graph), small_case(made)]
    fence, wait, swapped = EQUIVALENT
    found = survivors(cases, made.source, _place, EQUIVALENT)
    assert found == {fence: 1, wait: waits, swapped: 1}


@pytest.mark.parametrize("name", ["softmax", "long softmax"])
def test_the_ring_holds_nothing(name: str) -> None:
    """One signal a tile stands for the copies, and the loading warp is a tile ahead."""
    made = emitted(name)
    (ring,), (load,) = made.verified.program.rings, made.verified.program.of(OpKind.TMA_LOAD)
    assert (ring.slot_bytes, load.counts, made.depth) == (0, Signal(), 2)
    assert "tma_load(" not in made.source
    assert "TensorDescriptor(" not in made.source


def test_threads_wait_for_device_memory() -> None:
    """A tile's read is the whole trip, for nothing was copied ahead, and its bytes hold the path to memory."""
    made = emitted("softmax").verified
    program, machine, tile = made.program, made.machine, 8 * 201 * 2
    reads = [op for op in program.loop if op.id.subject == "read"]
    assert all(op.issue >= op.latency >= machine.latency.tma_load_dram for op in reads)
    held = sum(dict(op.held)[Unit.MEMORY] for op in reads)
    assert held == pytest.approx(memory_cycles(tile, program.tiles, machine), abs=2 * TILE_GRAIN)
    assert program.dram_bytes == 2 * 45 * 201 * 2 + 45 * 4


def test_neighbouring_threads_have_neighbours() -> None:
    """Elements of rows that begin anywhere are loaded one by one, each by the thread next to its neighbour's."""
    assert "BlockedLayout([1, 1], [1, 32]" in emitted("softmax").source
    assert "BlockedLayout([1, 1], [1, 32]" in emitted("softmax of batches").source


def test_structures_keep_nothing_in_the_ring(h200: Machine) -> None:
    """Nothing is retained where slots have no tiles; blocks may take tiles at run time, as signals have numbers."""
    region = find_region(graph_of(softmax(2000, 50257)))
    found = [*row_structures(region, h200)]
    assert {s.dynamic for s in found} == {False, True}
    assert not any(s.retained for s in found)


def test_the_checker_knows_that_nothing_is_retained() -> None:
    made = emitted("long softmax").verified
    program = replace(made.program, structure=replace(made.program.structure, retained=1))
    with pytest.raises(CheckError):
        verify(made.schedule, program, made.machine, 24)


@pytest.mark.compiler
@pytest.mark.parametrize("name", CASES)
def test_it_compiles(name: str) -> None:
    made = emitted(name)
    found = compile_kernel(made.source)
    assert found.spill_loads == 0
    assert verdict(found, expectation(made.verified)) == ()
