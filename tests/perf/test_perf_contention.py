"""Where a loop that computes values settles, and its energy, against numbers worked out by hand."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from attention_graphs import Sizes, attention
from tile_graphs import plain

from wsopt.frontend.region import find_region
from wsopt.graph import load_graph
from wsopt.machine import Machine
from wsopt.perf.contention import (
    busiest,
    contended_interval,
    held_cycles,
    issue_cycles,
    iteration_energy,
    norm,
    products_of_others,
    ring_bound,
    scheduler_cycles,
    slot_lifetime,
)
from wsopt.perf.effective_ii import ramps
from wsopt.perf.price import lower
from wsopt.program.facts import Arithmetic, Cost
from wsopt.program.program import OpKind, TileProgram, Unit
from wsopt.program.types import Sharing, Structure

CUT = Structure(64, 64, 64, 1, 4, Sharing.COOPERATIVE, False, False, 1, 1)
DOCS = Path(__file__).parents[2] / "docs"
TRACES = json.loads((DOCS / "calibration" / "h200_issue_slots.json").read_text("utf-8"))["traces"]
POWER = ("shared_byte", "l2_byte", "gpc_byte", "dram_byte", "alu_cycle")


@pytest.fixture(scope="module")
def card(h200: Machine) -> Machine:
    """Parts add up as squares; nothing but the products takes power."""
    return replace(h200, consumer_knee=2.0, **{f"power_cycles_per_{what}": 0.0 for what in POWER})


def cut(card: Machine, consumers: int = 1, rows: int = 64) -> TileProgram:
    """Attention over K-blocks of 64 keys, heads of 64 wide."""
    sizes = Sizes(queries=512, keys=512, inner=64, column=64)
    return lower(find_region(attention(sizes=sizes)), replace(CUT, consumers=consumers, rows=rows), card)


def holding(program: TileProgram, parts: dict[Unit, int], *issue: int) -> TileProgram:
    """The program with units held for so many cycles by the first operation, and so much issue a consumer. Nothing
    else is counted.
    """
    left, first, ops = dict(enumerate(issue)), program.loop[0].id, []
    for op in program.loop:
        own = left.pop(op.consumer, 0) if op.consumer is not None else 0
        pipes = tuple(parts.items()) if op.id == first else ()
        ops.append(replace(op, counts=Cost(0, 0), issue=own, busy=0, latency=0, pipes=pipes))
    return replace(program, ops=tuple(ops))


def test_units_and_a_thread_add_up_as_a_norm(card: Machine) -> None:
    two = cut(card, 2)
    assert contended_interval(holding(two, {Unit.TENSOR: 300}, 400), card) == 500
    assert contended_interval(holding(two, {Unit.TENSOR: 400}, 300), card) == 500
    # 200^2 + 400^2 + 500^2 + 600^2 = 900^2.
    assert (
        contended_interval(holding(two, {Unit.TENSOR: 200, Unit.ALU: 400, Unit.MUFU: 500}, 600), card) == 900
    )
    # A sum with the knee 1, the largest with one that is sharp; parts of a cycle count whole.
    pair = holding(two, {Unit.TENSOR: 300}, 400)
    assert contended_interval(pair, replace(card, consumer_knee=1.0)) == 700
    assert contended_interval(pair, replace(card, consumer_knee=100.0)) == 401
    assert contended_interval(holding(two, {Unit.TENSOR: 100}, 100), card) == 142


def test_an_only_thread_contends_with_nobody(card: Machine) -> None:
    one = cut(card)
    assert contended_interval(holding(one, {Unit.TENSOR: 300}, 400), card) == 400
    assert contended_interval(holding(one, {Unit.TENSOR: 500, Unit.MUFU: 400}, 300), card) == 500


def test_consumers_of_several_blocks_of_rows_contend_more(card: Machine) -> None:
    # 64 rows of four warps are those of one instruction, 128 of them are two; 128 of eight warps are one again.
    for rows, more in ((64, 1.0), (128, 1.12), (192, 1.24)):
        held = holding(cut(card, 2, rows), {Unit.TENSOR: 300}, 400)
        assert contended_interval(held, card) == math.ceil(500 * more)
    wide = lower(
        find_region(attention(sizes=Sizes(queries=512, keys=512, inner=64, column=64))),
        replace(CUT, consumers=2, rows=128, consumer_warps=8),
        card,
    )
    assert contended_interval(holding(wide, {Unit.TENSOR: 300}, 400), card) == 500
    assert contended_interval(holding(cut(card, 1, 128), {Unit.TENSOR: 300}, 400), card) == 400


def test_what_is_alone_is_not_slowed(card: Machine) -> None:
    assert contended_interval(holding(cut(card), {Unit.MUFU: 700}), card) == 700
    assert contended_interval(holding(cut(card), {}, 700), card) == 700


def test_of_the_threads_the_longest_counts(card: Machine) -> None:
    two = cut(card, 2)
    assert contended_interval(holding(two, {Unit.TENSOR: 300}, 400, 100), card) == 500
    assert contended_interval(holding(two, {Unit.TENSOR: 300}, 100, 400), card) == 500


def test_the_ring_that_is_waited_for_the_longest_counts(card: Machine) -> None:
    program = cut(card, 2)
    keys, values = program.rings
    # Products have their latencies still; a slot of values lives longer, for its product comes later.
    lives = {plan.name: slot_lifetime(program, card, plan) for plan in (keys, values)}
    found = {
        slots: contended_interval(program, card, slots) for slots in itertools.product((0, 2, 8), repeat=2)
    }
    alone = contended_interval(program, card)
    assert found[0, 0] == alone
    held = dict(held_cycles(program))
    held[Unit.TENSOR] += sum(op.latency - op.busy for op in program.loop if op.kind is OpKind.MMA)
    squares = (
        sum(c * c for c in (*held.values(), max(issue_cycles(program).values())))
        + scheduler_cycles(program, card) ** 2
    )
    for (first, second), interval in found.items():
        waits = [
            math.ceil(lives[plan.name] / depth) for plan, depth in ((keys, first), (values, second)) if depth
        ]
        assert interval == math.ceil(math.sqrt(squares + max(waits, default=0) ** 2))
    assert found[2, 8] > found[8, 8] > alone


def test_an_only_slot_lives_for_the_products_of_all_consumers(card: Machine) -> None:
    three = cut(card, 3)
    edges = {(edge.source, edge.target) for edge in three.edges}
    for plan in three.rings:
        product = next(
            op for op in three.of(OpKind.MMA) if any((load, op.id) in edges for load in plan.loads)
        )
        life = slot_lifetime(three, card, plan)
        assert ring_bound(three, card, plan, 1) == life + 2 * product.busy
        assert ring_bound(three, card, plan, 2) == math.ceil(life / 2)
        assert products_of_others(cut(card), plan) == 0


def test_the_ring_of_products_has_its_own_effective_ii(card: Machine) -> None:
    partial = lower(plain(4096, 4096, 1024, "f8e4m3"), replace(CUT, columns=128, consumers=2), card)
    assert contended_interval(partial, card, (1,)) == contended_interval(partial, card)


def test_more_consumers_hold_units_longer_and_threads_as_long(card: Machine) -> None:
    programs = [cut(card, consumers) for consumers in (1, 2, 3)]
    one = held_cycles(programs[0])
    issue = sum(op.issue for op in programs[0].loop if op.consumer == 0)
    for consumers, program in enumerate(programs, start=1):
        held = dict(held_cycles(program))
        # Copies are of no consumer, and all of them read the same.
        assert held == {u: c if u is Unit.TMA else consumers * c for u, c in one.items()}
        # With several, each product's end is waited for by the next consumer's.
        ends = sum(op.latency - op.busy for op in program.loop if op.kind is OpKind.MMA)
        assert ends > 40 * 2 * consumers
        held[Unit.TENSOR] += ends if consumers > 1 else 0
        squares = sum(c * c for c in held.values()) + issue * issue + scheduler_cycles(program, card) ** 2
        found = contended_interval(program, card)
        if consumers == 1:
            assert found == max(*held.values(), issue, math.ceil(scheduler_cycles(program, card)))
        else:
            assert (found - 1) ** 2 < squares <= found**2


def test_schedulers_are_taken_by_arithmetic_and_by_products_that_read_registers(card: Machine) -> None:
    for consumers in (1, 2):
        program = cut(card, consumers)
        own = [op for op in program.loop if op.consumer == 0]
        mixes = [(op.counts.mix, op.counts.elements) for op in own if isinstance(op.counts, Arithmetic)]
        instructions = (
            sum(mix.instructions * elements for mix, elements in mixes) / 128
        )  # a cycle, of four schedulers
        # The second product has four instructions of 64 x 64 x 16, whose probabilities are in registers.
        reads = 4 * card.mma_least_cycles_registers
        assert scheduler_cycles(program, card) == pytest.approx(consumers * (instructions + reads))
    alone = lower(plain(4096, 4096, 1024, "f8e4m3"), replace(CUT, columns=128, consumers=2), card)
    assert scheduler_cycles(alone, card) == 0


@pytest.mark.parametrize("row", TRACES, ids=lambda row: f"{row['consumers']}x{row['rows']}x{row['depth']}")
def test_loops_with_packed_weights_take_what_was_measured(row: dict[str, int], h200: Machine) -> None:
    region = find_region(load_graph(DOCS / "quantized" / "graphs" / "i4_16.json"))
    s = Structure(
        row["rows"], row["columns"], row["depth"], row["consumers"], 4, Sharing.COOPERATIVE, True, False, 1, 1
    )
    found = contended_interval(lower(region, s, h200), h200)
    assert 0.88 * row["ii_cycles"] < found < 1.05 * row["ii_cycles"]


def packed(rows: int, *, scaled_sums: bool, machine: Machine, consumers: int = 3) -> TileProgram:
    """A product of so many rows by weights of four bits, which are the tile's rows."""
    region = find_region(load_graph(DOCS / "quantized" / "graphs" / f"i4_{rows}.json"))
    s = Structure(
        64, rows, 256, consumers, 4, Sharing.COOPERATIVE, True, False, 1, 1, scaled_sums=scaled_sums
    )
    return lower(region, s, machine)


