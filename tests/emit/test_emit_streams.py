"""Tensors that a loop's values read K-block by K-block: tiles for each consumer's rows, vectors along the keys."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import attention_graphs as a
import pytest
from attention_graphs import Parts, Sizes
from emit_builds import MARGIN, Emitted, build, case, check_computes
from emit_mutants import survives

from wsopt.checker import faults
from wsopt.codegen import compile_kernel
from wsopt.emit.source import expected_instructions
from wsopt.errors import LoweringError
from wsopt.frontend.region import find_region
from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.types import Graph
from wsopt.interpret import mutants
from wsopt.lowering.structures import structures
from wsopt.machine import load_machine
from wsopt.perf.price import lower
from wsopt.program.limits import MOST_SLOTS
from wsopt.program.program import OpKind, Unit
from wsopt.program.types import Sharing, Structure
from wsopt.solve.bound import max_depth

SIZES = Sizes(batch=2, heads=2, queries=136, keys=200, inner=32, column=32)


def structure(depth: int = 64, consumers: int = 2, subtiles: int = 1) -> Structure:
    return Structure(64, 32, depth, consumers, 4, Sharing.COOPERATIVE, False, False, subtiles, 1)


def lying_by_keys(p: Parts, x: Symbol) -> Symbol:
    """A bias that lies key by key in memory."""
    bias = p.g.input("bias", (p.sizes.keys, p.sizes.queries), "bf16")
    return x + p.g.transpose(bias, perm=(1, 0))


def tile_and_keys(p: Parts, x: Symbol) -> Symbol:
    """A number a key and a whole tile, under a causal mask."""
    return a.causal(p, a.bias("queries", "keys")(p, x * p.g.input("weight", (p.sizes.keys,), "f32")))


def late(p: Parts, x: Symbol) -> Symbol:
    """A factor of the weights, read after the maximum of the row is known."""
    weights = p.g.softmax(a.causal(p, x))
    return weights * p.g.input("factor", (p.sizes.heads, p.sizes.queries, p.sizes.keys), "f16")


SCORES: dict[str, a.Score] = {
    "tile": a.bias("queries", "keys"),
    "tile by head": a.bias("batch", "heads", "queries", "keys"),
    "f32 tile by batch": a.bias("batch", "one", "queries", "keys", dtype="f32"),
    "tile, causal": lambda p, x: a.causal(p, a.bias("heads", "queries", "keys")(p, x)),
    "tile lying by keys": lying_by_keys,
    "numbers of keys": a.bias("batch", "one", "one", "keys", dtype="f32"),
    "short numbers of keys": a.bias("keys"),
    "segments": a.segments,
    "tile and keys": tile_and_keys,
}


def graph(name: str, sizes: Sizes = SIZES) -> Graph:
    return late_graph(sizes) if name == "late" else a.attention(SCORES[name], sizes)


def late_graph(sizes: Sizes) -> Graph:
    """(softmax(q k') * factor) v."""
    g = GraphBuilder("late")
    p = a.parts(g, sizes)
    weights = g.cast(late(p, a.scores(p)), dtype=sizes.dtype)
    g.output(g.cast(g.matmul(weights, p.v), dtype=sizes.dtype, name="o"))
    return g.build()


@functools.cache
def emitted(name: str, depth: int = 64, consumers: int = 2) -> Emitted:
    return build(graph(name), structure(depth, consumers), 96)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SCORES, "late"])
def test_computes(name: str) -> None:
    check_computes(emitted(name))


def test_longer_k_blocks_and_one_consumer() -> None:
    made = emitted("tile, causal", 128, 1)
    assert case(made.graph).fault(made.source, 5) is None


@pytest.mark.slow
def test_other_lengths_run_too() -> None:
    made = emitted("tile and keys")
    for queries, keys in ((40, 104), (264, 328)):
        assert case(graph("tile and keys", Sizes(1, 2, queries, keys, 32, 32))).fault(made.source, 2) is None


@pytest.mark.compiler
@pytest.mark.parametrize(
    "name", ["tile", "f32 tile by batch", "tile lying by keys", "numbers of keys", "tile and keys"]
)
def test_machine_code_is_what_was_asked_for(name: str) -> None:
    made = emitted(name)
    found = compile_kernel(made.source)
    assert found.tensor_instructions == expected_instructions(made.verified)
    assert (found.stack_bytes, found.spill_loads, found.warnings) == (0, 0, ())
    assert found.shared_bytes <= made.verified.schedule.shared_memory_bytes


SYNCHRONIZATION = (
    "drop-wait",
    "drop-arrive",
    "drop-expect",
    "drop-load",
    "flip-phase",
    "count",
    "shift-slot",
)


