"""The effective II of rows that stream, by their bytes on the way, against numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tile_graphs import region_of

from wsopt.lowering.structures import structures
from wsopt.machine import Machine
from wsopt.perf.contention import held_cycles, slot_lifetime
from wsopt.perf.copies import TILE_GRAIN
from wsopt.perf.effective_ii import bytes_on_the_way, effective_ii, stream_effective_ii
from wsopt.perf.price import lower
from wsopt.program.facts import Arithmetic, Read
from wsopt.program.ids import OpKind
from wsopt.program.program import TileOp, TileProgram, Unit

LATENCY = 3000.0


@pytest.fixture(scope="module")
def card(h200: Machine) -> Machine:
    """Parts add up as squares, and bytes on the way cost nothing."""
    return replace(h200, stream_knee=2.0, stream_loss=0.0)


@pytest.fixture(scope="module")
def rows(card: Machine) -> TileProgram:
    """Softmax of rows of 8192 bytes, one for each of two consumers."""
    return softmax(4096, card)


def softmax(columns: int, card: Machine) -> TileProgram:
    """Of rows of up to 4096 columns, each in a tile of 4096."""
    region = region_of(
        lambda g: g.cast(g.softmax(g.input("x", (8192, columns), "bf16"), axis=-1), dtype="bf16", name="y")
    )
    found = (s for s in structures(region, card) if (s.rows, s.consumers, s.consumer_warps) == (1, 2, 4))
    slow = replace(card, latency=replace(card.latency, tma_load_dram=LATENCY))
    return lower(region, next(found), slow)


def grains(cycles: float) -> int:
    return math.ceil(cycles / TILE_GRAIN) * TILE_GRAIN


def test_memory_and_the_ring_add_up_as_a_norm(rows: TileProgram, card: Machine) -> None:
    memory, (ring,) = held_cycles(rows)[Unit.MEMORY], rows.rings
    # Two copies, one behind the other: the second is there by its own cycles later.
    life = slot_lifetime(rows, card, ring) + next(op.busy for op in rows.loop if op.id in ring.loads)
    assert life > LATENCY
    for slots in (1, 2, 5):
        assert stream_effective_ii(rows, card, slots) == grains(math.hypot(memory, life / slots))
    assert effective_ii(rows, card, 2) == stream_effective_ii(rows, card, 2)


def test_few_slots_wait_for_their_copies(rows: TileProgram, card: Machine) -> None:
    effective = [stream_effective_ii(rows, card, slots) for slots in range(1, 8)]
    assert effective == sorted(effective, reverse=True)
    assert effective[0] > 1.5 * effective[-1]


def test_many_bytes_on_the_way_slow_device_memory(rows: TileProgram, card: Machine) -> None:
    (ring,) = rows.rings
    assert ring.slot_bytes == 16384
    # With latency and instructions out of the way: as it is up to 2 slots, half as long again from 6 on.
    sharp = replace(card, stream_knee=100.0, stream_loss=0.5, schedulers_per_sm=16)
    contention = replace(
        sharp, stream_bytes_few=2.0 * ring.slot_bytes, stream_bytes_many=6.0 * ring.slot_bytes
    )
    quick = replace(
        rows, ops=tuple(replace(op, latency=0, issue=0) if op.consumer is None else op for op in rows.ops)
    )
    memory = held_cycles(rows)[Unit.MEMORY]
    for slots, times in ((2, 1.0), (4, 1.25), (6, 1.5), (9, 1.5)):
        found = stream_effective_ii(quick, contention, slots)
        assert found == pytest.approx(grains(memory * times), abs=TILE_GRAIN)


def test_reads_alone_do_not_disturb_each_other(rows: TileProgram, card: Machine) -> None:
    slow = replace(card, stream_knee=100.0, stream_loss=0.5, stream_bytes_few=1.0, stream_bytes_many=2.0)
    slow = replace(slow, schedulers_per_sm=16)  # instructions are out of the way
    stores = {op.id for op in rows.of(OpKind.TMA_STORE)}
    memory = held_cycles(rows)[Unit.MEMORY]
    shares = []
    for kept in (1.0, 0.5, 0.0):  # of the stores' bytes
        ops = (
            replace(op, latency=0, issue=0, pipes=scaled(op, kept if op.id in stores else 1.0))
            for op in rows.ops
        )
        program = replace(rows, ops=tuple(ops))
        own = held_cycles(program)[Unit.MEMORY]
        shares.append(stream_effective_ii(program, slow, 8) / own - 1)
    assert memory > 0
    # Of the time of all bytes, which those that are stored take more of than those that are read.
    stored = sum(dict(op.held)[Unit.MEMORY] for op in rows.ops if op.id in stores) / 2
    assert stored > (memory - 2 * stored) / 2
    assert shares == pytest.approx([0.5, 0.5 * 2 * stored / (memory - stored), 0.0], abs=0.01)


def scaled(op: TileOp, share: float) -> tuple[tuple[Unit, int], ...]:
    """What an operation holds, of device memory a share."""
    return tuple((unit, round(n * share) if unit is Unit.MEMORY else n) for unit, n in op.pipes)


def test_the_padding_of_a_row_is_not_copied(rows: TileProgram, card: Machine) -> None:
    padded = softmax(2560, card)
    assert padded.structure == rows.structure
    assert padded.rings[0].slot_bytes == rows.rings[0].slot_bytes
    assert (bytes_on_the_way(rows, 3), bytes_on_the_way(padded, 3)) == (3 * 16384, 3 * 10240)
    whole, part = held_cycles(rows), held_cycles(padded)
    assert part[Unit.MEMORY] == pytest.approx(0.625 * whole[Unit.MEMORY], abs=4 * TILE_GRAIN)
    assert part[Unit.SHARED] == whole[Unit.SHARED]
    for one, other in zip(rows.loop, padded.loop, strict=True):
        if one.id in rows.rings[0].loads:
            assert other.busy == pytest.approx(0.625 * one.busy, abs=1)


def test_the_measured_machine_likes_rings_that_are_neither_short_nor_long(
    rows: TileProgram, h200: Machine
) -> None:
    region = rows.region
    program = lower(region, rows.structure, h200)
    effective = {slots: effective_ii(program, h200, slots) for slots in range(1, 13)}
    best = min(effective, key=lambda slots: effective[slots])
    assert 2 <= best <= 5
    assert effective[1] > 1.1 * effective[best]
    assert effective[12] > 1.03 * effective[best]


def test_schedulers_issue_the_instructions_of_all_consumers(rows: TileProgram, card: Machine) -> None:
    """On a card with one scheduler, where a consumer alone would not have to wait for it."""
    few = replace(card, stream_knee=100.0, schedulers_per_sm=1)
    counted = 43.0 * rows.structure.consumers * rows.structure.consumer_warps * 32
    for op in rows.loop:
        if isinstance(op.counts, Arithmetic):
            counted += op.counts.mix.instructions * op.counts.elements
        elif isinstance(op.counts, Read):
            counted += op.counts.widened + op.counts.divisions * 45 * 32 * op.counts.warps
    counted /= 0.8  # more than that warps do not fill
    memory = held_cycles(rows)[Unit.MEMORY]
    assert counted / 32 > memory > counted / 128
    # Half of the bytes are stored, by those that compute.
    together = (memory**6 + (counted / 32) ** 6) ** (1 / 6)
    assert stream_effective_ii(rows, few, 12) == grains(together)
    assert stream_effective_ii(rows, card, 12) < grains(counted / 32)
    stores = {op.id for op in rows.of(OpKind.TMA_STORE)}
    reads = (replace(op, pipes=scaled(op, 0.0)) if op.id in stores else op for op in rows.ops)
    alone = replace(rows, ops=tuple(reads))
    together = (held_cycles(alone)[Unit.MEMORY] ** 5 + (counted / 32) ** 5) ** (1 / 5)
    assert stream_effective_ii(alone, few, 12) == grains(together)


def test_consumers_of_eight_warps_are_slower_at_the_rate_of_memory(rows: TileProgram, card: Machine) -> None:
    sharp = replace(card, stream_loss=0.0, stream_knee=100.0, schedulers_per_sm=16)
    wide = replace(rows, structure=replace(rows.structure, consumer_warps=8))
    memory = held_cycles(rows)[Unit.MEMORY]
    assert stream_effective_ii(rows, sharp, 12) == pytest.approx(grains(memory), abs=TILE_GRAIN)
    assert stream_effective_ii(wide, sharp, 12) == pytest.approx(grains(memory * 1.004), abs=TILE_GRAIN)


# --- tiles taken at run time ------------------------------------------------------------------------------


def test_blocks_that_take_tiles_at_run_time_do_not_drift_apart(rows: TileProgram, card: Machine) -> None:
    taken = replace(rows, structure=replace(rows.structure, dynamic=True))
    sharp = replace(card, stream_loss=0.5, stream_bytes_few=1.0, stream_bytes_many=2.0, next_tile_cycles=0.0)
    memory = held_cycles(rows)[Unit.MEMORY]
    for knee, loss in ((100.0, 0.0), (100.0, 0.25)):
        own = replace(sharp, dynamic_stream_knee=knee, dynamic_stream_loss=loss)
        assert stream_effective_ii(taken, own, 12) == pytest.approx(memory * (1 + loss), abs=TILE_GRAIN)
        assert stream_effective_ii(rows, own, 12) > 1.5 * memory


def test_a_tile_takes_as_long_as_its_number_and_its_copies(rows: TileProgram, card: Machine) -> None:
    taken = replace(rows, structure=replace(rows.structure, dynamic=True))
    (ring,) = rows.rings
    issue = sum(op.issue for op in rows.loop if op.id in ring.loads)
    slow = replace(card, next_tile_cycles=9000.0)
    assert stream_effective_ii(taken, slow, 12) == grains(9000 + issue)
    assert stream_effective_ii(rows, slow, 12) < 9000


def test_a_tile_that_takes_nothing_of_device_memory_has_an_interval(rows: TileProgram, card: Machine) -> None:
    """What all tiles share comes from device memory once, and where nothing is stored no tile has any of it."""
    free = (replace(op, unit=None) if op.unit is Unit.MEMORY else op for op in rows.ops)
    pipes = (replace(op, pipes=tuple(one for one in op.pipes if one[0] is not Unit.MEMORY)) for op in free)
    alone = replace(rows, ops=tuple(pipes))
    assert held_cycles(alone)[Unit.MEMORY] == 0
    assert 0 < effective_ii(alone, card, 2) <= effective_ii(rows, card, 2)