def test_scaling_partial_sums_takes_a_slot_for_each_of_them_and_none_for_a_weight(card: Machine) -> None:
    weights, sums = (packed(16, scaled_sums=scaled, machine=card, consumers=1) for scaled in (False, True))
    # Of 64 x 256 weights two are multiplied at once; of 64 x 16 sums there are two sets, one for each group.
    saved = 64 * 256 / 2 / 128 - 2 * 64 * 16 / 128
    assert scheduler_cycles(weights, card) - scheduler_cycles(sums, card) == pytest.approx(saved)


def test_few_rows_scale_partial_sums_and_more_their_weights(h200: Machine) -> None:
    def interval(rows: int, scaled_sums: bool) -> int:
        return contended_interval(packed(rows, scaled_sums=scaled_sums, machine=h200), h200)

    assert interval(16, True) < 0.96 * interval(16, False)
    assert interval(64, True) > interval(64, False)


@pytest.mark.parametrize("scaled_sums", [False, True])
def test_schedulers_hold_the_first_iterations_too(h200: Machine, scaled_sums: bool) -> None:
    program = packed(16, scaled_sums=scaled_sums, machine=h200)
    taken = scheduler_cycles(program, h200)
    assert busiest(program, h200, Unit.TMA) == taken > max(issue_cycles(program).values())
    found = ramps(program, h200, 4)
    assert found is not None
    assert found.product == taken
    assert found.ahead >= taken