@functools.cache
def short_rings() -> Emitted:
    """A kernel whose rings go round, for a graph with K-blocks enough."""
    made = build(graph("tile"), structure(), 64)
    assert max(slots for _, slots in made.verified.schedule.rings) <= 4
    return made


LONG = case(graph("tile", Sizes(1, 1, 136, 712, 32, 32)))


@pytest.mark.slow
def test_mutants_of_the_tiles_ring_are_found() -> None:
    """All die but two kinds: nobody waits for the slots of a block's last K-blocks, after its main loop; and where
    K-blocks are handed on, waiting for the one slot of another ring is enough.
    """
    source = short_rings().source
    assert survives([LONG], source, 3)
    lines = source.split("\n")
    last = max(n for n, line in enumerate(lines, 1) if line.startswith("            step += 1"))
    own = [m for m in mutants(source) if "bias_" in lines[m.line - 1] and m.name.startswith(SYNCHRONIZATION)]
    alive = [m for m in own if survives([LONG], m.source, 6)]
    assert len(own) > 20
    assert min(slots for _, slots in short_rings().verified.schedule.rings) == 1
    handed_on = next(n for n, line in enumerate(lines, 1) if "range(end, tile_end)" in line)
    spared = [m for m in alive if m.name.startswith("drop-wait") and m.line > handed_on]
    spared += [m for m in alive if m.name.startswith("drop-arrive") and m.line > last]
    assert [m.name for m in alive if m not in spared] == []


FAULTS = {
    "bias_desc, [row_tile * TILE_ROWS + 1 * CONSUMER_ROWS": "bias_desc, [row_tile * TILE_ROWS",
    "(step % bias_DEPTH) * 2 + index)": "(step % bias_DEPTH) * 2)",
    "mbarrier.init(bias_ring_empty.index(i), count=2)": "mbarrier.init(bias_ring_empty.index(i), count=1)",
}


@pytest.mark.parametrize("good", FAULTS)
def test_faults_are_found(good: str) -> None:
    source = short_rings().source
    assert good in source
    assert LONG.fault(source.replace(good, FAULTS[good]), 6) is not None


def test_reading_costs_shared_memory_and_waits_for_the_copy() -> None:
    program = emitted("tile").verified.program
    reader = next(op for op in program.loop if "tile:bias" in map(str, op.inputs))
    assert reader.kind is OpKind.ELEMENTWISE
    assert Unit.SHARED in dict(reader.pipes)
    assert ("load:bias", reader.id) in {(str(e.source), e.target) for e in program.edges}
    plain = lower(find_region(a.attention(lambda _, x: x, SIZES)), structure(), load_machine("h200"))
    assert reader.issue > plain.op(reader.id).issue
    assert program.rings[-1].slot_bytes == 2 * 64 * 64 * 2


def test_slots_of_vectors_begin_where_copies_may_write() -> None:
    region = find_region(a.attention(a.bias("keys"), SIZES))
    assert {s.depth for s in structures(region, load_machine("h200"))} == {64, 128, 256}


def test_rows_that_cannot_be_copied_are_refused() -> None:
    region = find_region(a.attention(a.bias("queries", "keys"), Sizes(1, 1, 64, 75, 32, 32)))
    with pytest.raises(
        LoweringError, match=r"tensor bias: axis 0 .extent 64. has a stride of 150 bytes; TMA needs"
    ):
        next(structures(region, load_machine("h200")))


def test_a_ring_has_no_more_slots_than_the_emitter_sets_up() -> None:
    verified = emitted("numbers of keys").verified
    schedule, rings = verified.schedule, [plan.name for plan in verified.program.rings]
    # Beside one slot of each other ring there is room for more slots of so few bytes.
    assert max_depth(verified.program, verified.machine, rings.index("bias_ring")) == MOST_SLOTS
    assert dict(schedule.rings)["bias_ring"] <= MOST_SLOTS
    more = replace(schedule, rings=tuple((name, MOST_SLOTS + 1) for name in rings))
    found = faults(more, verified.program, verified.machine, MARGIN)
    assert any("bias_ring has 33 slots, the emitter (emitter.v1) has 1 to 32" in fault for fault in found)


def test_a_bias_of_nothing_hides_keys() -> None:
    """A tile of -inf hides keys as a mask does, whole rows too."""
    made = emitted("tile")
    one = case(made.graph)
    bias = one.inputs["bias"]
    bias[:, 64:] = -math.inf
    bias[5] = -math.inf
    assert case(made.graph, inputs=one.inputs).fault(made.source, 2) is None