def test_the_tensor_core_is_handed_over(card: Machine) -> None:
    two = holding(cut(card, 2), {Unit.TENSOR: 220}, 400)
    # Two products for each consumer, each with a result 20 cycles after the tensor core is free again.
    late = replace(two, ops=tuple(replace(op, latency=20) if op.kind is OpKind.MMA else op for op in two.ops))
    assert contended_interval(two, card) == math.ceil(math.hypot(220, 400))
    assert contended_interval(late, card) == math.ceil(math.hypot(220 + 4 * 20, 400)) == 500


def test_adding_up_partial_sums_contends(card: Machine) -> None:
    cut = replace(CUT, columns=128, consumers=2)
    program = lower(plain(4096, 4096, 1024, "f8e4m3"), cut, card)
    held, thread = held_cycles(program), max(issue_cycles(program).values())
    # Two products of 64 x 128 x 64 at 4096 a cycle; their sums, and a thread that issues both.
    assert held[Unit.TENSOR] == 256
    assert held[Unit.ALU] > 2 * 64 * 128 / 128
    squares = sum(c * c for c in held.values()) + thread * thread
    assert contended_interval(program, card) == math.ceil(squares**0.5)


def test_loops_of_plain_products_do_not_contention(card: Machine) -> None:
    assert contended_interval(lower(plain(4096, 4096, 1024), replace(CUT, consumers=2), card), card) == 0


@pytest.mark.parametrize(
    ("what", "amount"),
    [
        # A K-block of keys and one of values.
        ("l2_byte", 2 * 8192),
        # What it takes of device memory is the kernel's, not an iteration's.
        ("dram_byte", 0),
    ],
)
def test_bytes_of_an_iteration_take_power(card: Machine, what: str, amount: int) -> None:
    # Two products of 64 x 64 x 64 for each of two consumers, of 128 cycles.
    hot = replace(card, **{f"power_cycles_per_{what}": 0.01})
    assert iteration_energy(cut(card, 2), hot) == pytest.approx(512 + 0.01 * amount)


def test_products_of_some_types_take_more_power(card: Machine) -> None:
    warm = replace(card, power_tensor={"bf16": 1.5})
    assert iteration_energy(cut(card, 2), warm) == pytest.approx(768)


def test_arithmetic_takes_power(card: Machine) -> None:
    hot = replace(card, power_cycles_per_alu_cycle=0.25)
    held = {Unit.ALU: 100, Unit.FMA: 200, Unit.MUFU: 300, Unit.TMA: 400, Unit.SHARED: 500, Unit.TENSOR: 600}
    assert iteration_energy(holding(cut(card), held, 700), hot) == pytest.approx(0.25 * 600)


def test_a_norm_of_bounds() -> None:
    """Two equal ones cost more than either, one that dominates costs itself, and where nothing is asked all is 0."""
    assert norm((3.0, 3.0), 5.0) == pytest.approx(3.0 * 2 ** (1 / 5))
    assert norm((300.0, 3.0), 5.0) == pytest.approx(300.0)
    assert norm((0.0, 0.0), 5.0) == 0.0
